//! Remote control: `remote_status` and `remote_configure`, and what `GET /status` shows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of remote control, in upstream's order of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteStatus {
    /// Whether it is wanted.
    pub enabled: bool,
    /// Whether it is there.
    pub listening: bool,
    /// The configured host.
    pub host: String,
    /// The real port while it listens, otherwise the configured one.
    pub port: u16,
    /// `http` or `https`.
    pub protocol: String,
    /// Whether `protocol` is `https`.
    pub tls_enabled: bool,
    /// Where clients find it; `null` while it does not listen.
    pub http_url: Option<String>,
    /// The same for the WebSocket.
    pub ws_url: Option<String>,
    /// Whether there is a token that could be right.
    pub token_configured: bool,
    /// When the token was set, ISO 8601 UTC.
    pub token_updated_at: Option<String>,
    /// Why it does not listen although it is enabled.
    pub last_error: Option<String>,
    /// Clients with an open WebSocket.
    pub connected_clients: usize,
    /// The token has fewer characters than a new one must have: it was set by an earlier version. Absent
    /// otherwise, and while the daemon has seen only its hash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub token_is_short: bool,
}

/// `remote_status` parameters.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteStatusParams {
    /// Tell the token too. For clients of the socket only, and only if it is known in the clear.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_token: bool,
}

/// `remote_configure` parameters. What is absent stays as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteConfigureParams {
    /// Whether remote control is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The address to listen on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port; 0 for one that is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A PEM file; an empty text for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert_path: Option<String>,
    /// A PEM file; an empty text for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key_path: Option<String>,
    /// A token that was chosen by a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<String>,
    /// Make a new token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_token: Option<bool>,
    /// Tell the token in the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_token: Option<bool>,
}

/// `remote_status` and `remote_configure` data. Its `Debug` shows no token.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteData {
    /// The state, after the change.
    pub status: RemoteStatus,
    /// The token, if it was asked for and is known.
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
