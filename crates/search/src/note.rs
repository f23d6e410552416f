//! Sentences that explain an answer. Without them, an empty or unexpected answer is worse than an error.

use std::fmt;

/// Fact about an answer. `Display` writes the sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The pattern was read as a basic regular expression.
    RetriedAsBasic,
    /// A pattern can match a line feed, so matches may cross lines.
    MultilineBecauseOfNewline,
    /// No file was searched.
    NothingSearched {
        /// Files that globs, types, excluded names or the depth left out.
        filtered: u64,
    },
    /// Ignore rules or leading dots left something out, and nothing was found.
    IgnoredOrHidden {
        /// Files and directories that ignore rules left out.
        ignored: u64,
        /// Files and directories whose name begins with a dot.
        hidden: u64,
    },
    /// The pattern finds nothing, but its text occurs.
    LiteralOccurs {
        /// Lines with it.
        count: u64,
        /// Whether all lines were searched. Of a large file, only the start is.
        is_exact: bool,
    },
    /// The pattern finds something if case does not count.
    OtherCaseMatches {
        /// Lines that it finds then.
        count: u64,
        /// Whether all lines were searched. Of a large file, only the start is.
        is_exact: bool,
    },
    /// The offset is larger than the number of rows.
    OffsetPastEnd {
        /// Number of rows.
        total: u64,
    },
    /// A start path is ignored itself, and was searched without ignore rules.
    IgnoredRootSearched {
        /// The start.
        start: String,
    },
    /// A glob matched nothing at the root and was tried at any depth.
    GlobRetried {
        /// The glob as it was tried.
        glob: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RetriedAsBasic => f.write_str(
                "read as a basic regular expression, because the pattern matches nothing in Rust syntax",
            ),
            Self::MultilineBecauseOfNewline => {
                f.write_str("the pattern can match a line break, so matches may cross lines")
            }
            Self::NothingSearched { filtered: 0 } => f.write_str("no file was searched"),
            Self::NothingSearched { filtered } => {
                write!(f, "no file was searched; filters left out {filtered}")
            }
            Self::IgnoredOrHidden { ignored, hidden } => write!(
                f,
                "{ignored} ignored and {hidden} hidden files or directories were not searched"
            ),
            Self::LiteralOccurs { count, is_exact } => write!(
                f,
                "the pattern is a regular expression; taken as plain text it occurs in {}{count} lines",
                at_least(*is_exact)
            ),
            Self::OtherCaseMatches { count, is_exact } => {
                let at_least = at_least(*is_exact);
                write!(f, "{at_least}{count} lines match if upper and lower case are the same")
            }
            Self::OffsetPastEnd { total } => {
                write!(f, "the offset is past the end; there are {total} results")
            }
            Self::IgnoredRootSearched { start } => {
                write!(f, "'{start}' is ignored itself and was searched without ignore rules")
            }
            Self::GlobRetried { glob } => {
                write!(f, "the glob matched nothing at the root and was read as '{glob}'")
            }
        }
    }
}

fn at_least(is_exact: bool) -> &'static str {
    if is_exact { "" } else { "at least " }
}
