//! Replaces invisible characters and characters that reorder others, so that the displayed text matches the actual
//! text. Used for all foreign text on a terminal ([`crate::display`], [`crate::render`]).
//!
//! Such characters become `�`. Exceptions are those that scripts and emoji require, in a valid position: a joiner
//! between two non-ASCII letters, a selector after a matching base, a zero-width space in scripts without spaces
//! between words. Blanks and fillers that look like a space or like nothing always become `�`.

/// Filter for a stream of characters. Independent of how the text is split. The caller handles control characters.
#[derive(Debug, Default)]
pub(crate) struct InvisibleCharFilter {
    /// Last character that can precede a joiner or a selector.
    base: Option<char>,
    /// Whether `base` already has a selector.
    is_selected: bool,
    /// Pending joiner after `base`. It is valid only before a character that joins.
    joiner: Option<char>,
}

impl InvisibleCharFilter {
    /// Appends `c` or its replacement to `out`. A joiner is held back until the next character.
    pub(crate) fn feed(&mut self, c: char, out: &mut String) {
        if let Some(joiner) = self.joiner.take() {
            let joins = is_joined(c);
            out.push(if joins { joiner } else { char::REPLACEMENT_CHARACTER });
            self.base = self.base.filter(|_| joins);
        }
        let base = self.base;
        match c {
            '\u{200c}' | '\u{200d}' if base.is_some_and(is_joined) => {
                self.joiner = Some(c);
                self.is_selected = false;
            }
            c if is_selector(c) && !self.is_selected && base.is_some_and(|it| selects(c, it)) => {
                self.is_selected = true;
                out.push(c);
            }
            '\u{200b}' if base.is_some_and(is_unspaced) => {
                self.base = None;
                out.push(c);
            }
            c if is_unseen(c) => {
                (self.base, self.is_selected) = (None, false);
                out.push(char::REPLACEMENT_CHARACTER);
            }
            c => {
                (self.base, self.is_selected) = (Some(c), false);
                out.push(c);
            }
        }
    }

    /// Ends the text: a pending joiner is invalid.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if self.joiner.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
        (self.base, self.is_selected) = (None, false);
    }
}

/// Returns a text of several lines without control characters and invisible characters. `None` if it has none.
pub(crate) fn seen(text: &str) -> Option<String> {
    let mut seen = String::with_capacity(text.len());
    let mut filter = InvisibleCharFilter::default();
    for c in text.chars() {
        let is_shown = !c.is_control() || matches!(c, '\n' | '\t');
        filter.feed(if is_shown { c } else { char::REPLACEMENT_CHARACTER }, &mut seen);
    }
    filter.finish(&mut seen);
    (seen != text).then(|| seen.replace(char::REPLACEMENT_CHARACTER, ""))
}

/// Whether a character is invisible on its own, changes the text direction or separates lines.
pub(crate) fn is_unseen(c: char) -> bool {
    matches!(c,
        // Soft hyphen; grapheme joiner; Arabic letter mark; Mongolian vowel separator.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}'
        // Fillers of Hangul, which are letters; inherent vowels of Khmer; the pattern of Braille without a dot.
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}'
        // Zero-width spaces and joiners, and direction marks.
        | '\u{200b}'..='\u{200f}'
        // Line and paragraph separators, embeddings and overrides.
        | '\u{2028}'..='\u{202e}'
        // Word joiner, invisible operators, isolates and their deprecated predecessors.
        | '\u{2060}'..='\u{206f}'
        // Byte order mark, annotations; formats of shorthand and music.
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        // Tags, which can hide a text, and selectors.
        | '\u{e0000}'..='\u{e0fff}')
        || is_selector(c)
}

fn is_selector(c: char) -> bool {
    is_mongolian_selector(c) || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a character selects the form of a Mongolian letter.
fn is_mongolian_selector(c: char) -> bool {
    matches!(c, '\u{180b}'..='\u{180d}' | '\u{180f}')
}

/// Whether a selector is valid after `base`.
fn selects(selector: char, base: char) -> bool {
    let is_ideograph = matches!(base, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}');
    match selector {
        c if is_mongolian_selector(c) => matches!(base, '\u{1820}'..='\u{18aa}'),
        '\u{fe00}'..='\u{fe0f}' => is_joined(base) || matches!(base, '0'..='9' | '#' | '*'),
        _ => is_ideograph,
    }
}

/// Whether a joiner is valid next to `c`: letters of scripts that use joiners, and emoji.
fn is_joined(c: char) -> bool {
    !c.is_ascii()
        && !c.is_whitespace()
        && !c.is_control()
        && !is_unseen(c)
        && c != char::REPLACEMENT_CHARACTER
}

/// Whether `c` belongs to Thai, Lao, Myanmar or Khmer, which have no space between words.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sieved(text: &str) -> String {
        let (mut sieve, mut out) = (InvisibleCharFilter::default(), String::new());
        text.chars().for_each(|c| sieve.feed(c, &mut out));
        sieve.finish(&mut out);
        out
    }

    #[test]
    fn what_is_not_seen_is_made_visible() {
        for c in "\u{ad}\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2064}\
            \u{2066}\u{2069}\u{206f}\u{3164}\u{fe0f}\u{feff}\u{fff9}\u{e0001}\u{e0041}\u{e007f}\u{e0100}\
            \u{34f}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}\u{180c}\u{180d}\u{180e}\u{180f}\u{2800}\u{ffa0}"
            .chars()
        {
            assert_eq!(sieved(&format!("du{c}ck")), "du\u{fffd}ck", "{c:?}");
            // Where joiners and selectors have a meaning.
            assert!(!sieved(&format!("é{c}{c}é")).contains([c, c].iter().collect::<String>().as_str()));
        }
    }

    #[test]
    fn what_scripts_and_emoji_need_stays() {
        for text in [
            "می\u{200c}خواهم",
            "क\u{94d}\u{200d}ष",
            "👩\u{200d}💻 👩🏽\u{200d}🚀 ❤\u{fe0f}\u{200d}🔥 🏳\u{fe0f}\u{200d}🌈",
            "1\u{fe0f}\u{20e3} #\u{fe0f}\u{20e3}",
            "葛\u{e0100}飾",
            "ភាសា\u{200b}ខ្មែរ",
            "ᠠ\u{180b}ᠨ",
            "naïve — “quotes” … → 漢字 עברית العربية",
        ] {
            assert_eq!(sieved(text), text);
        }
    }

    #[test]
    fn a_joiner_that_joins_nothing_and_a_second_selector_are_shown() {
        for (given, shown) in [
            ("\u{200d}é", "\u{fffd}é"),
            ("é\u{200d}", "é\u{fffd}"),
            ("é\u{200d}x", "é\u{fffd}x"),
            ("é\u{200d} é", "é\u{fffd} é"),
            ("é\u{200d}\u{200c}é", "é\u{fffd}\u{fffd}é"),
            ("❤\u{fe0f}\u{fe0e}\u{fe01}", "❤\u{fe0f}\u{fffd}\u{fffd}"),
            ("x\u{fe0f}\u{e0100}", "x\u{fffd}\u{fffd}"),
            ("ខ\u{200b}\u{200b}x\u{200b}", "ខ\u{200b}\u{fffd}x\u{fffd}"),
            ("é\u{200d}\u{fe0f}", "é\u{fffd}\u{fffd}"),
            ("ᠠ\u{180b}\u{180b}", "ᠠ\u{180b}\u{fffd}"),
            ("漢\u{180b}", "漢\u{fffd}"),
        ] {
            assert_eq!(sieved(given), shown, "{given:?}");
        }
    }

    /// Characters of which something can go wrong, more often than others.
    fn tricky() -> impl Strategy<Value = String> {
        let hidden = proptest::sample::select(
            "\u{200b}\u{200c}\u{200d}\u{200e}\u{61c}\u{2028}\u{202e}\u{2066}\u{fe0f}\u{e0100}\u{e0041}\u{feff}\u{180b}\u{2800}ᠠé👩漢ខx 1"
                .chars()
                .collect::<Vec<_>>(),
        );
        proptest::collection::vec(prop_oneof![hidden, any::<char>()], 0..40)
            .prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn no_direction_no_line_end_and_no_tag_gets_through(text in tricky()) {
            let shown = sieved(&text);
            prop_assert_eq!(shown.chars().count(), text.chars().count(), "each is shown or replaced");
            let mut before = None;
            for c in shown.chars() {
                match c {
                    '\u{200c}' | '\u{200d}' => {
                        prop_assert!(before.is_some_and(|it| is_joined(it) || is_selector(it)));
                    }
                    '\u{200b}' => prop_assert!(before.is_some_and(|it| is_unspaced(it) || is_selector(it))),
                    c if is_selector(c) => prop_assert!(before.is_some_and(|it| selects(c, it))),
                    c => prop_assert!(!is_unseen(c), "{:?} in {:?}", c, shown),
                }
                before = Some(c);
            }
            prop_assert_eq!(sieved(&shown), shown, "once is enough");
        }
    }
}
