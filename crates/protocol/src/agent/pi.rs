//! Frames that only the Pi worker has: the start of Pi, its dialogs and its end.

use super::{AgentAnswer, AgentExit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Tags of [`FromPi`].
pub const FROM_PI_TAGS: &[&str] = &[
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

/// Pi worker to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromPi {
    /// Pi runs.
    Hello {
        /// [`super::AGENT_FRAME_PROTOCOL`] of the worker.
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
    Answer(AgentAnswer),
    /// An event of Pi.
    Event {
        /// The event's `type`, as clients know it.
        name: String,
        /// The whole object, on one line, at most [`crate::limits::MAX_AGENT_EVENT_BYTES`].
        data: Box<RawValue>,
    },
    /// Pi waits for the user's answer to a question.
    Dialog {
        /// Pi's id of the question.
        id: String,
        /// Timeout of the question, in milliseconds from now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// The whole `extension_ui_request`, as in [`FromPi::Event`].
        data: Box<RawValue>,
    },
    /// Pi accepts no more commands, but still runs.
    StdinFailed {
        /// Reason, one line.
        reason: String,
    },
    /// Pi has exited, and the worker exits too. Last frame.
    Ended(AgentExit),
    /// Answer to [`super::ToAgent::Ping`].
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

/// The first frame. The only frame that contains the user's keys: Pi itself sends requests to model providers.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiStart {
    /// [`super::AGENT_FRAME_PROTOCOL`] of the supervisor.
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
    /// Whether `env` names a package in which Pi has no project settings.
    #[serde(default)]
    pub is_masked: bool,
    /// Start nothing. Ask the program for its version, and check whether it could be started. Answered by
    /// [`FromPi::Version`] or [`FromPi::CannotStart`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ToAgent;

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
            is_masked: false,
            only_version: false,
            project_settings: None,
            env: vec![("OPENAI_API_KEY".into(), "sk-secret".into())],
            cgroup: None,
            processes: 1,
        };
        let shown = format!("{:?}", ToAgent::Start(Box::new(start)));
        assert!(!shown.contains("sk-secret"), "{shown}");
    }
}
