//! Why a file was not written, as the caller of write_file and edit_file is told.

use crate::Output;
use crate::bounds::{Bounds, Cutoff};
use crate::system_words::system_words;
use quackd_sandbox::{PathError, Root, WriteError};
use rustix::io::Errno;
use std::io;

/// Largest file that is edited, in bytes: it is held in memory twice.
pub(crate) const MAX_EDITED_BYTES: u64 = 16 * 1024 * 1024;

/// Why a file was not written. The verb is `write` or `edit`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteFailure {
    #[error("Path escapes workspace root")]
    Escapes,
    #[error("File changed since it was last read: '{0}'. Read it again before writing.")]
    Stale(String),
    #[error("File exceeds 16MB limit ({0} bytes)")]
    TooLarge(u64),
    #[error("old_text not found in file")]
    NoOccurrence,
    #[error("old_text found {0} times (ambiguous edit)")]
    Ambiguous(usize),
    #[error("Failed to {verb} file: {reason}")]
    Failed { verb: &'static str, reason: String },
    #[error("nobody waits for it any more")]
    GivenUp,
}

impl WriteFailure {
    /// Names an error of writing or editing what `path` names.
    pub(crate) fn of(error: WriteError, verb: &'static str, root: &Root, path: &str) -> Self {
        let failed = |source: &io::Error, call: &str| {
            let absolute = root.path().join(path);
            let call = match call {
                "open" => format!("open '{}'", absolute.display()),
                call => call.to_owned(),
            };
            Self::Failed { verb, reason: format!("Error: {}", system_words(source, &call)) }
        };
        match error {
            WriteError::Path(PathError::Escapes) => Self::Escapes,
            WriteError::Path(PathError::NotFound) => failed(&Errno::NOENT.into(), "open"),
            // What is edited is read first.
            WriteError::Path(PathError::IsDirectory) if verb == "edit" => {
                failed(&Errno::ISDIR.into(), "read")
            }
            WriteError::Path(PathError::IsDirectory) => failed(&Errno::ISDIR.into(), "open"),
            WriteError::Path(PathError::Io(source)) => failed(&source, "open"),
            WriteError::Changed => Self::Stale(path.to_owned()),
            WriteError::TooLarge { len } => Self::TooLarge(len),
            WriteError::Locked => failed(&Errno::BUSY.into(), "open"),
            WriteError::GivenUp => Self::GivenUp,
            WriteError::Io { call, source } => failed(&source, call),
            other => Self::Failed { verb, reason: other.to_string() },
        }
    }

    /// The answer.
    pub(crate) fn output(&self, tool: &str, bounds: &Bounds) -> Output {
        match self {
            Self::GivenUp => Output::cut_off(tool, bounds, Cutoff::TimedOut),
            failure => Output::error(failure),
        }
    }
}
