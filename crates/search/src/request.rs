//! Request of a search.

use crate::scope::Scope;
use crate::tree::Stop;

/// Maximum number of rows, entries or files in one page. A limit of 0 means this number.
pub const MAX_ROWS: usize = 10_000;

/// Maximum number of context lines on one side.
pub const MAX_CONTEXT: usize = 200;

/// Patterns to search for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Alternatives: at least one, none empty, at most 64 KiB together. A final newline is not part of a
    /// pattern. With [`Multiline::Off`], each line of a pattern is an alternative too. Otherwise a newline
    /// matches itself.
    pub patterns: Vec<String>,
    /// Whether the patterns are plain text instead of expressions.
    pub literal: bool,
    /// Required text around a match.
    pub boundary: Boundary,
    /// Dialect of the patterns.
    pub dialect: Dialect,
    /// Retry a Rust pattern as a basic one if it looks like one and finds nothing, or is not valid.
    pub retry_as_basic: bool,
    /// Case sensitivity.
    pub case: Case,
    /// Whether a match may cross lines.
    pub multiline: Multiline,
}

impl Pattern {
    /// Creates a pattern from one expression in Rust's syntax, with the defaults.
    #[must_use]
    pub fn new(pattern: impl Into<String>) -> Self {
        Self {
            patterns: vec![pattern.into()],
            literal: false,
            boundary: Boundary::None,
            dialect: Dialect::Rust,
            retry_as_basic: false,
            case: Case::Sensitive,
            multiline: Multiline::Auto,
        }
    }
}

/// Required text around a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Boundary {
    /// Anything.
    #[default]
    None,
    /// No adjacent letters, digits or underscores, as for `grep -w`.
    Word,
    /// The ends of the line, as for `grep -x`.
    Line,
}

/// Dialect of a pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Syntax of the regex crate.
    #[default]
    Rust,
    /// POSIX basic regular expression with GNU's additions, as grep reads it without options.
    Basic,
}

/// Case sensitivity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Case {
    /// Case matters.
    #[default]
    Sensitive,
    /// Case does not matter.
    Insensitive,
    /// Case matters if a pattern contains an upper-case letter.
    Smart,
}

/// Whether a match may cross lines. If so, files of up to 16 MiB are read as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Multiline {
    /// Never; `\n` in a pattern is an error.
    Off,
    /// Always.
    On {
        /// `.` matches a line feed too.
        dot_all: bool,
    },
    /// If a pattern contains a line feed (`\n`, or a literal one). A note reports this.
    #[default]
    Auto,
}

/// A search.
#[derive(Debug, Clone)]
pub struct Search {
    /// Patterns to search for.
    pub pattern: Pattern,
    /// Files to search.
    pub scope: Scope,
    /// Return the lines that do not match.
    pub invert: bool,
    /// Lines of context before a match, at most [`MAX_CONTEXT`].
    pub before: usize,
    /// Lines of context after a match, at most [`MAX_CONTEXT`].
    pub after: usize,
    /// Unit of the answer.
    pub output: OutputMode,
    /// Maximum number of rows in the page, without context. 0 means [`MAX_ROWS`], the upper bound.
    pub limit: usize,
    /// Number of rows to skip.
    pub offset: u64,
    /// Cursor returned with the previous page. Overrides the offset.
    pub cursor: Option<String>,
    /// Maximum number of matching lines per file, with all their matches.
    pub max_per_file: Option<u64>,
    /// Maximum number of characters of a line: a window around its first match.
    pub max_line: Option<usize>,
    /// Maximum size of the page in bytes. Each row counts as `path:line:text` and a newline.
    pub max_bytes: usize,
    /// Continue counting after the page is full, until the deadline.
    pub count_total: bool,
    /// Treatment of files with a NUL byte.
    pub binary: Binary,
    /// Encoding of the files.
    pub encoding: Encoding,
    /// Explain an empty result. Counts the lines of similar patterns while it reads the files, but only in the
    /// first 256 KiB of a file. A page after a cursor is not explained with such counts.
    pub explain_empty: bool,
    /// Deadline and cancellation.
    pub stop: Stop,
}

impl Search {
    /// Searches the whole root for lines that match `pattern`, up to 100 KiB of them.
    #[must_use]
    pub fn new(pattern: Pattern, stop: Stop) -> Self {
        Self {
            pattern,
            scope: Scope::default(),
            invert: false,
            before: 0,
            after: 0,
            output: OutputMode::Lines,
            limit: 0,
            offset: 0,
            cursor: None,
            max_per_file: None,
            max_line: None,
            max_bytes: 100 * 1024,
            count_total: false,
            binary: Binary::Skip,
            encoding: Encoding::Auto,
            explain_empty: false,
            stop,
        }
    }
}

/// Unit of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OutputMode {
    /// A matching line. If matches cross lines, all lines that a match touches are one row.
    #[default]
    Lines,
    /// A match without the rest of its line. Returns nothing for an inverted search.
    OnlyMatching,
    /// A file with a match.
    Files,
    /// A file without a match.
    FilesWithout,
    /// A file with its number of matching lines. A match across lines counts each line that it touches.
    CountLines,
    /// A file with its number of matches.
    CountMatches,
}

/// Treatment of files with a NUL byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Binary {
    /// They are skipped and counted.
    #[default]
    Skip,
    /// They are searched as text.
    Text,
    /// They return one row without text if they match.
    Report,
}

/// Encoding of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-16 if the file starts with its byte order mark, otherwise raw bytes. The mark of UTF-8 is not part
    /// of the text.
    #[default]
    Auto,
    /// Raw bytes.
    None,
    /// A label of the WHATWG standard, such as `latin1` or `shift_jis`.
    Label(String),
}
