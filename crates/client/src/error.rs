//! Why a request did not give a result. Made by [`crate::Client`]; the command line turns each variant
//! into an exit code.

use quackd_protocol::limits::MAX_LINE_BYTES;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a request did not give a result, or why there is no connection. One variant per decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens on the socket: a daemon can be started.
    #[error("the daemon is not running (nobody listens on {})", path.display())]
    NotRunning {
        /// The socket's path.
        path: PathBuf,
    },
    /// The socket cannot be reached for another reason.
    #[error("cannot connect to {}", path.display())]
    Connect {
        /// The socket's path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another user answers on the socket. Nothing was sent.
    #[error("{} is served by another user (uid {uid})", path.display())]
    ForeignServer {
        /// The socket's path.
        path: PathBuf,
        /// The other user.
        uid: u32,
    },
    /// The daemon answered `ok:false`; the text is the daemon's.
    #[error("{0}")]
    Refused(String),
    /// No answer came in time. The request may have been carried out.
    #[error("no answer to {method} within {after:?}")]
    Timeout {
        /// The method that was called, or `connect`.
        method: String,
        /// How long was waited.
        after: Duration,
    },
    /// The connection ended before the answer. The request may have been carried out.
    #[error("the daemon closed the connection")]
    Disconnected,
    /// The request is longer than the wire allows. Nothing was sent.
    #[error("the request has {bytes} bytes, {MAX_LINE_BYTES} are allowed")]
    TooLong {
        /// Length of the request's line.
        bytes: usize,
    },
    /// The reply does not match the expected type. The daemon has carried out the request.
    #[error("unexpected answer to {method}: {why}")]
    Unexpected {
        /// The method that was called.
        method: String,
        /// The parse error.
        why: String,
    },
    /// The other side does not speak this protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
}
