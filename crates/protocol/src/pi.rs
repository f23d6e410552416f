//! Frames between the supervisor and one session's Pi worker, with lengths as in [`crate::worker`].
//!
//! The Pi worker runs the user's Pi and speaks its line protocol, in whichever of its dialects. What crosses
//! this wire is one dialect: the event names and shapes that clients know, without repeats of whole messages.
//!
//! Order: the supervisor writes [`ToPiWorker::Start`] first; the worker starts Pi and answers
//! [`FromPiWorker::Hello`] before anything else.

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
    /// All that the worker is told. First frame; answered by [`FromPiWorker::Hello`] or
    /// [`FromPiWorker::CannotStart`].
    Start(Box<PiStart>),
    /// A command for Pi. Answered by [`FromPiWorker::Answer`] with the same number when Pi answers; a second
    /// answer may follow, and there is none from a Pi that says nothing.
    Command {
        /// Counts up from 1 for each worker.
        number: u64,
        /// What Pi is to do.
        command: PiCommand,
    },
    /// What a person said to a [`FromPiWorker::Dialog`]. Pi does not answer it.
    UiAnswer(UiAnswer),
    /// Liveness probe of the worker, not of Pi. Answered by [`FromPiWorker::Pong`].
    Ping {
        /// Counts up from 1 for each worker.
        seq: u64,
    },
    /// Have Pi end as it does when nobody needs it any more, and exit.
    Shutdown {},
}

/// The first frame. It is the one frame that holds keys of the user's: Pi asks model providers itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiStart {
    /// [`PI_FRAME_PROTOCOL`] of the supervisor.
    pub proto: u32,
    /// The session, to mark its processes with.
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
    /// Whether a Pi that cannot ignore the files of a workspace may be started.
    #[serde(default)]
    pub allow_old: bool,
    /// Start nothing: ask the program for its version, and whether it could be started. Answered by
    /// [`FromPiWorker::Version`] or [`FromPiWorker::CannotStart`].
    #[serde(default)]
    pub only_version: bool,
    /// The `.pi` that such a Pi would load, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_settings: Option<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// The control group for Pi and all that it starts, as `quackd-process` describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Value>,
    /// Processes that it may have.
    pub processes: u32,
}

/// Without the values of variables: they hold keys.
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

/// The commands of Pi's that are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PiCommand {
    /// Tell your state.
    GetState,
    /// Do what a person says.
    Prompt {
        /// What they say.
        message: String,
    },
    /// End the turn.
    Abort,
    /// End the user's own shell command.
    AbortBash,
}

impl PiCommand {
    /// The name in Pi's protocol.
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
    /// What was chosen or typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Yes or no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Value>,
    /// Neither.
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
        /// Process id of the worker. For people.
        pid: u32,
        /// Process id of Pi. For people.
        pi_pid: u32,
    },
    /// Answer to a [`PiStart`] with `only_version`. Last frame.
    Version {
        /// The version that the program reports.
        version: String,
    },
    /// Pi cannot be started, and trying again cannot help.
    CannotStart {
        /// Why.
        reason: String,
    },
    /// Pi answered a command.
    Answer(PiAnswer),
    /// Something happened in Pi.
    Event {
        /// Its `type`, as clients know it.
        name: String,
        /// The whole object, on one line, at most [`crate::limits::MAX_PI_EVENT_BYTES`].
        data: Box<RawValue>,
    },
    /// Pi asks a person something and waits.
    Dialog {
        /// Pi's id of the question.
        id: String,
        /// When Pi stops waiting, in milliseconds from now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// The whole `extension_ui_request`, as in [`FromPiWorker::Event`].
        data: Box<RawValue>,
    },
    /// Pi takes no more commands, though it lives.
    StdinFailed {
        /// Why.
        reason: String,
    },
    /// Pi has ended; the worker ends too. Last frame.
    Ended(PiEnd),
    /// Answer to [`ToPiWorker::Ping`].
    Pong {
        /// The probe's number.
        seq: u64,
    },
    /// Worth a line in the log.
    Warning {
        /// The line.
        text: String,
    },
}

/// What Pi answered.
#[derive(Debug, Serialize, Deserialize)]
pub struct PiAnswer {
    /// The command's number.
    pub number: u64,
    /// Whether Pi says that it succeeded.
    pub success: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The result, on one line, at most [`crate::limits::MAX_PI_STATE_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// How Pi ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiEnd {
    /// Its exit code, if it ended itself.
    pub code: Option<i32>,
    /// The signal, if one ended it.
    pub signal: Option<i32>,
    /// Its last words.
    pub stderr_tail: String,
}

/// What of Pi's state the daemon itself uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PiState {
    /// The file that Pi keeps the conversation in.
    pub session_file: Option<String>,
    /// The name that a person gave the conversation in Pi.
    pub session_name: Option<String>,
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
