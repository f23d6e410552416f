//! Requests of remote clients to the daemon, and the failure of its settings.

use crate::{Page, TlsError};
use bytes::Bytes;
use secrecy::SecretString;
use std::io;
use tokio::io::DuplexStream;
use tokio::sync::oneshot;

/// Request of a remote client to the daemon.
#[derive(Debug)]
pub enum Ask {
    /// One request of `POST /rpc` with one reply.
    Rpc {
        /// JSON text of the request.
        body: Bytes,
        /// Value of `X-Rubber-Duck-Client-Id`.
        client: Option<String>,
        /// The page whose token the client sent; `None` for the token of remote control.
        page: Option<Page>,
        /// Channel for the reply. Closed if the client disconnected.
        answer: oneshot::Sender<RpcAnswer>,
    },
    /// A new WebSocket client, as a stream of lines.
    WebSocket {
        /// Lines from and to the client, as on the socket.
        lines: DuplexStream,
        /// URL that the client dialed.
        url: String,
        /// The page whose token the client sent; `None` for the token of remote control.
        page: Option<Page>,
    },
    /// A page wants a token for its code.
    Code {
        /// The code, from anyone.
        code: String,
        /// Name of the browser: printable ASCII of a bounded length.
        agent: String,
        /// Channel for the answer. Closed if the client disconnected.
        answer: oneshot::Sender<CodeAnswer>,
    },
    /// A page gives its token up.
    SignOut {
        /// The page.
        page: Page,
        /// Channel for the error of a token that is still valid. Closed if the client disconnected.
        answer: oneshot::Sender<Result<(), String>>,
    },
}

/// The daemon's answer to [`Ask::Code`].
#[derive(Debug)]
pub enum CodeAnswer {
    /// The code was right, and is used up.
    Token {
        /// The new token.
        token: SecretString,
        /// The page that has the token.
        page: Page,
    },
    /// The code is wrong, used or expired.
    Wrong,
    /// The code was right, and the token could not be saved. The text is the reason.
    NotSaved(String),
}

/// The daemon's answer to [`Ask::Rpc`].
#[derive(Debug)]
pub enum RpcAnswer {
    /// The reply as one line of JSON.
    Reply(Bytes),
    /// No remote client has this id.
    UnknownClient,
}

/// The settings could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The certificate or its key is not usable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Binding the address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Host and port.
        address: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// Starting the thread failed.
    #[error("cannot start the thread of remote control: {0}")]
    Thread(#[from] io::Error),
    /// The daemon is shutting down.
    #[error("the daemon is shutting down")]
    Ended,
}
