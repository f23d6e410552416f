//! Matches lines without their ends, `\n` or `\r\n`, in text that has both.
//!
//! A match is first looked for in many lines at once, because that is fast. There a carriage return is text, so a line
//! that has one is checked again without its end.

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures, NoError};
use grep_regex::RegexMatcher;

/// Bytes that end a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnds {
    /// `\n`. A carriage return is text.
    Lf,
    /// `\n` or `\r\n`.
    Both,
}

impl LineEnds {
    /// Returns the same for the searcher.
    pub(crate) fn terminator(self) -> LineTerminator {
        match self {
            Self::Lf => LineTerminator::byte(b'\n'),
            Self::Both => LineTerminator::crlf(),
        }
    }

    /// Returns a line without its end. The line may have been cut before its line feed.
    pub(crate) fn without_end(self, line: &[u8]) -> &[u8] {
        let Some(rest) = line.strip_suffix(b"\n") else { return line };
        match self {
            Self::Lf => rest,
            Self::Both => rest.strip_suffix(b"\r").unwrap_or(rest),
        }
    }
}

/// When a match in many lines at once is a match in its line, also if the line has a carriage return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    Never,
    /// If it ends before a line feed.
    BeforeLf,
    Always,
}

/// A pattern compiled for lines.
#[derive(Debug, Clone)]
pub(crate) struct LineMatcher {
    exact: RegexMatcher,
    /// Finds at least the lines that `exact` finds, in many lines at once. `None` if `exact` does.
    wide: Option<RegexMatcher>,
    certainty: Certainty,
    pub(crate) ends: LineEnds,
}

impl LineMatcher {
    /// Creates a matcher for which a carriage return is text, or whose matches may cross lines.
    pub(crate) fn plain(exact: RegexMatcher) -> Self {
        Self { exact, wide: None, certainty: Certainty::Always, ends: LineEnds::Lf }
    }

    /// Creates a matcher of lines that end with `\n` or `\r\n`.
    pub(crate) fn of_both_ends(
        exact: RegexMatcher,
        wide: Option<RegexMatcher>,
        certainty: Certainty,
    ) -> Self {
        Self { exact, wide, certainty, ends: LineEnds::Both }
    }

    /// Whether a match that ends at `at` in `text` is one in its line.
    fn is_sure(&self, text: &[u8], at: usize) -> bool {
        match self.certainty {
            Certainty::Always => true,
            Certainty::BeforeLf if text.get(at) == Some(&b'\n') => true,
            Certainty::BeforeLf | Certainty::Never => !Self::has_cr(text, at),
        }
    }

    /// Whether the line around a match in `text` has a carriage return.
    fn has_cr(text: &[u8], at: usize) -> bool {
        let (before, after) = text.split_at(at.min(text.len()));
        let start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        memchr::memchr(b'\r', before.get(start..).unwrap_or_default()).is_some()
            || memchr::memchr2(b'\r', b'\n', after)
                .is_some_and(|next| after.get(next) == Some(&b'\r'))
    }
}

impl Matcher for LineMatcher {
    type Captures = NoCaptures;
    type Error = NoError;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, NoError> {
        self.exact.find_at(haystack, at)
    }

    fn new_captures(&self) -> Result<NoCaptures, NoError> {
        Ok(NoCaptures::new())
    }

    /// The haystack is one line.
    fn shortest_match_at(&self, haystack: &[u8], at: usize) -> Result<Option<usize>, NoError> {
        let line = self.ends.without_end(haystack);
        if line.len() < at {
            return Ok(None);
        }
        self.exact.shortest_match_at(line, at)
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.exact.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.exact.line_terminator().map(|_| self.ends.terminator())
    }

    fn find_candidate_line(&self, haystack: &[u8]) -> Result<Option<LineMatchKind>, NoError> {
        let stays = self.exact.non_matching_bytes().is_some_and(|bytes| bytes.contains(b'\n'));
        if self.exact.line_terminator().is_none() && !stays {
            // The pattern has an anchor of the whole text, which matches in each line.
            return Ok(Some(LineMatchKind::Candidate(0)));
        }

        let candidate = self.wide.as_ref().unwrap_or(&self.exact).find_candidate_line(haystack)?;
        Ok(match candidate {
            Some(LineMatchKind::Confirmed(at)) if !self.is_sure(haystack, at) => {
                Some(LineMatchKind::Candidate(at))
            }
            candidate => candidate,
        })
    }
}
