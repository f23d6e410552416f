//! Frames between the supervisor and one session's Pi worker, with lengths as in [`crate::worker`].
//!
//! The Pi worker runs the user's Pi and speaks its line protocol, in any of its dialects. This wire has one dialect:
//! the event names and shapes that clients know, without repeated whole messages.
//!
//! Order: the supervisor writes [`ToPiWorker::Start`] first. The worker starts Pi and answers [`FromPiWorker::Hello`]
//! before anything else.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Version of these frames. The supervisor refuses a worker with another number.
pub const PI_FRAME_PROTOCOL: u32 = 1;

/// Tags of [`ToPiWorker`].
pub const TO_PI_WORKER_TAGS: &[&str] = &["start", "command", "ui_answer", "ping", "shutdown"];

/// Tags of [`FromPiWorker`].
pub const FROM_PI_WORKER_TAGS: &[&str] = &[
    "hello",
    "version",
    "cannot_start",
    "answer",
    "event",
    "dialog",
    "stdin_failed",
    "ended",
    "pong",
    "warning",
];

/// Supervisor to Pi worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToPiWorker {
    /// Settings for the worker. First frame; answered by [`FromPiWorker::Hello`] or [`FromPiWorker::CannotStart`].
    Start(Box<PiStart>),
    /// A command for Pi. When Pi answers, the worker sends [`FromPiWorker::Answer`] with the same number. A second
    /// answer may follow. There is none if Pi does not answer.
    Command {
        /// Counts up from 1 for each worker.
        number: u64,
        /// The command for Pi.
        command: PiCommand,
    },
    /// The user's answer to a [`FromPiWorker::Dialog`]. Pi does not answer it.
    UiAnswer(UiAnswer),
    /// Liveness probe of the worker, not of Pi. Answered by [`FromPiWorker::Pong`].
    Ping {
        /// Counts up from 1 for each worker.
        seq: u64,
    },
    /// Close the stdin of Pi, so that Pi exits, then exit. A Pi that keeps running is terminated, then killed.
    Shutdown {},
}

/// The first frame. The only frame that contains the user's keys: Pi itself sends requests to model providers.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiStart {
    /// [`PI_FRAME_PROTOCOL`] of the supervisor.
    pub proto: u32,
    /// The session. Its processes are marked with it.
    pub session: String,
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Absolute path of Pi's executable.
    pub program: String,
    /// Arguments that do not depend on the version of Pi.
    pub args: Vec<String>,
    /// Version of Pi according to its package; `None` if the worker must ask the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether to start a Pi that cannot ignore the files of a workspace.
    #[serde(default)]
    pub allow_old: bool,
    /// Start nothing. Ask the program for its version, and check whether it could be started. Answered by
    /// [`FromPiWorker::Version`] or [`FromPiWorker::CannotStart`].
    #[serde(default)]
    pub only_version: bool,
    /// The `.pi` directory that such a Pi would load, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_settings: Option<String>,
    /// The whole environment of Pi.
    pub env: Vec<(String, String)>,
    /// The control group for Pi and its descendants, as `quackd-process` describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Value>,
    /// Largest number of processes.
    pub processes: u32,
}

/// Shows no values of variables: they contain keys.
impl std::fmt::Debug for PiStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PiStart")
            .field("proto", &self.proto)
            .field("session", &self.session)
            .field("workspace", &self.workspace)
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &self.env.len())
            .finish_non_exhaustive()
    }
}

/// Commands that are sent to Pi.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PiCommand {
    /// Report the state.
    GetState,
    /// Start a turn with a prompt.
    Prompt {
        /// The prompt.
        message: String,
    },
    /// Stop the turn.
    Abort,
    /// Stop the user's own shell command.
    AbortBash,
}

impl PiCommand {
    /// Returns the name in Pi's protocol.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::GetState => "get_state",
            Self::Prompt { .. } => "prompt",
            Self::Abort => "abort",
            Self::AbortBash => "abort_bash",
        }
    }
}

/// An answer to a dialog, with the members in the order in which Pi gets them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UiAnswer {
    /// The dialog.
    pub id: String,
    /// The selected or typed answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Answer to a yes-or-no question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Value>,
    /// Set if the dialog was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Value>,
}

/// Pi worker to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromPiWorker {
    /// Pi runs.
    Hello {
        /// [`PI_FRAME_PROTOCOL`] of the worker.
        proto: u32,
        /// Process id of the worker. For display only.
        pid: u32,
        /// Process id of Pi. For display only.
        pi_pid: u32,
    },
    /// Answer to a [`PiStart`] with `only_version`. Last frame.
    Version {
        /// The version that the program reports.
        version: String,
    },
    /// Pi cannot be started, and another attempt cannot help.
    CannotStart {
        /// Reason, one line.
        reason: String,
    },
    /// Pi answered a command.
    Answer(PiAnswer),
    /// An event of Pi.
    Event {
        /// The event's `type`, as clients know it.
        name: String,
        /// The whole object, on one line, at most [`crate::limits::MAX_PI_EVENT_BYTES`].
        data: Box<RawValue>,
    },
    /// Pi waits for the user's answer to a question.
    Dialog {
        /// Pi's id of the question.
        id: String,
        /// Timeout of the question, in milliseconds from now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// The whole `extension_ui_request`, as in [`FromPiWorker::Event`].
        data: Box<RawValue>,
    },
    /// Pi accepts no more commands, but still runs.
    StdinFailed {
        /// Reason, one line.
        reason: String,
    },
    /// Pi has exited, and the worker exits too. Last frame.
    Ended(PiEnd),
    /// Answer to [`ToPiWorker::Ping`].
    Pong {
        /// Number of the probe.
        seq: u64,
    },
    /// A warning for the log.
    Warning {
        /// Text of the warning.
        text: String,
    },
}

/// Pi's reply to a command.
#[derive(Debug, Serialize, Deserialize)]
pub struct PiAnswer {
    /// Number of the command.
    pub number: u64,
    /// Whether Pi reports success.
    pub success: bool,
    /// Error text of a failed command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The result, on one line, at most [`crate::limits::MAX_PI_STATE_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// Exit of Pi.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiEnd {
    /// Exit code, if Pi exited.
    pub code: Option<i32>,
    /// Signal, if one killed Pi.
    pub signal: Option<i32>,
    /// End of Pi's stderr.
    pub stderr_tail: String,
}

/// The part of Pi's state that the daemon uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PiState {
    /// File in which Pi stores the conversation.
    pub session_file: Option<String>,
    /// Name of the conversation that the user set in Pi.
    pub session_name: Option<String>,
    /// Whether a turn runs.
    pub is_streaming: Option<bool>,
    /// Whether Pi is summarizing the conversation.
    pub is_compacting: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_these_shapes_and_all_tags_are_known() {
        let frame = ToPiWorker::Command { number: 1, command: PiCommand::GetState };
        let text = serde_json::to_string(&frame).unwrap();
        assert_eq!(text, r#"{"command":{"number":1,"command":"get_state"}}"#);
        let frame =
            ToPiWorker::Command { number: 2, command: PiCommand::Prompt { message: "a".into() } };
        let text = serde_json::to_string(&frame).unwrap();
        assert_eq!(text, r#"{"command":{"number":2,"command":{"prompt":{"message":"a"}}}}"#);
        for tag in FROM_PI_WORKER_TAGS {
            let error = serde_json::from_str::<FromPiWorker>(&format!("{{\"{tag}\":7}}"));
            let error = error.unwrap_err().to_string();
            assert!(!error.contains("unknown variant"), "{error}");
        }
        for tag in TO_PI_WORKER_TAGS {
            let error = serde_json::from_str::<ToPiWorker>(&format!("{{\"{tag}\":7}}"));
            let error = error.unwrap_err().to_string();
            assert!(!error.contains("unknown variant"), "{error}");
        }
    }

    #[test]
    fn keys_are_not_printed() {
        let start = PiStart {
            proto: 1,
            session: "s".into(),
            workspace: "/w".into(),
            program: "/pi".into(),
            args: Vec::new(),
            version: None,
            allow_old: false,
            only_version: false,
            project_settings: None,
            env: vec![("OPENAI_API_KEY".into(), "sk-secret".into())],
            cgroup: None,
            processes: 1,
        };
        let shown = format!("{:?}", ToPiWorker::Start(Box::new(start)));
        assert!(!shown.contains("sk-secret"), "{shown}");
    }
}
