//! Errors of requests. Created by [`crate::Client`]. The command line maps each variant to an exit code.

use quackd_protocol::client::ErrorCode;
use quackd_protocol::limits::MAX_LINE_BYTES;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Error of a request or of the connection. One variant per decision of the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No listener on the socket: the caller can start a daemon.
    #[error("the daemon is not running (no listener on {})", path.display())]
    NotRunning {
        /// Path of the socket.
        path: PathBuf,
    },
    /// Connecting failed for another reason.
    #[error("cannot connect to {}", path.display())]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The listener belongs to another user. Nothing was sent.
    #[error("{} is served by another user (uid {uid})", path.display())]
    ForeignServer {
        /// Path of the socket.
        path: PathBuf,
        /// User id of the listener's process.
        uid: u32,
    },
    /// The daemon replied with `ok:false`. The text is the daemon's.
    #[error("{text}")]
    Refused {
        /// The daemon's text, for display.
        text: String,
        /// Cause, if a client can act on it.
        code: Option<ErrorCode>,
    },
    /// No reply before the timeout. The request may have taken effect.
    #[error("no answer to {method} within {after:?}")]
    Timeout {
        /// Name of the method, or `connect`.
        method: String,
        /// The timeout.
        after: Duration,
    },
    /// The connection closed before the reply. The request may have taken effect.
    #[error("the daemon closed the connection")]
    Disconnected,
    /// The request exceeds the limit of the wire. Nothing was sent.
    #[error("the request has {bytes} bytes, {MAX_LINE_BYTES} are allowed")]
    TooLong {
        /// Length of the request's line, in bytes.
        bytes: usize,
    },
    /// The reply does not match the expected type. The daemon has completed the request.
    #[error("unexpected answer to {method}: {why}")]
    Unexpected {
        /// Name of the method.
        method: String,
        /// The parse error.
        why: String,
    },
    /// The peer does not speak this protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
}
