//! What would be changed. Holds no content: only digests, by which applying knows that it changes the same.

use super::error::SkipReason;
use super::request::Replace;
use crate::note::Note;
use crate::outcome::{Skipped, Warning};
use crate::request::Dialect;
use sha2::Digest as _;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// SHA-256 of a file's content. `Display` gives 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(sha2::Sha256::digest(content).into())
    }

    /// Reads what `Display` has written.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit =
                |one: u8| char::from(one).to_digit(16).and_then(|one| u8::try_from(one).ok());
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

/// What a replacement would do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What was asked, with the pattern in the dialect that was used: what applying asks again.
    pub request: Replace,
    /// Files whose content would change, in the order of their paths.
    pub files: Vec<FilePlan>,
    /// Lines that would change, in all files together.
    pub lines_changed: u64,
    /// Matches that would be replaced by something else, in all files together.
    pub replacements: u64,
    /// The first files that were left out, at most [`super::MAX_SKIPPED_LISTED`], binary ones last.
    pub skipped: Vec<SkippedFile>,
    /// How many files were left out for a reason of [`SkipReason`].
    pub skipped_count: u64,
    /// What the selection of files left out, and why.
    pub counts: Skipped,
    /// Directories and entries that the walk could not read, the first few.
    pub warnings: Vec<Warning>,
    /// Files that were read.
    pub files_searched: u64,
    /// The deadline passed: the plan is not complete and must not be applied.
    pub timed_out: bool,
    /// There are more files than one walk lists: the plan is not complete and must not be applied.
    pub too_many_files: bool,
    /// Diffs were left out or end early, because of their size.
    pub diffs_cut: bool,
    /// How the pattern was read.
    pub dialect_used: Dialect,
    /// Matches may cross lines.
    pub multiline_used: bool,
    /// What a reader must know.
    pub notes: Vec<Note>,
    /// Time taken.
    pub elapsed: Duration,
}

impl Plan {
    /// Whether everything was looked at, so that the plan may be applied.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.timed_out && !self.too_many_files
    }
}

/// What would become of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlan {
    /// Relative to the root.
    pub path: PathBuf,
    /// Lines that would change.
    pub lines_changed: u64,
    /// Matches that would be replaced by something else.
    pub replacements: u64,
    /// The line endings that it has.
    pub eol: Eol,
    /// Its encoding.
    pub encoding: FileEncoding,
    /// Of its content.
    pub before: Digest,
    /// Of the content that it would have.
    pub after: Digest,
    /// Bytes that it has.
    pub len_before: u64,
    /// Bytes that it would have.
    pub len_after: u64,
    /// Device and inode: names of the same file have the same.
    pub file_id: (u64, u64),
    /// How many names the file has.
    pub n_names: u64,
    /// Unified diff with three lines around each change, if asked for and not too large.
    pub diff: Option<String>,
    /// The diff can be applied to the file. False if the file is UTF-16 or a line shown is not UTF-8: the diff is
    /// only to be read then. True without a diff.
    pub is_exact_diff: bool,
}

/// A file that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// Relative to the root.
    pub path: PathBuf,
    /// Why.
    pub reason: SkipReason,
}

/// The line endings of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eol {
    /// It has no line break.
    None,
    /// Line feeds.
    Lf,
    /// Carriage return and line feed.
    CrLf,
    /// Both; `is_mostly_crlf` says which are more.
    Mixed {
        /// True if most are carriage return and line feed.
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

/// How a file's bytes are text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEncoding {
    /// UTF-8.
    Utf8,
    /// UTF-8 with a byte order mark.
    Utf8WithMark,
    /// UTF-16, little-endian, with its mark.
    Utf16Le,
    /// UTF-16, big-endian, with its mark.
    Utf16Be,
    /// Something else, such as Latin-1; edited as bytes.
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
