//! "Did you mean": the names that resemble a mistyped one. Used for sessions, tools and subcommands.

/// Maximum number of suggestions.
pub(crate) const MAX_SHOWN: usize = 3;

/// Length of the compared prefix of a name, in characters. The comparison takes quadratic time.
const MAX_COMPARED: usize = 100;

/// Minimum Jaro-Winkler similarity, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;

/// Returns the names that resemble `typed`, the most similar first, at most [`MAX_SHOWN`]. Ignores case.
pub(crate) fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let short = |name: &str| name.chars().take(MAX_COMPARED).collect::<String>().to_lowercase();
    let typed = short(typed);
    let mut near: Vec<(f64, &str)> = names
        .map(|name| (strsim::jaro_winkler(&typed, &short(name)), name))
        .filter(|(similarity, _)| MIN_SIMILARITY <= *similarity)
        .collect();

    near.sort_by(|left, right| right.0.total_cmp(&left.0).then_with(|| left.1.cmp(right.1)));
    near.dedup_by(|left, right| left.1 == right.1);
    near.into_iter().take(MAX_SHOWN).map(|(_, name)| name).collect()
}
