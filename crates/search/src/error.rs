//! Errors that reject a whole request. Partial failures become warnings in the answer.

use crate::glob::GlobError;
use std::path::PathBuf;

/// Reason for rejecting a search or a find.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The patterns are longer than 64 KiB together.
    #[error("pattern is longer than {max} bytes")]
    PatternTooLong {
        /// Limit in bytes.
        max: usize,
    },
    /// The request has no pattern, or an empty one.
    #[error("pattern is empty")]
    EmptyPattern,
    /// A pattern is not valid.
    #[error("{reason}")]
    BadPattern {
        /// One line.
        reason: String,
        /// The regex crate's message about the pattern. It has several lines.
        full: String,
    },
    /// A glob is not valid.
    #[error("invalid glob '{glob}': {reason}")]
    BadGlob {
        /// As written in the request.
        glob: String,
        /// One line.
        reason: String,
    },
    /// An absolute glob outside the root.
    #[error("glob '{glob}' is outside the workspace")]
    GlobOutside {
        /// As written in the request.
        glob: String,
    },
    /// A pattern of find was rejected.
    #[error(transparent)]
    BadName(#[from] GlobError),
    /// The file type does not exist.
    #[error("unknown file type '{name}'{}", .nearest.as_ref().map(|nearest| format!(", did you mean '{nearest}'?")).unwrap_or_default())]
    UnknownType {
        /// As written in the request.
        name: String,
        /// A type with a similar name.
        nearest: Option<String>,
    },
    /// The encoding does not exist.
    #[error("unknown encoding '{label}'")]
    UnknownEncoding {
        /// As written in the request.
        label: String,
    },
    /// The cursor is malformed or belongs to another request.
    #[error("cursor does not belong to this request")]
    BadCursor,
    /// A start path does not exist.
    #[error("no such file or directory: '{}'", .0.display())]
    StartNotFound(PathBuf),
    /// The caller canceled the search.
    #[error("the search was cancelled")]
    Cancelled,
}
