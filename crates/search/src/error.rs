//! Why a request cannot be answered at all. What can be answered in part is answered, with warnings.

use crate::glob::GlobError;
use std::path::PathBuf;

/// Why a search or a find is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The patterns are longer than 64 KiB together.
    #[error("pattern is longer than {max} bytes")]
    PatternTooLong {
        /// The limit.
        max: usize,
    },
    /// There is no pattern, or one is empty.
    #[error("pattern is empty")]
    EmptyPattern,
    /// A pattern cannot be read.
    #[error("{reason}")]
    BadPattern {
        /// One line.
        reason: String,
        /// What the regex crate says of the pattern, in several lines.
        full: String,
    },
    /// A glob cannot be read.
    #[error("invalid glob '{glob}': {reason}")]
    BadGlob {
        /// As it was given.
        glob: String,
        /// One line.
        reason: String,
    },
    /// An absolute glob that is not beneath the root.
    #[error("glob '{glob}' is outside the workspace")]
    GlobOutside {
        /// As it was given.
        glob: String,
    },
    /// A pattern of find is refused.
    #[error(transparent)]
    BadName(#[from] GlobError),
    /// There is no such file type.
    #[error("unknown file type '{name}'{}", .nearest.as_ref().map(|nearest| format!(", did you mean '{nearest}'?")).unwrap_or_default())]
    UnknownType {
        /// As it was given.
        name: String,
        /// A type with a similar name.
        nearest: Option<String>,
    },
    /// There is no such encoding.
    #[error("unknown encoding '{label}'")]
    UnknownEncoding {
        /// As it was given.
        label: String,
    },
    /// The cursor is none, or is from another request.
    #[error("cursor does not belong to this request")]
    BadCursor,
    /// A start does not exist.
    #[error("no such file or directory: '{}'", .0.display())]
    StartNotFound(PathBuf),
    /// The caller wants no result any more.
    #[error("the search was cancelled")]
    Cancelled,
}
