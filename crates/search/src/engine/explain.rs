//! Explains an empty search: counts the excluded files and the matches of similar patterns. Called by the
//! engine if the request asks for it.

use super::Engine;
use crate::note::Note;
use crate::outcome::SearchOutcome;
use crate::pattern::{self, Interpretation};
use crate::request::{Boundary, Case, Pattern};

/// Adds the reasons, the most likely one first.
pub(crate) fn explain(
    engine: &Engine<'_>,
    readings: &[Interpretation],
    outcome: &mut SearchOutcome,
) {
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
    if outcome.files_searched == 0 || engine.request.invert {
        return;
    }
    let asked = &engine.request.pattern;
    let count = |other: Pattern| {
        let found = pattern::readings(&other).ok().and_then(|mut found| found.pop());
        found.map_or(0, |reading| engine.count(&reading))
    };
    if !asked.literal && asked.patterns.iter().any(|one| has_syntax(one)) {
        let count = count(Pattern {
            literal: true,
            boundary: Boundary::None,
            retry_as_basic: false,
            ..asked.clone()
        });
        if count != 0 {
            outcome.notes.push(Note::LiteralOccurs { count });
        }
    }
    let is_sensitive = match asked.case {
        Case::Sensitive => true,
        Case::Insensitive => false,
        Case::Smart => asked.patterns.iter().any(|one| one.chars().any(char::is_uppercase)),
    };
    let has_letters = asked.patterns.iter().any(|one| one.chars().any(char::is_alphabetic));
    if is_sensitive && has_letters && !readings.is_empty() {
        let count = count(Pattern { case: Case::Insensitive, ..asked.clone() });
        if count != 0 {
            outcome.notes.push(Note::OtherCaseMatches { count });
        }
    }
}

fn has_syntax(pattern: &str) -> bool {
    pattern.contains(['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$'])
}
