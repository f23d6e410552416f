//! Suggests the nearest known key, for the error about an unknown one.

use crate::keys;
use std::collections::BTreeSet;

/// Maximum length of a name that is compared, in bytes. The comparison takes time and memory in
/// proportion to it.
const MAX_COMPARED_BYTES: usize = 64;

/// Shortest prefix of a key that is accepted as its abbreviation.
const MIN_BEGINNING_BYTES: usize = 3;

/// Returns the key or table that `unknown` is a misspelling of. At most a third of the characters may differ, and at
/// most three. Finds a key with the wrong table, or without one, too.
pub(crate) fn nearest(unknown: &str) -> Option<&'static str> {
    if MAX_COMPARED_BYTES < unknown.len() {
        return None;
    }

    let unknown = unknown.to_lowercase();
    let tables: BTreeSet<&str> = keys().iter().map(|key| key.path().0).collect();
    let whole = tables.into_iter().chain(keys().iter().map(|key| key.name()));

    closest(&unknown, whole.map(|name| (name, name)))
        .or_else(|| {
            // The table may be wrong or missing.
            let last = unknown.rsplit('.').next().unwrap_or(&unknown);
            closest(last, keys().iter().map(|key| (key.path().1, key.name())))
        })
        .or_else(|| {
            // The prefix of exactly one key.
            let mut begins =
                keys().iter().map(|key| key.name()).filter(|name| name.starts_with(&unknown));
            let only = begins.next().filter(|_| MIN_BEGINNING_BYTES <= unknown.len());
            only.filter(|_| begins.next().is_none())
        })
}

/// Returns the candidate with the smallest distance, if that is small enough.
fn closest(
    unknown: &str,
    candidates: impl Iterator<Item = (&'static str, &'static str)>,
) -> Option<&'static str> {
    let limit = (unknown.chars().count() / 3).clamp(1, 3);
    candidates
        .map(|(candidate, answer)| (strsim::osa_distance(unknown, candidate), answer))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, answer)| answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_key_and_another_word_finds_none() {
        for (unknown, expected) in [
            ("worker.idle_minuts", Some("worker.idle_minutes")),
            ("worker.idle-minutes", Some("worker.idle_minutes")),
            ("Worker.Max_Live", Some("worker.max_live")),
            ("worker.max_lvie", Some("worker.max_live")),
            ("log.lvl", Some("log.level")),
            ("workr", Some("worker")),
            ("web-search", Some("web_search")),
            // In the wrong table, and in none.
            ("worker.env", Some("tools.env")),
            ("idle_minutes", Some("worker.idle_minutes")),
            ("launcher", Some("worker.launcher")),
            ("worker.idle", Some("worker.idle_minutes")),
            ("worker.nice", None),
            ("remote", Some("remote")),
            ("kitchen", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(unknown), expected, "{unknown}");
        }
        assert_eq!(nearest(&"worker.idle_minutes".repeat(50_000)), None);
    }
}
