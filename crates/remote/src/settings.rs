//! What the supervisor configures, and the state that `GET /status` shows of it.

use crate::advertise;
use crate::gate::TokenHash;
use quackd_protocol::client::RemoteStatus;
use secrecy::SecretString;
use std::path::PathBuf;

/// Where to listen, and who may come in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// An address or a name; `0.0.0.0` or `::` for all of this machine's.
    pub host: String,
    /// The port; 0 for one that is free.
    pub port: u16,
    /// The certificate; `None` for plain HTTP.
    pub tls: Option<TlsPaths>,
    /// What the token is checked against.
    pub token: TokenHash,
    /// The token itself, if it is known and has been checked. Saves everybody the slow check.
    pub plain_token: Option<SecretString>,
    /// When the token was set; for display.
    pub token_updated_at: Option<String>,
    /// Where the history files are.
    pub histories: PathBuf,
}

/// Two PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPaths {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Settings {
    /// The same place, reached in the same way.
    pub(crate) fn is_same_door(&self, other: &Self) -> bool {
        self.is_same_address(other) && self.tls == other.tls
    }

    /// The same socket address, as far as it was configured.
    pub(crate) fn is_same_address(&self, other: &Self) -> bool {
        self.host == other.host && self.port == other.port
    }

    /// The state while it listens on `port`, for a client that named `host`.
    pub(crate) fn status(
        &self,
        port: u16,
        connected: usize,
        seen: Option<&advertise::Seen>,
    ) -> RemoteStatus {
        let urls = advertise::Urls::of(&self.host, port, self.tls.is_some(), seen);
        RemoteStatus {
            enabled: true,
            listening: true,
            host: self.host.clone(),
            port,
            protocol: if self.tls.is_some() { "https" } else { "http" }.to_owned(),
            tls_enabled: self.tls.is_some(),
            http_url: Some(urls.http),
            ws_url: Some(urls.ws),
            token_configured: true,
            token_updated_at: self.token_updated_at.clone(),
            last_error: None,
            connected_clients: connected,
            // `GET /health` needs no token, so it must not reveal a weak one.
            token_is_short: false,
        }
    }
}

/// Where clients find a door on this host and port: the URLs of HTTP and of the WebSocket.
#[must_use]
pub fn urls(host: &str, port: u16, has_tls: bool) -> (String, String) {
    let urls = advertise::Urls::of(host, port, has_tls, None);
    (urls.http, urls.ws)
}
