//! Connects to remote control of a daemon, usually on another machine: its WebSocket as a stream of lines. Used by
//! `quack attach --remote`.

use crate::Key;
use crate::endpoint::{Connection, is_local};
use crate::http::client;
use futures_util::{SinkExt as _, StreamExt as _};
use quackd_protocol::limits::{MAX_LINE_BYTES, REMOTE_SILENCE};
use reqwest::StatusCode;
use reqwest::header::{
    AUTHORIZATION, CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use url::Url;

/// Timeout of connecting, with the check of the token, which takes some time after the start of a daemon.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Buffer of the stream of lines, in bytes per direction.
const PIPE_BYTES: usize = 64 * 1024;

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum RemoteControlError {
    /// The address is not that of a daemon.
    #[error("an address of remote control is http://HOST:PORT or https://HOST:PORT")]
    Address,
    /// The server refuses the token.
    #[error("the token is wrong; `quack remote token` prints it on that machine")]
    Token,
    /// The server refuses every token for now.
    #[error("too many wrong tokens came from this machine; try again in a minute")]
    Blocked,
    /// The server is not remote control.
    #[error("the server answered with status {0}, and not like remote control of quackd")]
    NotRemoteControl(u16),
    /// No connection, or no trusted one.
    #[error("cannot connect to remote control")]
    NotConnected(#[from] reqwest::Error),
    /// The server does not answer.
    #[error("remote control did not answer within {CONNECT_LIMIT:?}")]
    Late,
}

/// Address of remote control: scheme, host and port.
#[derive(Debug, Clone)]
pub struct RemoteAddress(Url);

impl fmt::Display for RemoteAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl RemoteAddress {
    /// Parses `http://HOST:PORT` or `https://HOST:PORT`.
    ///
    /// # Errors
    /// [`RemoteControlError::Address`] for anything else, also for an address with a path or a password.
    pub fn parse(text: &str) -> Result<Self, RemoteControlError> {
        let url = Url::parse(text.trim()).map_err(|_error| RemoteControlError::Address)?;
        let is_web = matches!(url.scheme(), "http" | "https");
        let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let has_user = !url.username().is_empty() || url.password().is_some();
        if is_web && is_bare && !has_user {
            Ok(Self(url))
        } else {
            Err(RemoteControlError::Address)
        }
    }

    /// Whether others on the network could read the token.
    #[must_use]
    pub fn is_in_the_clear(&self) -> bool {
        self.0.scheme() != "https" && !is_local(&self.0)
    }

    /// Connects, within 20 s. Each line of the returned stream is a message. It ends with the connection, which the server
    /// must use at least every 80 s. The certificate of an `https` server is checked with those of this machine.
    ///
    /// # Errors
    /// [`RemoteControlError`].
    pub async fn connect(&self, token: &Key) -> Result<DuplexStream, RemoteControlError> {
        let opened = timeout(CONNECT_LIMIT, self.open(token)).await;
        opened.map_err(|_elapsed| RemoteControlError::Late)?
    }

    async fn open(&self, token: &Key) -> Result<DuplexStream, RemoteControlError> {
        let Self(address) = self;
        let is_encrypted = address.scheme() == "https";
        let client = client(Connection { is_local: is_local(address), is_encrypted })?;
        let mut url = address.clone();
        url.set_path("/ws");
        let bearer = token.bearer().ok_or(RemoteControlError::Token)?;
        let key = generate_key();

        let request = client
            .get(url)
            .header(AUTHORIZATION, bearer)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, key.as_str());
        let response = request.send().await?;
        let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        let is_accepted = accept == Some(derive_accept_key(key.as_bytes()).as_bytes());
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS if is_accepted => {}
            StatusCode::UNAUTHORIZED => return Err(RemoteControlError::Token),
            StatusCode::TOO_MANY_REQUESTS => return Err(RemoteControlError::Blocked),
            status => return Err(RemoteControlError::NotRemoteControl(status.as_u16())),
        }

        let upgraded = response.upgrade().await?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_LINE_BYTES))
            .max_frame_size(Some(MAX_LINE_BYTES));
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await;
        let (ours, lines) = tokio::io::duplex(PIPE_BYTES);
        tokio::spawn(bridge(socket, ours));
        Ok(lines)
    }
}

/// Passes lines on as messages and messages as lines, until one side ends.
async fn bridge(socket: WebSocketStream<reqwest::Upgraded>, pipe: DuplexStream) {
    let (mut sink, mut stream) = socket.split();
    let (from_client, mut to_client) = tokio::io::split(pipe);

    let outgoing = async {
        let mut lines = BufReader::new(from_client).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            if sink.send(Message::binary(line)).await.is_err() {
                break;
            }
        }
        sink.close().await.ok();
    };
    let incoming = async {
        // Reading also answers pings.
        while let Ok(Some(Ok(message))) = timeout(REMOTE_SILENCE, stream.next()).await {
            let line: &[u8] = match &message {
                Message::Text(text) => text.as_str().as_bytes(),
                Message::Binary(bytes) => bytes.as_ref(),
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            };
            let written = async {
                to_client.write_all(line).await?;
                to_client.write_all(b"\n").await
            };
            if written.await.is_err() {
                break;
            }
        }
    };

    tokio::select! {
        () = outgoing => {}
        () = incoming => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_a_port() {
        for (text, shown, is_in_the_clear) in [
            ("http://127.0.0.1:43111", "http://127.0.0.1:43111", false),
            ("http://localhost:1/", "http://localhost:1", false),
            (" http://192.168.1.20:43111 ", "http://192.168.1.20:43111", true),
            ("https://mac.tail1234.ts.net", "https://mac.tail1234.ts.net", false),
            ("https://[::1]:8", "https://[::1]:8", false),
        ] {
            let address = RemoteAddress::parse(text).unwrap();
            assert_eq!(
                (address.to_string().as_str(), address.is_in_the_clear()),
                (shown, is_in_the_clear)
            );
        }
        for bad in [
            "",
            "127.0.0.1:43111",
            "ws://a:1",
            "ftp://a",
            "http://",
            "http://u@a",
            "https://u:p@a",
            "http://a/ws",
            "http://a?x",
            "http://a#x",
        ] {
            assert!(RemoteAddress::parse(bad).is_err(), "{bad:?}");
        }
    }
}
