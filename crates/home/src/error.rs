//! Why the state directory cannot be used. Shown by the command line and by `doctor`.

use std::io;
use std::path::{Path, PathBuf};

/// Why the state directory, or something in it, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// Nothing says where the state directory is.
    #[error("HOME is not set to an absolute path; set it, or RUBBER_DUCK_APP_SUPPORT")]
    NoHome,
    /// A path in the environment is not text. Paths of ours travel in JSON.
    #[error("{variable} is not valid UTF-8")]
    NotUtf8 {
        /// The environment variable, or what stands for it.
        variable: &'static str,
    },
    /// Something else stands where the directory should be.
    #[error("{path} is not a directory")]
    NotADirectory {
        /// The path in question.
        path: PathBuf,
    },
    /// The directory belongs to somebody else, who could read and change everything in it.
    #[error("{path} belongs to user {owner}, not to you (user {us})")]
    NotOurs {
        /// The path in question.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
        /// Our effective user id.
        us: u32,
    },
    /// A session id that cannot be a file name.
    #[error("not a session id: {id:.80?}")]
    InvalidSessionId {
        /// The id as it was given.
        id: String,
    },
    /// The system refused.
    #[error("cannot {action} {path}")]
    Io {
        /// What was tried, an English verb phrase.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl HomeError {
    pub(crate) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.to_owned(), source: source.into() }
    }
}
