//! One tool call in the supervisor: its spec, which the worker gets, and the facts about it that the supervisor needs.
//! Methods make it, the session's actor runs it, and its events and its record describe it.

use quackd_protocol::client::{ClientName, HelloParams};
use quackd_protocol::limits::MAX_ARGUMENTS_BYTES;
use quackd_protocol::surrogates::without_lone_surrogates;
use quackd_protocol::terminal::OpenTerminal;
use quackd_protocol::tools::{
    self, BashArguments, OPEN_TERMINAL, REPLACE, ReplaceArguments, ReplaceContentArguments, Tool,
};
use quackd_protocol::worker::CallSpec;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Maximum length of a tool's name that is shown, in characters.
const MAX_SHOWN_TOOL: usize = 100;

/// A tool call.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionCall {
    pub(crate) spec: CallSpec,
    /// Row of the tool. `None` for an unknown one, which the worker refuses.
    pub(crate) row: Option<&'static Tool>,
    pub(crate) facts: CallFacts,
    /// Id that the client gave the call.
    pub(crate) client_id: Option<String>,
    /// `quack.hello` of the caller.
    pub(crate) caller: Option<Arc<HelloParams>>,
    /// For a call of the session's own agent, the name by which its model called the tool. The agent itself publishes the
    /// start and the end. Empty for a call that no event shows.
    pub(crate) agents: Option<String>,
    /// Arguments for display. `None` if the session had no followers when the call arrived and calls are not recorded.
    pub(crate) shown_arguments: Option<Box<RawValue>>,
    /// Whether the journal has the beginning of the call.
    pub(crate) is_begun: bool,
}

impl SessionCall {
    pub(crate) fn new(spec: CallSpec) -> Self {
        let row = tools::find_any(&spec.tool);
        // Longer arguments are refused.
        let row_read = row.filter(|_| spec.arguments.len() <= MAX_ARGUMENTS_BYTES);
        let facts = row_read.map(|row| CallFacts::read(row, &spec.arguments)).unwrap_or_default();
        Self { spec, row, facts, ..Self::default() }
    }

    /// Returns the id of the call for clients: their own, or the number of the call in its session.
    pub(crate) fn id(&self) -> &str {
        self.client_id.as_deref().unwrap_or(self.spec.call_id.as_str())
    }

    /// Returns the id of the call in events. `None` if no event shows it.
    pub(crate) fn event_id(&self) -> Option<&str> {
        let is_hidden = self.is_own() || self.agents.as_ref().is_some_and(|it| it.is_empty());
        (!is_hidden).then(|| self.id())
    }

    /// Returns the name of the tool for display, cut to [`MAX_SHOWN_TOOL`]: a client may send any text.
    pub(crate) fn shown_tool(&self) -> String {
        self.spec.tool.chars().take(MAX_SHOWN_TOOL).collect()
    }

    /// Returns the name that the caller gave itself with `quack.hello`.
    pub(crate) fn client(&self) -> Option<&ClientName> {
        self.caller.as_deref().map(|hello| &hello.client)
    }

    /// Whether the tool runs commands.
    pub(crate) fn runs_commands(&self) -> bool {
        self.row.is_some_and(Tool::runs_commands)
    }

    /// Whether clients cannot call the tool.
    pub(crate) fn is_internal(&self) -> bool {
        self.row.is_some_and(Tool::is_internal)
    }

    /// Whether the supervisor makes the call for itself. No event shows it: the event of its effect does, such as
    /// `terminal_started`.
    pub(crate) fn is_own(&self) -> bool {
        self.agents.is_none() && self.is_internal()
    }

    /// Whether the call may change files of the workspace.
    pub(crate) fn may_change_files(&self) -> bool {
        self.row.is_some_and(Tool::may_change_files)
    }

    /// Whether a replacement only shows its changes. Parses the arguments, which can be long.
    pub(crate) fn is_dry_run(&self) -> bool {
        let tool = self.row.filter(|tool| tool.parameter("dry_run").is_some());
        let object = tool.and_then(|tool| Some((tool, parsed(&self.spec.arguments)?)));
        matches!(object, Some((tool, Value::Object(object))) if is_dry_run(tool, &object))
    }
}

/// Arguments that the supervisor reads. Only the worker reads the other arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallFacts {
    /// The command of a tool that runs commands. `None` if the arguments have none.
    pub(crate) command: Option<String>,
    /// Timeout that the arguments of a command set, in milliseconds.
    pub(crate) timeout_ms: Option<u64>,
    /// Whether a command becomes a background job.
    pub(crate) background: bool,
    /// Whether it becomes a background job on a terminal.
    pub(crate) terminal: bool,
}

impl CallFacts {
    fn read(tool: &Tool, arguments: &str) -> Self {
        match tool.name {
            OPEN_TERMINAL => Self::of_terminal(arguments),
            _ if tool.runs_commands() => Self::of_command(arguments),
            _ => Self::default(),
        }
    }

    /// Reads the arguments that the supervisor itself has written.
    fn of_terminal(arguments: &str) -> Self {
        let open: Option<OpenTerminal> = serde_json::from_str(arguments).ok();
        let command = open.map(|open| open.argv.join(" ")).filter(|command| !command.is_empty());
        Self { command, timeout_ms: None, background: true, terminal: true }
    }

    /// Reads the arguments of `bash` as the worker does. The last one of equal names counts.
    fn of_command(arguments: &str) -> Self {
        // A text that does not begin like JSON is the command.
        if !arguments.trim_start().starts_with(['{', '"']) {
            return Self { command: Some(arguments.to_owned()), ..Self::default() };
        }
        match parsed(arguments) {
            Some(Value::String(command)) => Self { command: Some(command), ..Self::default() },
            Some(Value::Object(object)) => {
                let BashArguments { command, timeout_ms, background, tty } =
                    BashArguments::of(&object);
                Self { command, timeout_ms, background: background || tty, terminal: tty }
            }
            _ => Self::default(),
        }
    }
}

fn parsed(arguments: &str) -> Option<Value> {
    serde_json::from_str(&without_lone_surrogates(arguments)).ok()
}

fn is_dry_run(tool: &Tool, object: &Map<String, Value>) -> bool {
    let dry_run = if tool.name == REPLACE.name {
        ReplaceArguments::of(object).dry_run
    } else {
        ReplaceContentArguments::of(object).dry_run
    };
    matches!(dry_run, Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, arguments: &str) -> SessionCall {
        let (tool, arguments) = (tool.to_owned(), arguments.to_owned());
        SessionCall::new(CallSpec { tool, arguments, ..CallSpec::default() })
    }

    #[test]
    fn only_a_replacement_can_be_a_dry_run() {
        let dry = r#"{"pattern":"a","replacement":"b","dry_run":true}"#;
        assert!(call("replace", dry).is_dry_run() && call("replace_content", dry).is_dry_run());
        assert!(call("replace", r#"{"preview":true}"#).is_dry_run());
        for arguments in ["{}", r#"{"dry_run":true,"dry_run":false}"#, "a"] {
            assert!(!call("replace", arguments).is_dry_run(), "{arguments}");
        }
        assert!(!call("write_file", dry).is_dry_run());
    }

    #[test]
    fn a_program_on_a_terminal_is_a_background_job() {
        let facts = |tool: &str, arguments: &str| call(tool, arguments).facts;
        let of_bash = facts("bash", r#"{"command":"vi","tty":true}"#);
        let of_run = facts(OPEN_TERMINAL, r#"{"argv":["vi","a b"],"cols":80}"#);
        for (facts, command) in [(of_bash, "vi"), (of_run, "vi a b")] {
            assert_eq!(facts.command.as_deref(), Some(command));
            assert!(facts.background && facts.terminal);
        }
        assert!(call(OPEN_TERMINAL, "{}").is_own() && !call("bash", "{}").is_own());
        let shell = facts(OPEN_TERMINAL, "{}");
        assert!(shell.background && shell.terminal && shell.command.is_none());
        assert!(!facts("bash", r#"{"command":"vi","background":true}"#).terminal);
    }

    #[test]
    fn a_command_is_read_as_the_worker_reads_it() {
        for (arguments, command) in [
            ("ls -l", Some("ls -l")),
            (r#""ls""#, Some("ls")),
            (r#"{"cmd":"ls"}"#, Some("ls")),
            (r#"{"command":"a","command":"b"}"#, Some("b")),
            ("{}", None),
            ("{broken", None),
        ] {
            assert_eq!(call("bash", arguments).facts.command.as_deref(), command, "{arguments}");
        }
        assert_eq!(call("find_files", "ls").facts.command, None);
    }
}
