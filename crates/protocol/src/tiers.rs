//! Tiers of confinement in words, for display. Programs read the letter.

use crate::worker::UNCONFINED;

/// Returns the words for a tier.
#[must_use]
pub fn in_words(tier: &str) -> &str {
    match tier {
        "A" | "B" => "confined",
        // Landlock alone, and the profile of macOS, which has never run.
        "D" | "M" => "partly confined",
        UNCONFINED => "not confined",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_has_words_and_an_unknown_one_is_shown_as_it_is() {
        let words = ["A", "B", "D", "M", "unconfined", "E"].map(in_words);
        let expected =
            ["confined", "confined", "partly confined", "partly confined", "not confined", "E"];
        assert_eq!(words, expected);
    }
}
