//! What a search asks.

use crate::scope::Scope;
use crate::tree::Stop;

/// Rows, entries or files of one page, and what a limit of 0 means.
pub const MAX_ROWS: usize = 10_000;

/// Lines of context on one side.
pub const MAX_CONTEXT: usize = 200;

/// What is looked for in files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Any of them; at least one, none empty, at most 64 KiB together. A newline at the end of one is not
    /// part of it. With [`Multiline::Off`] lines of one are alternatives too; else a newline is what it is.
    pub patterns: Vec<String>,
    /// They are text, not expressions.
    pub literal: bool,
    /// What must surround a match.
    pub boundary: Boundary,
    /// How they are read.
    pub dialect: Dialect,
    /// Read Rust patterns as basic ones, if they look so and find nothing, or cannot be read, as they are.
    pub retry_as_basic: bool,
    /// Whether case counts.
    pub case: Case,
    /// Whether a match may cross lines.
    pub multiline: Multiline,
}

impl Pattern {
    /// One expression in Rust's syntax, as it stands.
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

/// What must surround a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Boundary {
    /// Anything.
    #[default]
    None,
    /// No letters, digits or underscores, as for `grep -w`.
    Word,
    /// The ends of the line, as for `grep -x`.
    Line,
}

/// How a pattern is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Syntax of the regex crate.
    #[default]
    Rust,
    /// POSIX basic regular expression with GNU's additions, as grep reads it without options.
    Basic,
}

/// Whether case counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Case {
    /// It does.
    #[default]
    Sensitive,
    /// It does not.
    Insensitive,
    /// It does if a pattern has an upper-case letter.
    Smart,
}

/// Whether a match may cross lines. Files are read as a whole for that, up to 16 MiB each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Multiline {
    /// Never; `\n` in a pattern is an error.
    Off,
    /// Always.
    On {
        /// `.` matches a line feed too.
        dot_all: bool,
    },
    /// If a pattern names a line feed (`\n`, or one as it is), which is told by a note.
    #[default]
    Auto,
}

/// A search.
#[derive(Debug, Clone)]
pub struct Search {
    /// What is looked for.
    pub pattern: Pattern,
    /// Where.
    pub scope: Scope,
    /// Lines that do not match instead.
    pub invert: bool,
    /// Lines of context before a match, at most [`MAX_CONTEXT`].
    pub before: usize,
    /// Lines of context after a match, at most [`MAX_CONTEXT`].
    pub after: usize,
    /// What a row of the answer is.
    pub output: OutputMode,
    /// Rows of the mode in the page, context not counted; 0 for [`MAX_ROWS`], which is also the most.
    pub limit: usize,
    /// Rows that are left out at the beginning.
    pub offset: u64,
    /// Where the page before ended, from its outcome; used instead of the offset.
    pub cursor: Option<String>,
    /// Matching lines taken of each file, with all their matches.
    pub max_per_file: Option<u64>,
    /// Characters shown of a line, a window around its first match.
    pub max_line: Option<usize>,
    /// Bytes of the page, each row counted with path and line number as `path:line:text` and a newline.
    pub max_bytes: usize,
    /// Go on counting after the page is full, until the deadline.
    pub count_total: bool,
    /// What becomes of files with a NUL byte.
    pub binary: Binary,
    /// How bytes become text.
    pub encoding: Encoding,
    /// Look for the reason if nothing is found; reads the files up to twice again, for at most half of the
    /// time that is left.
    pub explain_empty: bool,
    /// When to give up.
    pub stop: Stop,
}

impl Search {
    /// Lines that match `pattern` beneath the root, up to 100 KiB of them.
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

/// What a row of the answer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OutputMode {
    /// A matching line; with matches across lines, all lines that a match touches are one row.
    #[default]
    Lines,
    /// A match, without the rest of its line; nothing for an inverted search.
    OnlyMatching,
    /// A file with a match.
    Files,
    /// A file without.
    FilesWithout,
    /// A file with its number of matching lines; matches across lines count the lines they touch.
    CountLines,
    /// A file with its number of matches.
    CountMatches,
}

/// What becomes of files with a NUL byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Binary {
    /// They are left out and counted.
    #[default]
    Skip,
    /// They are text.
    Text,
    /// They have one row without text if they match.
    Report,
}

/// How bytes become text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-16 if the file begins with its byte order mark, else bytes as they are; the mark of UTF-8 is
    /// not part of the text.
    #[default]
    Auto,
    /// Bytes as they are.
    None,
    /// A label of the WHATWG standard, such as `latin1` or `shift_jis`.
    Label(String),
}
