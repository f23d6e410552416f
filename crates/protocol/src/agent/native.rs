//! Frames that only quackd's own agent has: the start, requests to models and tool calls.

use super::{AgentAnswer, AgentExit};
use crate::agent_options::{AgentOptions, AgentSettings};
use crate::instructions::InstructionFile;
use crate::model::{ModelInfo, ModelRequest, ThinkingLevel};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Tags of [`FromNative`].
pub const FROM_NATIVE_TAGS: &[&str] = &[
    "hello",
    "cannot_start",
    "answer",
    "event",
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

/// Agent worker to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromNative {
    /// The agent runs.
    Hello {
        /// [`super::AGENT_FRAME_PROTOCOL`] of the worker.
        proto: u32,
        /// Process id of the worker. For display only.
        pid: u32,
        /// The same, because the worker is the agent.
        pi_pid: u32,
    },
    /// The agent cannot be started, and another attempt cannot help.
    CannotStart {
        /// Reason, one line.
        reason: String,
    },
    /// The agent answered a command.
    Answer(AgentAnswer),
    /// An event.
    Event {
        /// Name of the event.
        name: EventName,
        /// The whole object, on one line, at most [`crate::limits::MAX_AGENT_EVENT_BYTES`].
        data: Box<RawValue>,
    },
    /// The agent exits. Last frame.
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
    /// Send a request to a model. Answered by [`super::ToAgent::Model`] with the same number.
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
    /// Call a tool of the session. Answered by exactly one [`super::ToAgent::ToolDone`].
    CallTool(Box<AgentToolCall>),
    /// Stop a call. It is still answered.
    CancelTool {
        /// Number of the call.
        number: u64,
    },
    /// A request to a model has cost this, in US dollars.
    Spent(f64),
}

macro_rules! event_names {
    ($($variant:ident = $name:literal,)+) => {
        /// Name of an event. The agent asks no questions: an event that looks like one would deceive the user.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum EventName {
            $(
                #[doc = concat!("`", $name, "`")]
                #[serde(rename = $name)]
                $variant,
            )+
        }

        impl EventName {
            /// Returns the name for clients.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

event_names! {
    AgentEnd = "agent_end",
    AgentSettled = "agent_settled",
    AgentStart = "agent_start",
    AutoCompactionEnd = "auto_compaction_end",
    AutoCompactionStart = "auto_compaction_start",
    AutoRetryEnd = "auto_retry_end",
    AutoRetryStart = "auto_retry_start",
    ExtensionError = "extension_error",
    MessageEnd = "message_end",
    MessageStart = "message_start",
    MessageUpdate = "message_update",
    QueueUpdate = "queue_update",
    SessionInfoChanged = "session_info_changed",
    ThinkingLevelChanged = "thinking_level_changed",
    ToolExecutionEnd = "tool_execution_end",
    ToolExecutionStart = "tool_execution_start",
    TurnEnd = "turn_end",
    TurnStart = "turn_start",
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
    /// [`super::AGENT_FRAME_PROTOCOL`] of the supervisor.
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
