//! Reasons why a link is not made.

use quackd_process::LaunchError;
use std::io;

/// Reason why a link is not made. Texts of other programs in it are one line without control characters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The engine's client cannot be started.
    #[error("cannot start {program}: {source}")]
    Client {
        /// First word of the argument list.
        program: String,
        /// Reason.
        source: LaunchError,
    },
    /// The file of the program cannot be read, or the engine has none and the far side asked for it.
    #[error("cannot send quackd's program: {0}")]
    Program(#[source] io::Error),
    /// The far side reported why its start failed.
    #[error("{0}")]
    Refused(String),
    /// Another version runs there. Another start cannot help.
    #[error("quackd {theirs} runs there, and {ours} here; install the same version")]
    Version {
        /// Version there, with the number of the protocol if that differs.
        theirs: String,
        /// Version of this process.
        ours: String,
    },
    /// The client wrote other bytes than the handshake.
    #[error("the far side wrote {0} in place of the handshake")]
    Handshake(&'static str),
    /// The client closed its output, usually because it has exited.
    #[error("the engine's client ended")]
    Closed,
    /// No far worker until the time limit.
    #[error("no answer for {0} s")]
    TimedOut(u64),
    /// Any of these, with the place.
    #[error("{place}: {error}")]
    At {
        /// Name of the place.
        place: String,
        /// The error.
        error: Box<Self>,
    },
    /// Any of these, with the last line that the client wrote to stderr.
    #[error("{error}: {words}")]
    Described {
        /// The error.
        error: Box<Self>,
        /// The line.
        words: String,
    },
    /// A pipe of the client failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}
