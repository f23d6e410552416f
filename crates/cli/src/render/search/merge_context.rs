//! Merges pages of hits into one stream, so that context shared by two pages is shown once. Used by `quack grep`.

use super::data::Hit;
use std::sync::Arc;

/// Merger of pages. Holds context lines back, because a match of the next page may be among them.
#[derive(Debug, Default)]
pub(crate) struct ContextMerger {
    held: Vec<Hit>,
    /// File and number of the last returned line.
    last: Option<(Arc<str>, u64)>,
}

impl ContextMerger {
    /// Takes the hits of a page in order, and returns those that can be shown.
    pub(crate) fn feed(&mut self, hits: Vec<Hit>) -> Vec<Hit> {
        let mut ready = Vec::with_capacity(hits.len());
        for hit in hits {
            if self.held.first().is_some_and(|held| held.path != hit.path) {
                self.release(&mut ready);
            }
            if hit.is_match {
                self.held.retain(|held| held.end_line < hit.line);
                self.release(&mut ready);
                self.last = Some((hit.path.clone(), hit.end_line));
                ready.push(hit);
            } else if !self.is_known(&hit) {
                self.held.push(hit);
            }
        }
        ready
    }

    /// Returns the held lines after the last page.
    pub(crate) fn finish(&mut self) -> Vec<Hit> {
        let mut ready = Vec::new();
        self.release(&mut ready);
        ready
    }

    fn release(&mut self, ready: &mut Vec<Hit>) {
        if let Some(hit) = self.held.last() {
            self.last = Some((hit.path.clone(), hit.end_line));
        }
        ready.append(&mut self.held);
    }

    fn is_known(&self, hit: &Hit) -> bool {
        self.last.as_ref().is_some_and(|(path, line)| *path == hit.path && hit.line <= *line)
            || self.held.iter().any(|held| held.line == hit.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a1` is a match in line 1 of file a, `a1-` a line of context.
    fn page(words: &str) -> Vec<Hit> {
        let hit = |word: &str| {
            let number = word.get(1..).unwrap().trim_end_matches('-');
            Hit { is_match: !word.ends_with('-'), ..Hit::of(&word[..1], number.parse().unwrap()) }
        };
        words.split_whitespace().map(hit).collect()
    }

    fn words(hits: &[Hit]) -> String {
        let word =
            |hit: &Hit| format!("{}{}{}", hit.path, hit.line, if hit.is_match { "" } else { "-" });
        hits.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn no_line_is_shown_twice_whatever_the_pages() {
        for (pages, shown) in [
            (&["a1- a2 a3-", "a3 a4-"][..], "a1- a2 a3 a4-"),
            (&["a2 a3- a4-", "a3- a4- a5 a6-"], "a2 a3- a4- a5 a6-"),
            (&["a2 a3- a4-", "a2- a3 a4-"], "a2 a3 a4-"),
            (&["a2 a3-", "b3 b4-", "b3- b4- b5"], "a2 a3- b3 b4- b5"),
            (&["a2 a3-", "a9- a10 a11-"], "a2 a3- a9- a10 a11-"),
            (&["a2 a2 a2", "a2 a3"], "a2 a2 a2 a2 a3"),
            (&["a2 a3-", ""], "a2 a3-"),
            (&[], ""),
        ] {
            let mut joiner = ContextMerger::default();
            let mut hits: Vec<Hit> =
                pages.iter().flat_map(|words| joiner.feed(page(words))).collect();
            hits.extend(joiner.finish());
            assert_eq!(words(&hits), shown, "{pages:?}");
        }
    }
}
