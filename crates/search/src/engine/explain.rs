//! Explains an empty search: reports the excluded files and the matches of similar patterns. Called by the
//! engine if the request asks for it.

use crate::line_matcher::LineEnds;
use crate::note::Note;
use crate::outcome::SearchOutcome;
use crate::request::{Boundary, Case, Pattern, Search};
use crate::scan::OtherPatterns;

/// Patterns that are similar to the requested pattern.
#[derive(Debug)]
pub(super) struct Similar {
    kinds: Vec<Kind>,
    pub(super) patterns: OtherPatterns,
}

/// The difference from the requested pattern.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The pattern as plain text.
    Literal,
    /// The pattern if case does not matter.
    AnyCase,
}

impl Similar {
    /// Returns the patterns whose lines the search should count, or `None` if it need not explain its answer.
    pub(super) fn of(request: &Search, ends: LineEnds) -> Option<Self> {
        if !request.explain_empty || request.invert || request.cursor.is_some() {
            return None;
        }

        let requested = &request.pattern;
        let mut patterns = Vec::new();
        if !requested.literal && requested.patterns.iter().any(|text| has_syntax(text)) {
            let boundary = Boundary::None;
            let literal = true;
            let other = Pattern { literal, boundary, retry_as_basic: false, ..requested.clone() };
            patterns.push((Kind::Literal, other));
        }

        let is_sensitive = match requested.case {
            Case::Sensitive => true,
            Case::Insensitive => false,
            Case::Smart => {
                requested.patterns.iter().any(|text| text.chars().any(char::is_uppercase))
            }
        };

        let has_letters =
            requested.patterns.iter().any(|text| text.chars().any(char::is_alphabetic));
        if is_sensitive && has_letters {
            patterns
                .push((Kind::AnyCase, Pattern { case: Case::Insensitive, ..requested.clone() }));
        }

        let (kinds, patterns): (Vec<_>, Vec<_>) = patterns.into_iter().unzip();
        let superset = kinds.iter().position(|kind| matches!(kind, Kind::AnyCase));
        let superset = superset
            .filter(|_| requested.literal || !requested.patterns.iter().any(|text| excludes(text)));
        Some(Self { kinds, patterns: OtherPatterns::new(patterns, superset, ends) })
    }

    fn notes(&self) -> impl Iterator<Item = Note> {
        let is_exact = self.patterns.is_exact();
        let counts = self.kinds.iter().zip(self.patterns.counts());
        counts.filter(|(_, count)| *count != 0).map(move |(kind, count)| match kind {
            Kind::Literal => Note::LiteralOccurs { count, is_exact },
            Kind::AnyCase => Note::OtherCaseMatches { count, is_exact },
        })
    }
}

/// Adds the reasons, the most likely one first.
pub(super) fn explain(similar: Option<&Similar>, outcome: &mut SearchOutcome) {
    if outcome.notes.iter().any(|note| matches!(note, Note::OffsetPastEnd { .. })) {
        return;
    }

    let skipped = outcome.skipped;
    if outcome.files_searched == 0 {
        outcome.notes.push(Note::NothingSearched { filtered: skipped.filtered });
    }
    if skipped.ignored + skipped.hidden != 0 {
        let (ignored, hidden) = (skipped.ignored, skipped.hidden);
        outcome.notes.push(Note::IgnoredOrHidden { ignored, hidden });
    }
    outcome.notes.extend(similar.into_iter().flat_map(Similar::notes));
}

/// Whether a pattern may match less if case does not matter: `[^a]` matches `A` only if it does.
fn excludes(pattern: &str) -> bool {
    ["[^", "[:^", "\\P", "{^", "--", "~~"].iter().any(|syntax| pattern.contains(syntax))
}

fn has_syntax(pattern: &str) -> bool {
    pattern.contains(['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$'])
}
