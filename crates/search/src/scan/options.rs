//! Options of a scan, and the rows of its first file to skip.

use crate::line_matcher::LineMatcher;
use crate::request::{Binary, OutputMode};
use grep_searcher::Encoding;

/// Options of a scan, the same for each file.
#[derive(Debug, Clone)]
pub(crate) struct ScanOptions {
    pub(crate) matcher: LineMatcher,
    pub(crate) multiline: bool,
    /// The text is searched as a whole, without the carriage returns of its line ends.
    pub(crate) folds: bool,
    /// Number of bytes that are searched at once.
    pub(crate) piece: usize,
    pub(crate) invert: bool,
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) output: OutputMode,
    pub(crate) max_per_file: Option<u64>,
    pub(crate) max_line: Option<usize>,
    pub(crate) binary: Binary,
    /// `None` to detect the byte order mark, `Some(None)` for raw bytes.
    pub(crate) encoding: Option<Option<Encoding>>,
    /// Maximum number of rows. The scan looks for one more.
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
    /// Maximum number of bytes of one row.
    pub(crate) max_row: usize,
    /// Size of collected rows, in bytes of memory, from which on a thread passes them on before its file or its batch
    /// is complete.
    pub(crate) part_bytes: usize,
    /// Whether rows are collected, and not only counted.
    pub(crate) with_rows: bool,
    /// Continue counting after `limit` rows.
    pub(crate) count_all: bool,
}

/// Rows to skip at the start of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Skip {
    #[default]
    Nothing,
    Rows(u64),
    /// Rows up to this line.
    Through(u64),
}
