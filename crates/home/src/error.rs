//! Errors of the state directory. Shown by the command line and by `doctor`.

use std::io;
use std::path::{Path, PathBuf};

/// The state directory, or an entry of it, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// No environment variable leads to a state directory.
    #[error("HOME is not set to an absolute path; set it, or RUBBER_DUCK_APP_SUPPORT")]
    NoHome,
    /// A path is not UTF-8. Paths are sent in JSON.
    #[error("{variable} is not valid UTF-8")]
    NotUtf8 {
        /// Name of the environment variable, or a description of the path.
        variable: &'static str,
    },
    /// The path exists and is not a directory.
    #[error("{path} is not a directory")]
    NotADirectory {
        /// Path of the entry.
        path: PathBuf,
    },
    /// Another user owns the directory, and could read and change everything in it.
    #[error("{path} belongs to user {owner}, not to you (user {us})")]
    NotOurs {
        /// Path of the directory.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// Effective user id of this process.
        us: u32,
    },
    /// A directory that is never accepted, regardless of its content.
    #[error(
        "{path} is {what} and cannot be the state directory, which the daemon closes to others and clears in \
         part; nothing was changed. Name another one in RUBBER_DUCK_APP_SUPPORT"
    )]
    Reserved {
        /// Path of the directory.
        path: PathBuf,
        /// Description of the directory. For display only.
        what: &'static str,
    },
    /// A directory with files of other programs.
    #[error(
        "{path} is no state directory of quackd: it holds {found}, and nothing that quackd or Rubber Duck have \
         left; nothing was changed. Name an empty or a new directory in RUBBER_DUCK_APP_SUPPORT; if it is the \
         right one, put an empty file `quackd.lock` into it"
    )]
    Foreign {
        /// Path of the directory.
        path: PathBuf,
        /// First unknown names in the directory.
        found: String,
    },
    /// A `run` in the state directory that quackd did not create.
    #[error(
        "{path} was not made by quackd, which deletes its own at each start: it holds {found}; nothing was \
         changed. Move it away, or name another state directory in RUBBER_DUCK_APP_SUPPORT"
    )]
    ForeignRun {
        /// Path of `run`.
        path: PathBuf,
        /// First unknown names in it.
        found: String,
    },
    /// A session id that is not a valid file name.
    #[error("not a session id: {id:.80?}")]
    InvalidSessionId {
        /// The rejected id.
        id: String,
    },
    /// A system call failed.
    #[error("cannot {action} {path}")]
    Io {
        /// Verb phrase for the failed action, such as `inspect`.
        action: &'static str,
        /// Path of the action.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

impl HomeError {
    pub(crate) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.to_owned(), source: source.into() }
    }
}
