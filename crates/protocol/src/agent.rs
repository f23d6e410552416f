//! Frames between the supervisor and the agent of one session, with lengths as in [`crate::worker`].
//!
//! An agent is one of two processes. The Pi worker runs the user's Pi and speaks its line protocol, in any of its
//! dialects. The agent worker is an agent itself: it has neither keys nor a network, so it sends requests to models,
//! and tool calls, to the supervisor. Both have the same commands and events: those that clients know, without repeated
//! whole messages.
//!
//! Order: the supervisor writes [`ToAgent::Start`] or [`ToAgent::StartAgent`] first. The worker answers
//! [`FromAgent::Hello`] before anything else.

use crate::agent_options::AgentOptions;
pub use crate::agent_options::AgentSettings;
use crate::instructions::InstructionFile;
use crate::model::{ModelInfo, ModelPart, ModelRequest, ThinkingLevel};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

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

/// Tags of [`FromAgent`].
pub const FROM_AGENT_TAGS: &[&str] = &[
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
    "model_request",
    "model_taken",
    "model_cancel",
    "call_tool",
    "cancel_tool",
    "spent",
];

/// Supervisor to Pi worker or agent worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// Settings for the worker. First frame; answered by [`FromAgent::Hello`] or [`FromAgent::CannotStart`].
    Start(Box<PiStart>),
    /// Instead of [`ToAgent::Start`]: settings for the agent worker. Its session file comes with the frame.
    StartAgent(Box<NativeStart>),
    /// A command for the agent. When it answers, the worker sends [`FromAgent::Answer`] with the same number. A second
    /// answer may follow. There is none if the agent does not answer.
    Command {
        /// Counts up from 1 for each worker.
        number: u64,
        /// The command.
        command: AgentCommand,
    },
    /// The user's answer to a [`FromAgent::Dialog`]. Pi does not answer it.
    UiAnswer(UiAnswer),
    /// Liveness probe of the worker, not of a Pi below it. Answered by [`FromAgent::Pong`].
    Ping {
        /// Counts up from 1 for each worker.
        seq: u64,
    },
    /// Close the stdin of Pi, so that Pi exits, then exit. A Pi that keeps running is terminated, then killed. The
    /// agent worker aborts its turn and exits.
    Shutdown {},
    /// A part of the answer to a [`FromAgent::ModelRequest`].
    Model {
        /// Number of the request.
        number: u64,
        /// The part.
        part: ModelPart,
    },
    /// The models have changed.
    Models(AgentModels),
    /// Result of a [`FromAgent::CallTool`].
    ToolDone(Box<AgentToolDone>),
}

/// The models that an agent may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentModels {
    /// Models with a key or a server without one, at most [`crate::model::MAX_MODELS`].
    pub models: Vec<ModelInfo>,
    /// The model of new sessions.
    pub default: ModelInfo,
    /// Thinking level of the model.
    pub thinking: ThinkingLevel,
}

/// First frame of the agent worker. Contains no key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NativeStart {
    /// [`AGENT_FRAME_PROTOCOL`] of the supervisor.
    pub proto: u32,
    /// The session.
    pub session: String,
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Absolute path of the session file, which comes with the frame: open for reading and appending, and locked.
    pub session_file: String,
    /// The models.
    pub models: AgentModels,
    /// Whether the user has chosen the model for this session, so that it replaces the one in the session file.
    #[serde(default)]
    pub is_model_chosen: bool,
    /// Settings of turns.
    pub settings: AgentSettings,
    /// Options that a client has set.
    #[serde(default)]
    pub options: AgentOptions,
    /// Whether the session is in safe mode, for the system prompt.
    #[serde(default)]
    pub safe_mode: bool,
    /// The network of commands in a few words, for the system prompt.
    #[serde(default)]
    pub network: String,
    /// Whether the session has MCP servers, whose tools the agent lists at its first prompt.
    #[serde(default)]
    pub has_mcp_servers: bool,
    /// Text for the user about the default model, if it stands in for one that its provider no longer offers.
    #[serde(default)]
    pub model_notice: Option<String>,
}

/// A tool call of the agent worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentToolCall {
    /// Unique within the worker. Counts up from 1.
    pub number: u64,
    /// The session's tool.
    pub tool: String,
    /// Arguments of the call as JSON text.
    pub arguments: String,
    /// Name of the tool as the model called it, for events.
    pub shown_tool: String,
    /// The model's id of the call, for events.
    pub tool_call_id: String,
    /// Directory of the call, relative to the workspace. Empty: the workspace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cwd: String,
}

/// Result of an [`AgentToolCall`].
#[derive(Debug, Serialize, Deserialize)]
pub struct AgentToolDone {
    /// Number of the call.
    pub number: u64,
    /// The text, a JSON string.
    pub text: Box<RawValue>,
    /// How to go on after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Structured result of tools that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// Whether the tool failed, or its command exited with another code than 0.
    pub is_error: bool,
    /// Exit code of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that killed a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the call was cancelled.
    #[serde(default)]
    pub aborted: bool,
    /// Whether the text lacks a part of the output.
    #[serde(default)]
    pub truncated: bool,
    /// Path of the file with the whole output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// With the instructions of the workspace: those of the user. `None` if they could not be read in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_instructions: Option<Vec<InstructionFile>>,
}

impl AgentToolDone {
    /// Creates the result of a call that did not run, or whose result is lost.
    #[must_use]
    pub fn failed(number: u64, text: &str) -> Self {
        let text = to_raw_value(&format!("Error: {text}"));
        Self {
            number,
            text: text.unwrap_or_else(|_| RawValue::NULL.to_owned()),
            hint: None,
            data: None,
            is_error: true,
            exit_code: None,
            signal: None,
            aborted: false,
            truncated: false,
            full_output_path: None,
            duration_ms: 0,
            user_instructions: None,
        }
    }
}

/// The first frame. The only frame that contains the user's keys: Pi itself sends requests to model providers.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PiStart {
    /// [`AGENT_FRAME_PROTOCOL`] of the supervisor.
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
    /// [`FromAgent::Version`] or [`FromAgent::CannotStart`].
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

/// Pi worker or agent worker to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// The agent runs.
    Hello {
        /// [`AGENT_FRAME_PROTOCOL`] of the worker.
        proto: u32,
        /// Process id of the worker. For display only.
        pid: u32,
        /// Process id of the agent. For display only.
        pi_pid: u32,
    },
    /// Answer to a [`PiStart`] with `only_version`. Last frame.
    Version {
        /// The version that the program reports.
        version: String,
    },
    /// The agent cannot be started, and another attempt cannot help.
    CannotStart {
        /// Reason, one line.
        reason: String,
    },
    /// The agent answered a command.
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
        /// The whole `extension_ui_request`, as in [`FromAgent::Event`].
        data: Box<RawValue>,
    },
    /// Pi accepts no more commands, but still runs.
    StdinFailed {
        /// Reason, one line.
        reason: String,
    },
    /// The agent has exited, and the worker exits too. Last frame.
    Ended(AgentExit),
    /// Answer to [`ToAgent::Ping`].
    Pong {
        /// Number of the probe.
        seq: u64,
    },
    /// A warning for the log.
    Warning {
        /// Text of the warning.
        text: String,
    },
    /// Send a request to a model. Answered by [`ToAgent::Model`] with the same number.
    ModelRequest(Box<ModelRequest>),
    /// The worker has read one piece of the answer. The supervisor may send one more.
    ModelTaken {
        /// Number of the request.
        number: u64,
    },
    /// The worker needs no more of the answer. No part follows but those already sent.
    ModelCancel {
        /// Number of the request.
        number: u64,
    },
    /// Call a tool of the session. Answered by exactly one [`ToAgent::ToolDone`].
    CallTool(Box<AgentToolCall>),
    /// Stop a call. It is still answered.
    CancelTool {
        /// Number of the call.
        number: u64,
    },
    /// A request to a model has cost this, in US dollars.
    Spent(f64),
}

/// The agent's reply to a command.
#[derive(Debug, Serialize, Deserialize)]
pub struct AgentAnswer {
    /// Number of the command.
    pub number: u64,
    /// Whether the agent reports success.
    pub success: bool,
    /// Error text of a failed command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The result, on one line: of [`AgentCommand::GetState`] at most [`crate::limits::MAX_AGENT_STATE_BYTES`],
    /// otherwise [`crate::limits::MAX_AGENT_ANSWER_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// Exit of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentExit {
    /// Exit code, if the agent exited.
    pub code: Option<i32>,
    /// Signal, if one killed the agent.
    pub signal: Option<i32>,
    /// End of the agent's stderr.
    pub stderr_tail: String,
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
        for tag in FROM_AGENT_TAGS {
            let error = serde_json::from_str::<FromAgent>(&format!("{{\"{tag}\":[{{}}]}}"));
            let error = error.unwrap_err().to_string();
            assert!(!error.contains("unknown variant"), "{error}");
        }
        for tag in TO_AGENT_TAGS {
            let error = serde_json::from_str::<ToAgent>(&format!("{{\"{tag}\":7}}"));
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
