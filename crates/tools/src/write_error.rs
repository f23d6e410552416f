//! Errors of write_file and edit_file.

use crate::call_limits::{CallLimits, StopCause};
use crate::os_denial::{AccessMode, denial_blocking};
use crate::system_errors::{hint, system_words};
use crate::{Confinement, Output};
use quackd_protocol::denial::{Denial, DenialKind};
use quackd_sandbox::{PathError, Root, Rule, WriteError};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum size of an edited file in bytes. It is in memory twice.
pub(crate) const MAX_EDITED_BYTES: u64 = 16 * 1024 * 1024;

/// Hint for the user about a path outside of the workspace.
const OUTSIDE: &str = "the path leads out of the workspace, and file tools work only in it; `quack tool bash` also reaches \
                       directories that `quack sandbox show` lists as writable";

/// Reason why a file was not written. The verb is `write` or `edit`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteFailure {
    #[error("Path escapes workspace root")]
    Escapes,
    #[error("File changed since it was last read: '{0}'. Read it again before writing.")]
    Stale(String),
    #[error("File exceeds 16MB limit ({0} bytes)")]
    TooLarge(u64),
    #[error("old_text not found in file")]
    NoOccurrence {
        /// How to find the text.
        hint: String,
    },
    #[error("old_text found {count} times (ambiguous edit)")]
    Ambiguous {
        count: usize,
        /// The lines of the texts.
        hint: String,
    },
    #[error("edit {number} of the call: {failure}; nothing was changed")]
    InEdit { number: usize, failure: Box<Self> },
    #[error("'{}' is protected: it {}", name.display(), rule.reason())]
    Protected {
        /// Resolved path relative to the workspace.
        name: PathBuf,
        rule: Rule,
    },
    #[error("Failed to {verb} file: {reason}")]
    Failed { verb: &'static str, reason: String, denial: Option<Denial>, hint: Option<String> },
    #[error("the call was canceled")]
    GivenUp,
}

impl WriteFailure {
    /// Converts an error of writing or editing `path`.
    pub(crate) fn of(
        error: WriteError,
        verb: &'static str,
        root: &Root,
        path: &str,
        confinement: &Confinement,
    ) -> Self {
        let words = |source: &io::Error, call: &str, denial: Option<Denial>| {
            let absolute = root.path().join(path);
            let call = match call {
                "open" => format!("open '{}'", absolute.display()),
                call => call.to_owned(),
            };
            let reason = format!("Error: {}", system_words(source, &call));
            Self::Failed { verb, reason, denial, hint: hint(source, path) }
        };

        let failed = |source: &io::Error, call: &str| {
            let name = root.real_name(path).unwrap_or_else(|_| PathBuf::from(path));
            let is_read_only = Errno::from_io_error(source) == Some(Errno::ROFS);
            if is_read_only && confinement.is_read_only_outside(&root.path().join(&name)) {
                return words(source, call, None);
            }
            words(source, call, denial_blocking(source, root.path(), &name, AccessMode::Write))
        };

        match error {
            WriteError::Path(PathError::Escapes) => Self::Escapes,
            WriteError::Path(PathError::NotFound) => failed(&Errno::NOENT.into(), "open"),
            // An edit reads the file first.
            WriteError::Path(PathError::IsDirectory) if verb == "edit" => {
                failed(&Errno::ISDIR.into(), "read")
            }
            WriteError::Path(PathError::IsDirectory) => failed(&Errno::ISDIR.into(), "open"),
            WriteError::Path(PathError::Io(source)) => failed(&source, "open"),
            WriteError::Changed => Self::Stale(path.to_owned()),
            WriteError::TooLarge { len } => Self::TooLarge(len),
            // The policy did not cause this error.
            WriteError::Locked => words(&Errno::BUSY.into(), "open", None),
            WriteError::GivenUp => Self::GivenUp,
            WriteError::Io { call, source } => failed(&source, call),
            other => Self::Failed { verb, reason: other.to_string(), denial: None, hint: None },
        }
    }

    /// Rejects names by which a later program would run code. `name` is relative to the workspace, with every
    /// link resolved.
    pub(crate) fn check(name: &Path, confinement: &Confinement) -> Result<(), Self> {
        match confinement.protects(name) {
            Some(rule) => Err(Self::Protected { name: name.to_path_buf(), rule }),
            None => Ok(()),
        }
    }

    /// How to go on, for texts that an edit did not find once.
    fn edit_hint(&self) -> Option<String> {
        match self {
            Self::NoOccurrence { hint } | Self::Ambiguous { hint, .. } => Some(hint.clone()),
            Self::InEdit { failure, .. } => failure.edit_hint(),
            _ => None,
        }
    }

    /// Returns the answer.
    pub(crate) fn output(
        &self,
        tool: &str,
        bounds: &CallLimits,
        confinement: &Confinement,
    ) -> Output {
        match self {
            Self::GivenUp => Output::cut_off(tool, bounds, StopCause::TimedOut),
            Self::Protected { name, .. } => {
                let name = name.to_string_lossy();
                confinement.output(self, Denial::new(DenialKind::Protected, Some(&name), false))
            }
            Self::Failed { denial, hint, .. } => {
                confinement.failure(self, denial.clone()).with_hint(hint.clone())
            }
            Self::Escapes => Output::error(self).with_hint(Some(OUTSIDE.to_owned())),
            failure => Output::error(failure).with_advice(failure.edit_hint()),
        }
    }
}
