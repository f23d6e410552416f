//! Counts the lines that similar patterns match, to explain a search that finds nothing. Called by `file`.
//!
//! The search counts while it has the content of a file in memory, so the explanation reads no file again.

use crate::line_matcher::{LineEnds, LineMatcher};
use crate::pattern;
use crate::request::Pattern;
use grep_searcher::{Searcher, Sink, SinkMatch};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A similar pattern, and the number of lines that it matches.
#[derive(Debug)]
struct OtherPattern {
    pattern: Pattern,
    /// Built for the first file without a match, because most searches have none to explain. `None` if the pattern is
    /// not valid.
    matcher: OnceLock<Option<LineMatcher>>,
    n_lines: AtomicU64,
}

impl OtherPattern {
    fn matcher(&self, ends: LineEnds) -> Option<&LineMatcher> {
        self.matcher.get_or_init(|| pattern::similar(&self.pattern, ends)).as_ref()
    }
}

/// Similar patterns of one search.
#[derive(Debug)]
pub(crate) struct OtherPatterns {
    patterns: Vec<OtherPattern>,
    /// Number of the pattern that matches all lines that the requested pattern matches.
    superset: Option<usize>,
    /// Line ends of the requested pattern.
    ends: LineEnds,
    /// The requested pattern matches a line, so no explanation is needed.
    is_over: AtomicBool,
    /// Only the start of a large file was searched.
    is_partial: AtomicBool,
}

impl OtherPatterns {
    /// `superset` is the number of the pattern that matches all lines that the requested pattern matches.
    pub(crate) fn new(patterns: Vec<Pattern>, superset: Option<usize>, ends: LineEnds) -> Self {
        let other = |pattern| OtherPattern {
            pattern,
            matcher: OnceLock::new(),
            n_lines: AtomicU64::new(0),
        };
        Self {
            patterns: patterns.into_iter().map(other).collect(),
            superset,
            ends,
            is_over: AtomicBool::new(false),
            is_partial: AtomicBool::new(false),
        }
    }

    /// Stops counting, because the requested pattern matches.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the number of lines of each pattern, in order. 0 if the requested pattern matches.
    pub(crate) fn counts(&self) -> Vec<u64> {
        let count = |other: &OtherPattern| other.n_lines.load(Ordering::Relaxed);
        let is_over = self.is_over();
        self.patterns.iter().map(|other| if is_over { 0 } else { count(other) }).collect()
    }

    /// Whether the counts are complete.
    pub(crate) fn is_exact(&self) -> bool {
        !self.is_partial.load(Ordering::Relaxed)
    }
}

/// The similar patterns for one thread.
pub(super) struct ThreadPatterns<'a> {
    shared: &'a OtherPatterns,
    /// Separate copies: threads that share a matcher wait for each other. Empty until a file has no match.
    matchers: Vec<Option<LineMatcher>>,
    /// The current file contains no match of the superset.
    is_superset_ruled_out: bool,
}

impl<'a> ThreadPatterns<'a> {
    pub(super) fn new(shared: &'a OtherPatterns) -> Self {
        Self { shared, matchers: Vec::new(), is_superset_ruled_out: false }
    }

    pub(super) fn shared(&self) -> &'a OtherPatterns {
        self.shared
    }

    /// Returns a pattern that matches all lines that the requested pattern matches, if a file had no match so far.
    pub(super) fn superset(&self) -> Option<&LineMatcher> {
        self.matchers.get(self.shared.superset?)?.as_ref()
    }

    /// Sets whether the current file contains no match of the superset.
    pub(super) fn rules_out_superset(&mut self, is_ruled_out: bool) {
        self.is_superset_ruled_out = is_ruled_out;
    }

    /// Counts the lines in the content of a file, or in its start if `is_whole` is false. `may_match` is a quick
    /// check.
    pub(super) fn count(
        &mut self,
        searcher: &mut Searcher,
        content: &[u8],
        is_whole: bool,
        may_match: impl Fn(&LineMatcher, &[u8]) -> bool,
    ) {
        let end = if is_whole { None } else { memchr::memrchr(b'\n', content) };
        let content = content.get(..end.map_or(content.len(), |last| last + 1)).unwrap_or_default();

        let ruled_out = self.shared.superset.filter(|_| self.is_superset_ruled_out);
        self.is_superset_ruled_out = false;

        if self.matchers.is_empty() {
            let OtherPatterns { patterns, ends, .. } = self.shared;
            self.matchers =
                patterns.iter().map(|pattern| pattern.matcher(*ends).cloned()).collect();
        }

        for (n, (other, matcher)) in self.shared.patterns.iter().zip(&self.matchers).enumerate() {
            let Some(matcher) = matcher else { continue };
            if Some(n) != ruled_out && may_match(matcher, content) {
                let mut sink = LineCounter(0);
                // The content is in memory, so this fails only for a line that is too long.
                searcher.search_slice(matcher, content, &mut sink).ok();
                other.n_lines.fetch_add(sink.0, Ordering::Relaxed);
            }
        }

        if !is_whole {
            self.shared.is_partial.store(true, Ordering::Relaxed);
        }
    }
}

/// Counts matches that the searcher reports.
struct LineCounter(u64);

impl Sink for LineCounter {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, _: &SinkMatch<'_>) -> io::Result<bool> {
        self.0 += 1;
        Ok(true)
    }
}
