//! Fuzzy matching: finds the characters of a text in a path, in order, and scores the match. Called by `names`.
//!
//! A character scores more at the beginning of a word or component, directly after the previous matched
//! character, and in the base name. Characters between two matched characters reduce the score.

use crate::request::Case;

/// Maximum number of text characters that are compared.
const MAX_TEXT: usize = 256;

/// Maximum number of path characters that are compared: the last ones.
const MAX_PATH: usize = 1024;

const MATCH: i32 = 16;
const IN_BASE_NAME: i32 = 4;
const AT_WORD: i32 = 8;
const BEHIND: i32 = 8;
/// Maximum penalty for the characters between two matched characters.
const MAX_GAP: i32 = 12;

/// Text prepared for matching.
#[derive(Debug)]
pub(super) struct Fuzzy {
    text: Vec<char>,
    ignore_case: bool,
}

impl Fuzzy {
    pub(super) fn new(text: &str, case: Case) -> Self {
        let ignore_case = match case {
            Case::Sensitive => false,
            Case::Insensitive => true,
            Case::Smart => !text.chars().any(char::is_uppercase),
        };
        let text = text.chars().filter(|c| !c.is_whitespace()).take(MAX_TEXT);
        Self { text: text.map(|c| fold(c, ignore_case)).collect(), ignore_case }
    }

    /// Whether the path contains all characters in order.
    pub(super) fn is_match(&self, path: &[u8]) -> bool {
        let path = String::from_utf8_lossy(path);
        let mut rest = path.chars().map(|c| fold(c, self.ignore_case));
        self.text.iter().all(|expected| rest.any(|c| c == *expected))
    }

    /// Returns the score of a path, or `None` if it does not match.
    pub(super) fn score(&self, path: &[u8]) -> Option<u32> {
        if !self.is_match(path) {
            return None;
        }

        let path = String::from_utf8_lossy(path);
        let chars: Vec<char> = path.chars().collect();
        // Of a long path, only the end is scored: it has the base name.
        let chars = chars.get(chars.len().saturating_sub(MAX_PATH)..).unwrap_or_default();
        let base = chars.iter().rposition(|c| *c == '/').map_or(0, |slash| slash + 1);

        let worth: Vec<i32> = (0..chars.len())
            .map(|at| {
                let before = at.checked_sub(1).and_then(|at| chars.get(at)).copied();
                let here = chars.get(at).copied().unwrap_or_default();
                let is_word = is_word_start(before, here);
                MATCH
                    + if base <= at { IN_BASE_NAME } else { 0 }
                    + if is_word { AT_WORD } else { 0 }
            })
            .collect();

        // Best score of the text up to the current character, by position of that character.
        let mut ends: Vec<Option<i32>> = Vec::new();
        for (n, expected) in self.text.iter().enumerate() {
            let mut next = Vec::with_capacity(chars.len());
            // Best earlier score that is not adjacent, minus the gap penalty.
            let mut far: Option<i32> = None;
            for (at, c) in chars.iter().enumerate() {
                let near = at.checked_sub(1).and_then(|at| ends.get(at).copied().flatten());
                let older = at.checked_sub(2).and_then(|at| ends.get(at).copied().flatten());
                far = far.map(|best| best - 1).max(older.map(|score| score - 1));
                let before =
                    if n == 0 { Some(0) } else { near.map(|score| score + BEHIND).max(far) };

                let fits = fold(*c, self.ignore_case) == *expected;
                let worth = worth.get(at).copied().unwrap_or(0);
                next.push(before.filter(|_| fits).map(|score| score + worth));
            }
            ends = next;
        }

        let best = ends.into_iter().flatten().max().unwrap_or(0);
        // A long path scores a little less than a short one.
        let length = i32::try_from(chars.len() / 16).unwrap_or(0).min(MAX_GAP);
        Some(u32::try_from((best - length).max(1)).unwrap_or(1))
    }
}

fn fold(c: char, ignore_case: bool) -> char {
    if ignore_case { c.to_lowercase().next().unwrap_or(c) } else { c }
}

fn is_word_start(before: Option<char>, here: char) -> bool {
    match before {
        None => true,
        Some(before) => {
            (!before.is_alphanumeric() && here.is_alphanumeric())
                || (before.is_lowercase() && here.is_uppercase())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best<'p>(text: &str, paths: &[&'p str]) -> &'p str {
        let fuzzy = Fuzzy::new(text, Case::Smart);
        let score = |path: &&&str| fuzzy.score(path.as_bytes());
        paths.iter().max_by_key(score).unwrap()
    }

    #[test]
    fn the_better_fit_has_the_higher_score() {
        assert_eq!(best("main", &["m/a/i/n.rs", "src/main.rs", "domain/x.rs"]), "src/main.rs");
        assert_eq!(best("fb", &["afb.rs", "foo_bar.rs", "f/xxb.rs"]), "foo_bar.rs");
        assert_eq!(best("req", &["request/other.rs", "src/request.rs"]), "src/request.rs");
    }

    #[test]
    fn characters_must_come_in_their_order_and_case_counts_if_it_is_mixed() {
        let fits = |text: &str, path: &str| Fuzzy::new(text, Case::Smart).is_match(path.as_bytes());
        assert!(fits("abc", "xA/b_C"));
        assert!(!fits("acb", "xA/b_C"));
        assert!(fits("AC", "xA/b_C"));
        assert!(!fits("aC", "xA/b_C"));
        assert!(fits("", "anything"));
        assert_eq!(Fuzzy::new("z", Case::Smart).score(b"abc"), None);
    }
}
