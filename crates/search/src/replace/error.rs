//! Errors that reject a replacement, and reasons for skipping a file.

use crate::SearchError;

/// Reason for rejecting a whole replacement. No file was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The pattern or the scope was rejected.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The replacement names a group that the pattern does not have.
    #[error("the replacement refers to group '{name}', which the pattern does not have; {fix}")]
    UnknownGroup {
        /// Name of the group as written in the replacement.
        name: String,
        /// Suggested fix.
        fix: String,
    },
    /// The replacement is longer than [`super::MAX_REPLACEMENT_BYTES`].
    #[error("the replacement is longer than {max} bytes")]
    ReplacementTooLong {
        /// Limit that the request or the pattern exceeds.
        max: usize,
    },
    /// The replacement would change more files than allowed.
    #[error("more than {max} {} would be changed; nothing was", if *.max == 1 { "file" } else { "files" })]
    TooManyFiles {
        /// Limit that the request or the pattern exceeds.
        max: usize,
    },
    /// The replacement would replace more matches than allowed.
    #[error("more than {max} {} would be replaced; nothing was", if *.max == 1 { "match" } else { "matches" })]
    TooManyReplacements {
        /// Limit that the request or the pattern exceeds.
        max: u64,
    },
    /// A range of lines was given, but the scope is not exactly one file.
    #[error("a range of lines needs exactly one file, and there are {found}")]
    LineRangeNeedsOneFile {
        /// Number of files in the scope.
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

/// Reason for skipping a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// The file has a NUL byte in its first 8 KiB.
    #[error("binary file")]
    Binary,
    /// The file is larger than [`super::MAX_FILE_BYTES`].
    #[error("larger than {} MiB ({len} bytes)", super::MAX_FILE_BYTES >> 20)]
    TooLarge {
        /// Size of the file in bytes.
        len: u64,
    },
    /// The new content would be larger than [`super::MAX_FILE_BYTES`].
    #[error("would become larger than {} MiB", super::MAX_FILE_BYTES >> 20)]
    WouldBeTooLarge,
    /// The file starts with a UTF-16 mark but is not valid UTF-16, so it could not be written back unchanged.
    #[error("begins as UTF-16 and is not")]
    MalformedUtf16,
    /// A match ends within a character, so the result is not valid in the file's encoding.
    #[error("the result would not be text in the file's encoding")]
    NotEncodable,
    /// The file has more matches than allowed. Occurs only when a single file is edited.
    #[error("more matches than are allowed")]
    TooManyReplacements,
    /// The file could not be opened or read.
    #[error("{reason}")]
    Unreadable {
        /// System error text.
        reason: String,
    },
}
