//! Errors of work on a copy. The texts are for the user.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why nothing was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IsolateError {
    /// A system call on a file failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed step.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// There are too many files to record their states.
    #[error("the workspace has more than {max} files outside of ignored directories")]
    TooManyFiles {
        /// The limit.
        max: u64,
    },
    /// The workspace is larger than a copy may be.
    #[error("{}", too_large(*files, *bytes, *max_files, *max_bytes))]
    TooLarge {
        /// Number of files that would be copied.
        files: u64,
        /// Size of these files in bytes.
        bytes: u64,
        /// Most files of a copy.
        max_files: u64,
        /// Largest size of a copy in bytes.
        max_bytes: u64,
    },
    /// The session has no complete copy.
    #[error("the session has no complete copy of the workspace; `quack discard` makes a new one")]
    NoCopy,
    /// The record of the copy is damaged.
    #[error("the record of the copy is damaged ({0}); `quack discard` makes a new copy")]
    Damaged(String),
    /// The workspace is another directory now.
    #[error(
        "the workspace was replaced by another directory since the copy was made; `quack discard` makes a new copy"
    )]
    Replaced,
    /// Another process works on the copy.
    #[error("another command works on the session's copy; try again")]
    Busy,
    /// The session changed too many files.
    #[error("the copy has more than {max} changed files")]
    TooManyChanges {
        /// The limit.
        max: usize,
    },
    /// The changes differ from those that the user has seen.
    #[error("the copy or the workspace changed since the comparison {expected}")]
    Changed {
        /// The expected digest.
        expected: String,
    },
    /// A file changed while the changes were written. All are taken back.
    #[error("{} changed in the workspace at the same moment; nothing was written, try again", .0.display())]
    ChangedNow(PathBuf),
    /// The record of the states of a session's files is damaged.
    #[error("the recorded states are damaged ({why}); remove {} to begin again", directory.display())]
    DamagedStates {
        /// The fault.
        why: String,
        /// The directory of the states.
        directory: PathBuf,
    },
    /// The states are those of another directory that had the path before.
    #[error(
        "the states were recorded for another directory with this path; remove {} to begin again",
        .0.display()
    )]
    OtherDirectory(PathBuf),
    /// No such state is recorded.
    #[error("there is no checkpoint {0}; `quack checkpoints` lists them")]
    NoState(u64),
    /// There is nothing to take back.
    #[error("no changes of this session were applied, or they were taken back already")]
    NothingToUndo,
}

/// Names the exceeded limits with the size of the workspace.
fn too_large(files: u64, bytes: u64, max_files: u64, max_bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    let mut exceeded = Vec::new();
    if max_files < files {
        exceeded.push(format!("{files} files, more than isolated.copy_files ({max_files})"));
    }
    if max_bytes < bytes {
        let (size, max) = (bytes.div_ceil(MIB), max_bytes / MIB);
        exceeded.push(format!(
            "{size} MiB, more than the smaller of isolated.copy_mb and isolated.max_mb ({max})"
        ));
    }
    format!(
        "outside of ignored directories the workspace has {}; let git ignore files that a copy does not need, or raise \
         the limit with `quack config set` and `quack restart`",
        exceeded.join(", and ")
    )
}

/// Adds the step and the file to the error of a system call.
pub(crate) trait OnFile<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, IsolateError>;
}

impl<T, E: Into<io::Error>> OnFile<T> for Result<T, E> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, IsolateError> {
        self.map_err(|error| IsolateError::Io {
            action,
            path: path.to_owned(),
            source: error.into(),
        })
    }
}
