//! Estimates the cost of a pattern per byte of text, and limits the size of a piece accordingly. Called by
//! `pattern`.
//!
//! The regex engine cannot be interrupted. Its time is linear in the text, but some patterns, such as
//! `a[ab]{800}c`, defeat all its optimizations. Then each byte costs as many steps as the pattern repeats
//! characters. A pattern with many repetitions is therefore searched in shorter pieces, between which a search
//! can be stopped.

use crate::error::SearchError;
use regex_syntax::hir::{Hir, HirKind};

/// Maximum number of characters inside repetitions, each counted once per repetition.
const MAX_REPEATED: usize = 10_000;

/// Number of steps that take about 3 s: the time by which a search may overrun its deadline.
const MAX_STEPS: usize = 128 * 1024 * 1024;

/// Minimum size of a piece in bytes.
const MIN_PIECE: usize = 16 * 1024;

/// Returns the maximum number of bytes to search at once with these patterns.
pub(crate) fn piece(patterns: &[String]) -> Result<usize, SearchError> {
    let parse = |pattern: &String| {
        // A parser can be used only once.
        let mut parser = regex_syntax::ParserBuilder::new().utf8(false).build();
        parser.parse(pattern).ok()
    };

    // Patterns that fail to parse here were rejected earlier.
    let read = patterns.iter().filter_map(parse);
    let repeated = read.fold(0, |sum: usize, hir| sum.saturating_add(weigh(&hir).1));

    if MAX_REPEATED < repeated {
        let reason = format!("pattern repeats more than {MAX_REPEATED} characters");
        return Err(SearchError::BadPattern { full: reason.clone(), reason });
    }

    Ok((MAX_STEPS / repeated.max(1)).max(MIN_PIECE))
}

/// Counts the characters of an expression, and the repeated characters among them.
fn weigh(hir: &Hir) -> (usize, usize) {
    let sum = |parts: &[Hir]| {
        parts.iter().map(weigh).fold((0_usize, 0_usize), |sum, part| {
            (sum.0.saturating_add(part.0), sum.1.saturating_add(part.1))
        })
    };

    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => (0, 0),
        HirKind::Literal(literal) => (literal.0.len(), 0),
        HirKind::Class(_) => (1, 0),
        HirKind::Capture(capture) => weigh(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
        HirKind::Repetition(repetition) => {
            // An unlimited repetition has only as many copies as its minimum.
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            let times = usize::try_from(times).unwrap_or(usize::MAX);
            let (all, repeated) = weigh(&repetition.sub);
            let all = all.saturating_mul(times);
            // An optional part, such as `a?`, is not repeated.
            let is_many = repetition.max != Some(1);
            (all, if is_many { all } else { repeated })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_repeats_makes_pieces_short() {
        let of = |pattern: &str| piece(&[pattern.to_owned()]);
        let words = vec!["word"; 10_000].join("|");
        for cheap in ["a", "a*b", r"fn\s+\w+\(", "[a-z]{10}", "(a|b)?", &words] {
            assert!(8 * 1024 * 1024 <= of(cheap).unwrap(), "{cheap}");
        }
        assert_eq!(of("a[ab]{800}c"), Ok(MAX_STEPS / 800));
        assert_eq!(of("((ab){10}){20}"), Ok(MAX_STEPS / 400));
        assert_eq!(of("a{9999}"), Ok(MIN_PIECE));
        assert!(matches!(of("a{10001}"), Err(SearchError::BadPattern { .. })));
        assert!(matches!(of("((a{100}){100}){100}"), Err(SearchError::BadPattern { .. })));
    }
}
