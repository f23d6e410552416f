//! Names of the confinement tiers for display. Programs use the letter.

use crate::worker::UNCONFINED;

/// Returns the display text of a tier.
#[must_use]
pub fn in_words(tier: &str) -> &str {
    match tier {
        "A" | "B" => "confined",
        // Landlock alone, and the profile of macOS, which is not tested.
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
