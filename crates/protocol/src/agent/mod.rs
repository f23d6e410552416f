//! Frames between the supervisor and the agent of one session, with lengths as in [`crate::worker`].
//!
//! An agent is one of two processes. The Pi worker runs the user's Pi and speaks its line protocol, in any of its
//! dialects. The agent worker is an agent itself: it has neither keys nor a network, so it sends requests to models,
//! and tool calls, to the supervisor. Both have the same commands and events: those that clients know, without repeated
//! whole messages.
//!
//! Order: the supervisor writes [`ToAgent::Start`] or [`ToAgent::StartAgent`] first. The worker answers
//! its hello before anything else, then sends [`FromNative`] or [`FromPi`].

mod answer;
mod native;
mod pi;

pub use crate::agent_options::AgentSettings;
pub use answer::{AgentAnswer, AgentExit};
pub use native::{
    AgentModels, AgentToolCall, AgentToolDone, EventName, FROM_NATIVE_TAGS, FromNative, NativeStart,
};
pub use pi::{FROM_PI_TAGS, FromPi, PiStart};

use crate::model::ModelPart;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Version of these frames. The supervisor refuses a worker with another number.
pub const AGENT_FRAME_PROTOCOL: u32 = 1;

/// Tags of [`ToAgent`].
pub const TO_AGENT_TAGS: &[&str] = &[
    "start",
    "start_agent",
    "command",
    "ui_answer",
    "ping",
    "shutdown",
    "model",
    "models",
    "tool_done",
];

/// The program that is the agent of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// quackd's own agent.
    Native,
    /// The user's Pi.
    Pi,
}

impl Engine {
    /// Returns the name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Pi => "pi",
        }
    }
}

/// Name of the agent in an error.
impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Native => "The agent",
            Self::Pi => "Pi",
        })
    }
}

/// Supervisor to Pi worker or agent worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// Settings for the worker. First frame; answered by [`FromPi::Hello`] or [`FromPi::CannotStart`].
    Start(Box<PiStart>),
    /// Instead of [`ToAgent::Start`]: settings for the agent worker. Its session file comes with the frame.
    StartAgent(Box<NativeStart>),
    /// A command for the agent. When it answers, the worker sends an answer with the same number. A second answer
    /// may follow. There is none if the agent does not answer.
    Command {
        /// Counts up from 1 for each worker.
        number: u64,
        /// The command.
        command: AgentCommand,
    },
    /// The user's answer to a [`FromPi::Dialog`]. Pi does not answer it.
    UiAnswer(UiAnswer),
    /// Liveness probe of the worker, not of a Pi below it. Answered by a pong.
    Ping {
        /// Counts up from 1 for each worker.
        seq: u64,
    },
    /// Close the stdin of Pi, so that Pi exits, then exit. A Pi that keeps running is terminated, then killed. The
    /// agent worker aborts its turn and exits.
    Shutdown {},
    /// A part of the answer to a [`FromNative::ModelRequest`].
    Model {
        /// Number of the request.
        number: u64,
        /// The part.
        part: ModelPart,
    },
    /// The models have changed.
    Models(AgentModels),
    /// Result of a [`FromNative::CallTool`].
    ToolDone(Box<AgentToolDone>),
}

/// Commands that are sent to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// Report the state.
    GetState,
    /// Start a turn with a prompt.
    Prompt {
        /// The prompt.
        message: String,
        /// Directory of the user, relative to the workspace. Empty: the workspace.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cwd: String,
    },
    /// Stop the turn.
    Abort,
    /// Stop the user's own shell command.
    AbortBash,
    /// Another command of Pi's protocol.
    Other(OtherCommand),
}

/// A command of Pi's protocol that the supervisor passes on without reading it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OtherCommand {
    /// The `type` of the event.
    pub name: String,
    /// The whole object, without `id`, on one line.
    pub body: Box<RawValue>,
}

impl PartialEq for OtherCommand {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.body.get() == other.body.get()
    }
}

impl Eq for OtherCommand {}

impl AgentCommand {
    /// Returns the name in Pi's protocol.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::GetState => "get_state",
            Self::Prompt { .. } => "prompt",
            Self::Abort => "abort",
            Self::AbortBash => "abort_bash",
            Self::Other(other) => &other.name,
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

/// The part of the agent's state that the daemon uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentState {
    /// File in which the agent stores the conversation.
    pub session_file: Option<String>,
    /// Name of the conversation that the user set in the agent.
    pub session_name: Option<String>,
    /// Whether a turn runs.
    pub is_streaming: Option<bool>,
    /// Whether the agent is summarizing the conversation.
    pub is_compacting: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_these_shapes_and_all_tags_are_known() {
        let frame = ToAgent::Command { number: 1, command: AgentCommand::GetState };
        let text = serde_json::to_string(&frame).unwrap();
        assert_eq!(text, r#"{"command":{"number":1,"command":"get_state"}}"#);
        let frame = ToAgent::Command {
            number: 2,
            command: AgentCommand::Prompt { message: "a".into(), cwd: String::new() },
        };
        let text = serde_json::to_string(&frame).unwrap();
        assert_eq!(text, r#"{"command":{"number":2,"command":{"prompt":{"message":"a"}}}}"#);
        fn known<T: serde::de::DeserializeOwned + std::fmt::Debug>(tags: &[&str]) {
            for tag in tags {
                let error = serde_json::from_str::<T>(&format!("{{\"{tag}\":[{{}}]}}"));
                let error = error.unwrap_err().to_string();
                assert!(!error.contains("unknown variant"), "{error}");
            }
        }
        known::<ToAgent>(TO_AGENT_TAGS);
        known::<FromNative>(FROM_NATIVE_TAGS);
        known::<FromPi>(FROM_PI_TAGS);
    }
}
