//! Why nothing is planned, and why a file is left as it is.

use crate::SearchError;

/// Why a replacement is refused as a whole. Nothing has been changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The pattern or the scope is refused.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The replacement names a group that the pattern does not have.
    #[error("the replacement refers to group '{name}', which the pattern does not have; {fix}")]
    UnknownGroup {
        /// As it was written.
        name: String,
        /// What to write instead.
        fix: String,
    },
    /// The replacement is longer than [`super::MAX_REPLACEMENT_BYTES`].
    #[error("the replacement is longer than {max} bytes")]
    ReplacementTooLong {
        /// The limit.
        max: usize,
    },
    /// More files would be changed than are allowed.
    #[error("more than {max} {} would be changed; nothing was", if *.max == 1 { "file" } else { "files" })]
    TooManyFiles {
        /// The limit.
        max: usize,
    },
    /// More matches would be replaced than are allowed.
    #[error("more than {max} {} would be replaced; nothing was", if *.max == 1 { "match" } else { "matches" })]
    TooManyReplacements {
        /// The limit.
        max: u64,
    },
    /// Lines of several files are meant.
    #[error("a range of lines needs exactly one file, and there are {found}")]
    LineRangeNeedsOneFile {
        /// How many there are.
        found: usize,
    },
    /// The last line comes before the first, or the first is 0.
    #[error("the range of lines {first} to {last} is empty; lines count from 1")]
    BadLineRange {
        /// The first line.
        first: u64,
        /// The last line.
        last: u64,
    },
}

/// Why a file is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// It has a NUL byte near its beginning.
    #[error("binary file")]
    Binary,
    /// It is larger than what is edited.
    #[error("larger than {} MiB ({len} bytes)", super::MAX_FILE_BYTES >> 20)]
    TooLarge {
        /// Its size in bytes.
        len: u64,
    },
    /// It would become larger than what is edited.
    #[error("would become larger than {} MiB", super::MAX_FILE_BYTES >> 20)]
    WouldBeTooLarge,
    /// It begins like UTF-16 and is not. What cannot be read cannot be written back unharmed.
    #[error("begins as UTF-16 and is not")]
    MalformedUtf16,
    /// A match ends within a character, so that the result is no text in the file's encoding.
    #[error("the result would not be text in the file's encoding")]
    NotEncodable,
    /// More matches than are allowed; only where a single file is edited.
    #[error("more matches than are allowed")]
    TooManyReplacements,
    /// It could not be opened or read.
    #[error("{reason}")]
    Unreadable {
        /// In the system's words.
        reason: String,
    },
}
