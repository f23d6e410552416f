//! Clients that name themselves, and the sessions that they claim: `quack.hello`, `quack.claim`, and their rows in
//! `quack.ps`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `quack.hello` parameters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HelloParams {
    /// Name and version of the client.
    #[serde(flatten)]
    pub client: ClientName,
    /// Protocol through which the client's own user reaches it, such as `mcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
}

/// Name of a client, as it reported in `quack.hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientName {
    /// 1 to 64 printable characters.
    pub name: String,
    /// At most 64 printable characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A client that named itself, in [`super::PsData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientInfo {
    /// Name and version of the client.
    #[serde(flatten)]
    pub client: ClientName,
    /// Protocol through which the client's own user reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// ISO 8601 UTC.
    pub connected_at: String,
    /// Labels of the claimed sessions.
    pub sessions: Vec<String>,
    /// Tool calls without a reply.
    pub calls_running: usize,
    /// Tool calls since the client named itself.
    pub calls: u64,
}

/// `quack.claim` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimParams {
    /// Directory whose workspace is found or created.
    pub path: String,
    /// Sets the session's safe mode permanently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_mode: Option<bool>,
    /// True: the session's background jobs continue when the client disconnects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_jobs: Option<bool>,
    /// Id of the session that the client had before, which it gets again if it still can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// True: the session works in a private copy of the workspace (`quack.isolated`). A session without one is not reused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
}
