//! Internal tools, which only the supervisor calls. They are in no list of tools.

use super::arguments::arguments;
use super::files::PATH;
use super::row::{Action, Callers, READS, Tool, WRITES, text, whole};

/// The internal tools. Their arguments are those of the supervisor, so the rows name no parameters.
pub(super) static TOOLS: [Tool; 7] = [
    Tool { name: AUDIT, callers: Callers::Supervisor, ..READS },
    Tool { name: EXPLAIN, callers: Callers::Supervisor, ..READS },
    Tool { name: OPEN_TERMINAL, callers: Callers::Supervisor, action: Action::Execute, ..WRITES },
    Tool { name: INSTRUCTIONS, callers: Callers::Agent, ..READS },
    Tool { name: IMAGE, callers: Callers::Agent, ..READS },
    Tool { name: MCP_LIST, callers: Callers::Agent, ..READS },
    Tool { name: MCP_CALL, callers: Callers::Agent, ..WRITES },
];

/// Internal tool that the supervisor calls for `quack.sandbox`. Clients cannot call it. Its arguments are
/// [`AuditArguments`].
pub const AUDIT: &str = "quack_audit";

/// Internal tool like [`AUDIT`]. Its arguments are [`ExplainArguments`].
pub const EXPLAIN: &str = "quack_explain";

/// Internal tool that the supervisor calls for `quack.run`: starts a program on a terminal. Its arguments are
/// [`crate::terminal::OpenTerminal`], its data [`crate::terminal::OpenedTerminal`].
pub const OPEN_TERMINAL: &str = "quack_open_terminal";

/// Internal tool that the supervisor calls for the session's agent: returns the files with instructions for agents.
/// Its arguments are [`InstructionsArguments`].
pub const INSTRUCTIONS: &str = "quack_instructions";

/// Internal tool like [`INSTRUCTIONS`]: returns an image. Its arguments are [`ImageArguments`].
pub const IMAGE: &str = "quack_image";

/// Internal tool like [`INSTRUCTIONS`]: starts the session's MCP servers and lists their tools. Its parameters are
/// [`crate::mcp::McpList`], its data [`crate::mcp::McpTools`].
pub const MCP_LIST: &str = "quack_mcp_list";

/// Internal tool like [`INSTRUCTIONS`]: calls a tool of an MCP server. Its parameters are [`crate::mcp::McpCall`].
pub const MCP_CALL: &str = "quack_mcp_call";

/// Returns true for an internal tool, which only the supervisor can call.
#[must_use]
pub fn is_internal(tool: &str) -> bool {
    TOOLS.iter().any(|internal| internal.name == tool)
}

arguments! {
    /// Arguments of [`AUDIT`].
    AuditArguments {
        since_ms: Option<u64> = whole(0, u64::MAX, "Time from which changes count, in ms. Absent: the worker's start."),
    }
}

arguments! {
    /// Arguments of [`EXPLAIN`].
    ExplainArguments {
        path: Option<String> = text("The path to explain. Absent: the session."),
    }
}

arguments! {
    /// Arguments of [`INSTRUCTIONS`].
    InstructionsArguments {
        directory: Option<String> = text("Directory of the user, relative to the root."),
        head: Option<String> = text("Head in the last state of git."),
    }
}

arguments! {
    /// Arguments of [`IMAGE`].
    ImageArguments {
        path: Option<String> = PATH,
    }
}
