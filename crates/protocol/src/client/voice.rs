//! Voice clients: programs that listen and speak for a session, and run tools in it. The parameters and
//! answers of `voice_connect`, `voice_start` and `voice_state`, and what voice clients and followers are
//! told. Those of `voice_tool_call` stand with the other tool calls.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a voice client is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum VoiceState {
    /// Nothing: it owns no session.
    Idle,
    /// It sets its connection up.
    Connecting,
    /// It listens.
    Listening,
    /// Its model thinks.
    Thinking,
    /// It speaks.
    Speaking,
    /// It runs a tool.
    ToolRunning,
}

impl VoiceState {
    /// All of them, in the order of a conversation.
    pub const ALL: [Self; 6] = [
        Self::Idle,
        Self::Connecting,
        Self::Listening,
        Self::Thinking,
        Self::Speaking,
        Self::ToolRunning,
    ];

    /// Its name on the wire.
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

    /// The state of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// The type of a voice client that names none, which is the macOS app. It gives every request up after
/// 10 s.
pub const LOCAL_APP: &str = "local-app";

/// `voice_connect` parameters. Every field takes any JSON value, as upstream takes it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VoiceConnectParams {
    /// The client's own version. Nothing is done with it.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub client_version: Value,
    /// What kind of client it is: `local-app` if absent; others are `remote-web` and `remote-ios`.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub client_type: Value,
    /// Any truthy value: other clients of this type are voice clients no more.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<bool>")]
    pub takeover: Value,
    /// Nothing is done with it.
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
    /// Whether a voice client was asked to begin.
    pub started: bool,
    /// Why not: `voice_already_active` or `voice_not_connected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the session's owner is doing, if it has one.
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
    /// What the client does now.
    // Any JSON value is read, so that a wrong one gets a text of its own.
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
    /// Its name.
    pub session_name: &'a str,
    /// Its workspace.
    pub workspace_path: &'a str,
}

/// Data of `voice_start`: begin to listen.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceStartEvent<'a> {
    /// `voice_start`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The session.
    pub session_id: &'a SessionId,
}

/// Data of `voice_stop`: end the conversation.
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

/// Data of `voice_say`: what a person wrote to the session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VoiceSayEvent<'a> {
    /// The text.
    #[schemars(with = "String")]
    pub text: &'a Value,
}

/// Data of `extension_ui_request` with which followers are told what the session's voice client is doing.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VoiceStatus {
    /// `extension_ui_request`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Not to be answered.
    pub id: String,
    /// `setStatus`.
    pub method: &'static str,
    /// `voice:` and the name of a [`VoiceState`].
    pub message: String,
}

/// Data of `message_start` for what a person wrote to a session whose voice client will answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SaidMessageStart<'a> {
    /// `message_start`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What was written.
    pub message: SaidMessage<'a>,
}

/// The message in [`SaidMessageStart`].
#[derive(Debug, Serialize, JsonSchema)]
pub struct SaidMessage<'a> {
    /// `user`.
    pub role: &'static str,
    /// The text.
    #[schemars(with = "String")]
    pub content: &'a Value,
    /// ISO 8601, UTC, with milliseconds as upstream writes it here.
    pub timestamp: String,
}
