//! Voice clients: programs that listen and speak for a session, and run tools in it.
//!
//! Parameters and data of `voice_connect`, `voice_start` and `voice_state`, and the events for voice clients and
//! followers. `voice_tool_call` is next to the other tool calls.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// State of a voice client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum VoiceState {
    /// Owns no session.
    Idle,
    /// Opens its connection.
    Connecting,
    /// Listens to the user.
    Listening,
    /// Waits for its model.
    Thinking,
    /// Speaks.
    Speaking,
    /// Runs a tool.
    ToolRunning,
}

impl VoiceState {
    /// All states, in the order of a conversation.
    pub const ALL: [Self; 6] = [
        Self::Idle,
        Self::Connecting,
        Self::Listening,
        Self::Thinking,
        Self::Speaking,
        Self::ToolRunning,
    ];

    /// Returns the name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Listening => "listening",
            Self::Thinking => "thinking",
            Self::Speaking => "speaking",
            Self::ToolRunning => "toolRunning",
        }
    }

    /// Returns the state with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// Default type of a voice client: the macOS app. The app gives up every request after 10 s.
pub const LOCAL_APP: &str = "local-app";

/// `voice_connect` parameters. Every field takes any JSON value, as upstream takes it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VoiceConnectParams {
    /// Version of the client. Ignored.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub client_version: Value,
    /// Type of the client: `local-app` if absent. Others are `remote-web` and `remote-ios`.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub client_type: Value,
    /// Any truthy value: other clients of this type are no longer voice clients.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<bool>")]
    pub takeover: Value,
    /// Ignored.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub workspace_path: Value,
}

/// `voice_connect` data: the session that the client is bound to, or nulls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceConnectData {
    /// Always true.
    pub connected: bool,
    /// Opaque id.
    pub session_id: Option<SessionId>,
    /// Display name.
    pub session_name: Option<String>,
    /// Absolute path.
    pub workspace_path: Option<String>,
}

/// `voice_start` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VoiceStartParams {
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
}

/// `voice_start` data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceStartData {
    /// Whether a voice client was asked to start.
    pub started: bool,
    /// Reason if not: `voice_already_active` or `voice_not_connected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// State of the session's owner, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<VoiceState>,
    /// The session, if a client was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// `voice_state` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VoiceStateParams {
    /// New state of the client.
    // Accepts any JSON value, so that a wrong value gets its own error text.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "VoiceState")]
    pub state: Value,
    /// Session reference; the session that the client is bound to if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
}

/// Data of `voice_session_changed`: another session is the active one.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceSessionChanged<'a> {
    /// `voice_session_changed`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The session.
    pub session_id: &'a SessionId,
    /// Name of the session.
    pub session_name: &'a str,
    /// Absolute path of the session's workspace.
    pub workspace_path: &'a str,
}

/// Data of `voice_start`: a request to start listening.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceStartEvent<'a> {
    /// `voice_start`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The session.
    pub session_id: &'a SessionId,
}

/// Data of `voice_stop`: a request to end the conversation.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceStopEvent<'a> {
    /// `voice_stop`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `cli_exit` or `session_deleted`.
    pub reason: &'static str,
    /// The session.
    pub session_id: &'a SessionId,
}

/// Data of `voice_say`: a prompt that the user sent to the session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VoiceSayEvent<'a> {
    /// The prompt.
    #[schemars(with = "String")]
    pub text: &'a Value,
}

/// Data of the `extension_ui_request` that sends the state of the session's voice client to followers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VoiceStatus {
    /// `extension_ui_request`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Clients must not answer this id.
    pub id: String,
    /// `setStatus`.
    pub method: &'static str,
    /// `voice:` and the name of a [`VoiceState`].
    pub message: String,
}

/// Data of `message_start` for a prompt to a session whose voice client will answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SaidMessageStart<'a> {
    /// `message_start`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The prompt.
    pub message: SaidMessage<'a>,
}

/// The message in [`SaidMessageStart`].
#[derive(Debug, Serialize, JsonSchema)]
pub struct SaidMessage<'a> {
    /// `user`.
    pub role: &'static str,
    /// The prompt.
    #[schemars(with = "String")]
    pub content: &'a Value,
    /// ISO 8601, UTC, with milliseconds as upstream writes it here.
    pub timestamp: String,
}
