//! Remote control: `remote_status`, `remote_configure`, the data of `GET /status`, and the codes and tokens of the page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of remote control, in upstream's order of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteStatus {
    /// Whether remote control is switched on.
    pub enabled: bool,
    /// Whether the listener runs.
    pub listening: bool,
    /// The configured host.
    pub host: String,
    /// The real port while it listens, otherwise the configured one.
    pub port: u16,
    /// `http` or `https`.
    pub protocol: String,
    /// Whether `protocol` is `https`.
    pub tls_enabled: bool,
    /// URL for clients. Null while the listener does not run.
    pub http_url: Option<String>,
    /// URL of the WebSocket. Null while the listener does not run.
    pub ws_url: Option<String>,
    /// Whether a usable token is configured.
    pub token_configured: bool,
    /// When the token was set, ISO 8601 UTC.
    pub token_updated_at: Option<String>,
    /// Reason why the listener does not run although remote control is enabled.
    pub last_error: Option<String>,
    /// Clients with an open WebSocket.
    pub connected_clients: usize,
    /// Whether the token has fewer characters than a new one must have: an earlier version accepted it. Absent
    /// otherwise, and while the daemon knows only the hash of the token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub token_is_short: bool,
}

/// `remote_status` parameters.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteStatusParams {
    /// Include the token in the reply. Only for clients of the socket, and only if the daemon knows the token in plain
    /// text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_token: bool,
}

/// `remote_configure` parameters. An absent parameter keeps the current setting.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteConfigureParams {
    /// Whether to switch remote control on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The address to listen on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port; 0 for any free port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A PEM file; an empty text for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert_path: Option<String>,
    /// A PEM file; an empty text for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key_path: Option<String>,
    /// A token that the user chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<String>,
    /// True: generate a new token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_token: Option<bool>,
    /// Include the token in the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_token: Option<bool>,
}

/// `remote_status` and `remote_configure` data. The `Debug` output contains no token.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteData {
    /// The state after the change.
    pub status: RemoteStatus,
    /// The token, if it was requested and is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<String>,
}

impl std::fmt::Debug for RemoteData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let auth_token = self.auth_token.as_ref().map(|_hidden| "hidden");
        f.debug_struct("RemoteData")
            .field("status", &self.status)
            .field("auth_token", &auth_token)
            .finish()
    }
}

/// Rights of a page token beyond those that every remote client has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PageRights {
    /// Watch and answer questions about permissions, for one operation or for the session. Take back grants
    /// that allow something.
    pub approvals: bool,
    /// Change files: `apply`, `undo`, `discard` and `restore` of `quack.isolated`. The first two write files of the
    /// workspace, the others those of the private copy. Delete sessions with changes that are not applied.
    pub apply: bool,
    /// Use terminals, and not only look at them.
    pub terminals: bool,
}

/// `quack.page_code` parameters. An absent right is not given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PageCodeParams {
    /// Rights of the token that the page gets for the code.
    #[serde(flatten)]
    pub rights: PageRights,
    /// Host name under which the browser reaches the page, without a port. Not needed for an IP address, `localhost` or
    /// the configured host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// `quack.page_code` data. The `Debug` output contains no code.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageCodeData {
    /// The code. `POST /token` accepts it once.
    pub code: String,
    /// Time until the code expires, in milliseconds.
    pub valid_ms: u64,
    /// The state of remote control, which serves the page.
    pub status: RemoteStatus,
}

impl std::fmt::Debug for PageCodeData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCodeData").field("valid_ms", &self.valid_ms).finish_non_exhaustive()
    }
}

/// `quack.page_tokens` parameters. Without any, the tokens are only listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PageTokensParams {
    /// Id of a token to revoke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoke: Option<String>,
    /// True: revoke all tokens and the codes that are not used yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
}

/// `quack.page_tokens` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageTokensData {
    /// The tokens, or the revoked ones after a revocation. The oldest is first.
    pub tokens: Vec<PageTokenInfo>,
}

/// A page token, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageTokenInfo {
    /// Id for a revocation.
    pub id: String,
    /// When the page got the token, ISO 8601 UTC.
    pub created: String,
    /// When a page last connected with the token, ISO 8601 UTC. May be up to an hour older after a restart of the daemon.
    pub last_used: String,
    /// Rights of the token.
    pub rights: PageRights,
    /// Name that the browser gives itself. Empty if unknown.
    pub agent: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_has_this_exact_shape() {
        let status = RemoteStatus {
            host: "127.0.0.1".into(),
            protocol: "http".into(),
            ..Default::default()
        };
        let data = RemoteData { status, auth_token: Some("hush".into()) };
        assert_eq!(
            serde_json::to_string(&data).unwrap(),
            concat!(
                r#"{"status":{"enabled":false,"listening":false,"host":"127.0.0.1","port":0,"protocol":"http","#,
                r#""tlsEnabled":false,"httpUrl":null,"wsUrl":null,"tokenConfigured":false,"tokenUpdatedAt":null,"#,
                r#""lastError":null,"connectedClients":0},"authToken":"hush"}"#
            )
        );
        assert!(!format!("{data:?}").contains("hush"));
        assert_eq!(serde_json::to_string(&RemoteConfigureParams::default()).unwrap(), "{}");
    }
}
