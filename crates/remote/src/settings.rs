//! Settings of remote control, and the status for `GET /status`.

use crate::gate::TokenHash;
use crate::host_header;
use quackd_protocol::client::RemoteStatus;
use secrecy::SecretString;
use std::path::PathBuf;

/// Address, token and certificate of remote control.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address or host name; `0.0.0.0` or `::` for all addresses.
    pub host: String,
    /// Port; 0 for any free port.
    pub port: u16,
    /// Paths of the certificate; `None` for plain HTTP.
    pub tls: Option<TlsPaths>,
    /// Hash of the token that clients must send.
    pub token: TokenHash,
    /// The verified token in plain text, if known. Avoids the slow check.
    pub plain_token: Option<SecretString>,
    /// Time when the token was set. For display only.
    pub token_updated_at: Option<String>,
    /// Directory of the history files.
    pub histories: PathBuf,
}

/// Paths of the two PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPaths {
    /// Certificate chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Private key of the server's certificate.
    pub key: PathBuf,
}

impl Settings {
    /// Returns true if address and certificate paths are equal.
    pub(crate) fn is_same_listener(&self, other: &Self) -> bool {
        self.is_same_address(other) && self.tls == other.tls
    }

    /// Returns true if the configured host and port are equal.
    pub(crate) fn is_same_address(&self, other: &Self) -> bool {
        self.host == other.host && self.port == other.port
    }

    /// Returns the status while listening on `port`, for a client that dialed `seen`.
    pub(crate) fn status(
        &self,
        port: u16,
        connected: usize,
        seen: Option<&host_header::DialedHost>,
    ) -> RemoteStatus {
        let urls = host_header::Urls::of(&self.host, port, self.tls.is_some(), seen);

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
            // `GET /health` needs no token, so it must not reveal that the token is weak.
            token_is_short: false,
        }
    }
}

/// Returns the HTTP and WebSocket URLs of a listener on this host and port.
#[must_use]
pub fn urls(host: &str, port: u16, has_tls: bool) -> (String, String) {
    let urls = host_header::Urls::of(host, port, has_tls, None);
    (urls.http, urls.ws)
}
