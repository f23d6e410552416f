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
    /// A directory that is never the state directory, whatever is in it.
    #[error(
        "{path} is {what} and cannot be the state directory, which the daemon closes to others and clears in \
         part; nothing was changed. Name another one in RUBBER_DUCK_APP_SUPPORT"
    )]
    Reserved {
        /// The path in question.
        path: PathBuf,
        /// What it is, for people.
        what: &'static str,
    },
    /// A directory that is full of somebody's things.
    #[error(
        "{path} is no state directory of quackd: it holds {found}, and nothing that quackd or Rubber Duck have \
         left; nothing was changed. Name an empty or a new directory in RUBBER_DUCK_APP_SUPPORT; if it is the \
         right one all the same, put an empty file `quackd.lock` into it"
    )]
    Foreign {
        /// The path in question.
        path: PathBuf,
        /// The first of the names in it.
        found: String,
    },
    /// A `run` in the state directory that we did not make.
    #[error(
        "{path} was not made by quackd, which deletes its own at each start: it holds {found}; nothing was \
         changed. Move it away, or name another state directory in RUBBER_DUCK_APP_SUPPORT"
    )]
    ForeignRun {
        /// The path in question.
        path: PathBuf,
        /// The first of the names in it.
        found: String,
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
