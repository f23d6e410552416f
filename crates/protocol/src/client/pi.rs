//! Talking to a session's Pi: `say`, `extension_ui_response`, and what is told of it elsewhere.

use super::LifeInfo;
use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `say` parameters. Every field takes any JSON value, as upstream does.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SayParams {
    /// What a person says.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub message: Value,
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// Truthy: it is for Pi, also when a voice client owns the session.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<bool>")]
    pub prefer_pi: Value,
}

/// `say` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SayData {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Number of the session's last event when Pi accepted it: the events of its turn have higher ones. Absent if it
    /// was for a voice client, or refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seq: Option<u64>,
}

/// `extension_ui_response` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiResponseParams {
    /// Id of the `extension_ui_request`.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub id: Value,
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// What was chosen or typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub value: Option<Value>,
    /// Yes or no.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<bool>")]
    pub confirmed: Option<Value>,
    /// Neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<bool>")]
    pub cancelled: Option<Value>,
}

/// `extension_ui_response` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UiResponseData {
    /// The session.
    pub session_id: SessionId,
}

/// A session's Pi in `quack.ps`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PiInfo {
    /// `absent starting ready draining backoff failed`.
    pub state: String,
    /// A turn is under way, or somebody waits.
    pub busy: bool,
    /// Process id of Pi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process id of the worker that talks to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_pid: Option<u32>,
    /// Process id of the monitor above both, the supervisor's direct child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_pid: Option<u32>,
    /// When this process was started, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Deaths since the daemon started.
    pub restarts: u32,
    /// Why the last one ended, if it did not end well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_death: Option<String>,
    /// Resident memory of Pi itself in KiB, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// Where its worker is in its life.
    pub life: LifeInfo,
    /// Why it lives, or does not, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}
