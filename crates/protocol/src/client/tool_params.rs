//! Parameters of `quack.tool`.

use crate::tools::{ArgumentsBuilder, ToolArguments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `quack.tool` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolParams {
    /// Tool name.
    pub tool: String,
    /// Arguments: an object, or a bare string as the tool's shorthand.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub arguments: Value,
    /// Session reference; wins over `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Directory whose session is used, or created if it has none. Never changes the active session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Absolute path of a directory in the workspace. `bash` runs there, and `read_file`, `write_file` and `edit_file` read
    /// relative paths from there. Default: the root of the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// True: the call may only use tools that change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_mode: Option<bool>,
    /// Deadline in milliseconds. If absent, the configured deadline, or 30 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Deadline in milliseconds if neither `timeoutMs` nor the configuration has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_timeout_ms: Option<u64>,
    /// True, with `stream`, instead of `defaultTimeoutMs`: a command of `bash` has no deadline. For local clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_deadline: Option<bool>,
    /// The client's own id of the call, for `quack.cancel` and events: 1 to 200 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// True: send `tool_output` events with the command's output. The call is cancelled when its client disconnects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// True: this client can answer questions about permissions during the call. It gets them as events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<bool>,
    /// True: the command of `bash` reads what the client sends with `quack.stdin`. Needs a `callId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<bool>,
    /// True, with `stream`: `search` and `find` send their rows as `tool_output` events while they find them, without
    /// the limits of a page. The reply has no rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_rows: Option<bool>,
}

impl<A: ToolArguments> From<ArgumentsBuilder<A>> for ToolParams {
    /// Returns the call of the tool that has these arguments.
    fn from(arguments: ArgumentsBuilder<A>) -> Self {
        let tool = A::TOOL.name.to_owned();
        Self { tool, arguments: arguments.build().into(), ..Self::default() }
    }
}
