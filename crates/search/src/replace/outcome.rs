//! Planned changes. Contains no file content, only digests. With them, applying verifies that it makes the
//! planned change.

use super::error::SkipReason;
use super::request::Replace;
use crate::note::Note;
use crate::outcome::{Skipped, Warning};
use crate::request::Dialect;
use sha2::Digest as _;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// SHA-256 of a file's content. `Display` writes 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(sha2::Sha256::digest(content).into())
    }

    /// Parses the output of `Display`.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit =
                |hex: u8| char::from(hex).to_digit(16).and_then(|hex| u8::try_from(hex).ok());
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Planned replacement.
#[derive(Debug, Clone)]
pub struct ReplacePlan {
    /// The request, with the pattern in the dialect that was used. Applying the plan runs it again.
    pub request: Replace,
    /// Files whose content would change, in the order of their paths.
    pub files: Vec<FilePlan>,
    /// Number of lines that would change in all files.
    pub lines_changed: u64,
    /// Number of matches that would be replaced by different text, in all files.
    pub replacements: u64,
    /// The first skipped files, at most [`super::MAX_SKIPPED_LISTED`]. Binary files come last.
    pub skipped: Vec<SkippedFile>,
    /// Number of files skipped for a [`SkipReason`].
    pub skipped_count: u64,
    /// Counts of entries that the walk skipped, by reason.
    pub counts: Skipped,
    /// The first directories and entries that the walk could not read.
    pub warnings: Vec<Warning>,
    /// Number of files read.
    pub files_searched: u64,
    /// The deadline passed: the plan is incomplete and must not be applied.
    pub timed_out: bool,
    /// The walk stopped at its limit: the plan is incomplete and must not be applied.
    pub too_many_files: bool,
    /// Diffs were omitted or cut because of their size.
    pub diffs_cut: bool,
    /// Dialect in which the pattern was compiled.
    pub dialect_used: Dialect,
    /// Matches may cross lines.
    pub multiline_used: bool,
    /// Facts that the reader needs to judge the plan.
    pub notes: Vec<Note>,
    /// Time taken.
    pub elapsed: Duration,
}

impl ReplacePlan {
    /// Whether the plan is complete and may be applied.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.timed_out && !self.too_many_files
    }
}

/// Planned change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlan {
    /// Relative to the root.
    pub path: PathBuf,
    /// Number of lines that would change.
    pub lines_changed: u64,
    /// Number of matches that would be replaced by different text.
    pub replacements: u64,
    /// Line endings of the current content.
    pub eol: Eol,
    /// Encoding of the file.
    pub encoding: FileEncoding,
    /// Digest of the current content.
    pub before: Digest,
    /// Digest of the new content.
    pub after: Digest,
    /// Current size in bytes.
    pub len_before: u64,
    /// New size in bytes.
    pub len_after: u64,
    /// Device and inode. Equal for all names of the same file.
    pub file_id: (u64, u64),
    /// Number of hard links to the file.
    pub n_names: u64,
    /// Unified diff with three lines of context, if requested and not too large.
    pub diff: Option<String>,
    /// Whether the diff can be applied to the file. False if the file is UTF-16 or a line of the diff is not
    /// UTF-8: then the diff is for display only. True without a diff.
    pub is_exact_diff: bool,
}

/// A skipped file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// Relative to the root.
    pub path: PathBuf,
    /// Reason for skipping the file.
    pub reason: SkipReason,
}

/// The line endings of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eol {
    /// The file has no line break.
    None,
    /// Line feeds.
    Lf,
    /// Carriage return and line feed.
    CrLf,
    /// Both kinds.
    Mixed {
        /// Whether most line endings are carriage return and line feed.
        is_mostly_crlf: bool,
    },
}

impl Eol {
    /// Counts the line endings of `text`.
    pub(super) fn of(text: &[u8]) -> Self {
        let (mut lf, mut crlf) = (0_u64, 0_u64);
        for at in memchr::memchr_iter(b'\n', text) {
            let before = at.checked_sub(1).and_then(|before| text.get(before));
            *(if before == Some(&b'\r') { &mut crlf } else { &mut lf }) += 1;
        }
        match (lf, crlf) {
            (0, 0) => Self::None,
            (_, 0) => Self::Lf,
            (0, _) => Self::CrLf,
            _ => Self::Mixed { is_mostly_crlf: lf < crlf },
        }
    }

    /// `none`, `lf`, `crlf` or `mixed`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lf => "lf",
            Self::CrLf => "crlf",
            Self::Mixed { .. } => "mixed",
        }
    }
}

/// Encoding of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEncoding {
    /// UTF-8.
    Utf8,
    /// UTF-8 with a byte order mark.
    Utf8WithMark,
    /// UTF-16, little-endian, with a byte order mark.
    Utf16Le,
    /// UTF-16, big-endian, with a byte order mark.
    Utf16Be,
    /// Other encodings, such as Latin-1. Edited as bytes.
    Bytes,
}

impl FileEncoding {
    /// `utf-8`, `utf-8-bom`, `utf-16le`, `utf-16be` or `bytes`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf8WithMark => "utf-8-bom",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
            Self::Bytes => "bytes",
        }
    }
}
