//! Text that other programs, models and clients wrote: the one set of unsafe characters, and the functions that test and
//! replace them. Used by every crate that displays such a text or accepts a name.
//!
//! An unsafe character controls a terminal, is invisible, reorders the text around it, or ends a line. Scripts and
//! emoji require some invisible characters. In a valid position these are safe: a joiner between two emoji or two
//! letters of a script that joins letters, a selector after a matching base, a zero-width space in scripts without
//! spaces between words. Tags are always unsafe, because they can hide a text. This includes the flags of England,
//! Scotland and Wales.
//!
//! This crate has the set because it is the lowest crate that all others may use, except search, home and
//! supervision, which display no foreign text.

use crate::limits::MAX_WEB_ADDRESS_BYTES;

/// Replacement of unsafe characters.
const MARK: char = char::REPLACEMENT_CHARACTER;

/// Joiners. A text that is cut must not end with one.
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];

/// Returns true for a character that controls a terminal, or that is invisible, reorders text or ends a line in some
/// position.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

/// Returns true for a character that is invisible on its own, changes the direction of text or separates lines. Does not
/// include control characters.
fn is_invisible(c: char) -> bool {
    matches!(c,
        // Soft hyphen; grapheme joiner; Arabic letter mark; Mongolian vowel separator.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}'
        // Fillers of Hangul, which are letters; inherent vowels of Khmer; the pattern of Braille without a dot; the
        // filler of Khitan.
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}' | '\u{16fe4}'
        // Zero-width spaces and joiners, and direction marks.
        | '\u{200b}'..='\u{200f}'
        // Line and paragraph separators, embeddings and overrides.
        | '\u{2028}'..='\u{202e}'
        // Word joiner, invisible operators, isolates and their deprecated predecessors.
        | '\u{2060}'..='\u{206f}'
        // Byte order mark, reserved invisible characters, annotations.
        | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
        // Formats of shorthand and music, and the note without a head.
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}'
        // Tags and selectors.
        | '\u{e0000}'..='\u{e0fff}')
        || is_selector(c)
}

/// Returns true for an address of the web: `http` or `https`, at most [`MAX_WEB_ADDRESS_BYTES`] printable ASCII characters
/// without spaces. Its host is not checked.
#[must_use]
pub fn is_web_address(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    text.len() <= MAX_WEB_ADDRESS_BYTES
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && scheme.is_some_and(|scheme| scheme == "http" || scheme == "https")
}

/// Returns `text` on one line. Each unsafe character becomes `�`.
#[must_use]
pub fn one_line(text: &str) -> String {
    filtered(text, |_| false)
}

/// Like [`one_line`], with at most `max_chars` characters. A longer text ends with `…`.
#[must_use]
pub fn one_line_cut(text: &str, max_chars: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(max_chars) else { return one_line(text) };
    let mut line = one_line(text.get(..end).unwrap_or_default());
    line.pop();
    format!("{}…", line.trim_end_matches(JOINERS))
}

/// Returns a message of another program on one line of at most `max_chars` characters. Line ends and other control
/// characters become spaces. Other unsafe characters become `�`.
#[must_use]
pub fn message_line(text: &str, max_chars: usize) -> String {
    let spaced: String =
        text.chars().take(max_chars).map(|c| if c.is_control() { ' ' } else { c }).collect();
    one_line(&spaced)
}

/// Returns `text` on one line of at most `max_chars` characters, without its unsafe characters.
#[must_use]
pub fn stripped_line(text: &str, max_chars: usize) -> String {
    let line: String = kept(text, &one_line(text)).take(max_chars).collect();
    line.trim_end_matches(JOINERS).to_owned()
}

/// Returns `text` without its unsafe characters, except line feeds and tabs.
#[must_use]
pub fn stripped_lines(text: &str) -> String {
    kept(text, &filtered(text, |c| matches!(c, '\n' | '\t'))).collect()
}

/// Returns the first unsafe character of `text`.
#[must_use]
pub fn first_unsafe(text: &str) -> Option<char> {
    let safe = one_line(text);
    text.chars().zip(safe.chars()).find(|(c, safe)| c != safe).map(|(c, _)| c)
}

/// Failed check of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty, blank or too long.
    #[error("1 to {0} printable characters")]
    Length(usize),
    /// The name has an unsafe character.
    #[error("1 to {0} printable characters, without U+{code:04X}", code = u32::from(*.1))]
    Unsafe(usize, char),
}

/// Checks a name that a user or a client chose: not blank, at most `max_chars` characters, all of them safe.
///
/// # Errors
/// See [`NameError`].
pub fn check_name(name: &str, max_chars: usize) -> Result<(), NameError> {
    if name.trim().is_empty() || name.chars().nth(max_chars).is_some() {
        return Err(NameError::Length(max_chars));
    }
    first_unsafe(name).map_or(Ok(()), |c| Err(NameError::Unsafe(max_chars, c)))
}

/// Returns `text` with `�` for each unsafe character and each control character that `is_kept` rejects.
fn filtered(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut filter = UnsafeCharFilter::default();
    for c in text.chars() {
        filter.feed(if c.is_control() && !is_kept(c) { MARK } else { c }, &mut out);
    }
    filter.finish(&mut out);
    out
}

/// Returns the characters of `text` that `shown` has at the same position.
fn kept<'t>(text: &'t str, shown: &'t str) -> impl Iterator<Item = char> + 't {
    text.chars().zip(shown.chars()).filter(|(c, shown)| c == shown).map(|(c, _)| c)
}

/// Filter for a stream of characters: replaces each unsafe character by `�`. The result does not depend on how the text
/// is split. The caller replaces control characters, because some texts keep line ends.
#[derive(Debug, Default)]
pub struct UnsafeCharFilter {
    /// Last character that can precede a joiner or a selector.
    base: Option<char>,
    /// Whether `base` already has a selector.
    is_selected: bool,
    /// Pending joiner after `base`. It is valid only before a character that joins.
    joiner: Option<char>,
}

impl UnsafeCharFilter {
    /// Appends `c` or its replacement to `out`. Holds back a joiner until the next character.
    pub fn feed(&mut self, c: char, out: &mut String) {
        if let Some(joiner) = self.joiner.take() {
            let joins = is_joined(c);
            out.push(if joins { joiner } else { MARK });
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
            c if is_invisible(c) => {
                (self.base, self.is_selected) = (None, false);
                out.push(MARK);
            }
            c => {
                (self.base, self.is_selected) = (Some(c), false);
                out.push(c);
            }
        }
    }

    /// Ends the text. A pending joiner is invalid.
    pub fn finish(&mut self, out: &mut String) {
        if self.joiner.take().is_some() {
            out.push(MARK);
        }
        (self.base, self.is_selected) = (None, false);
    }
}

fn is_selector(c: char) -> bool {
    is_mongolian_selector(c) || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Returns true for a character that selects the form of a Mongolian letter.
fn is_mongolian_selector(c: char) -> bool {
    matches!(c, '\u{180b}'..='\u{180d}' | '\u{180f}')
}

/// Returns true if a selector is valid after `base`.
fn selects(selector: char, base: char) -> bool {
    let is_ideograph = matches!(base, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}');
    // Emoji that are neither joined nor ideographs.
    let is_lone_emoji = matches!(
        base,
        '0'..='9' | '#' | '*' | '©' | '®' | '‼' | '⁉' | '™' | 'ℹ' | '〰' | '〽' | '㊗' | '㊙'
    );

    match selector {
        c if is_mongolian_selector(c) => matches!(base, '\u{1820}'..='\u{18aa}'),
        '\u{fe00}'..='\u{fe0f}' => is_joined(base) || is_ideograph || is_lone_emoji,
        _ => is_ideograph,
    }
}

/// Returns true if a joiner is valid next to `c`: emoji, and letters and marks of scripts that use joiners. Between other
/// letters a joiner could only make two different names look the same.
fn is_joined(c: char) -> bool {
    let is_emoji = matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}');
    let is_of_script = matches!(c,
        // Arabic, Syriac, N'Ko, Mandaic, the scripts of India, Tibetan, Myanmar; Khmer, Mongolian, and scripts of Indonesia
        // and the Philippines.
        '\u{600}'..='\u{109f}' | '\u{1700}'..='\u{1c4f}' | '\u{1cd0}'..='\u{1cff}' | '\u{a800}'..='\u{aaff}'
        | '\u{abc0}'..='\u{abff}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{10a00}'..='\u{11fff}'
        | '\u{1e900}'..='\u{1e95f}');
    (is_emoji || is_of_script) && !is_unsafe(c)
}

/// Returns true for letters of Thai, Lao, Myanmar and Khmer, which have no space between words.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every class of unsafe characters, with examples.
    const CLASSES: [(&str, &str); 17] = [
        ("C0 and DEL", "\0\u{7}\u{8}\t\n\r\u{1b}\u{7f}"),
        ("C1", "\u{80}\u{85}\u{9b}\u{9d}\u{9f}"),
        ("line and paragraph separators", "\u{2028}\u{2029}"),
        ("soft hyphen and grapheme joiner", "\u{ad}\u{34f}"),
        ("marks of direction", "\u{61c}\u{200e}\u{200f}"),
        ("embeddings and overrides", "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}"),
        ("isolates", "\u{2066}\u{2067}\u{2068}\u{2069}"),
        ("zero width", "\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}"),
        ("invisible operators", "\u{2061}\u{2062}\u{2063}\u{2064}"),
        ("deprecated formats", "\u{206a}\u{206f}"),
        ("fillers", "\u{115f}\u{1160}\u{3164}\u{ffa0}\u{2800}\u{16fe4}"),
        ("vowels without a shape", "\u{17b4}\u{17b5}\u{180e}"),
        ("selectors", "\u{180b}\u{180d}\u{180f}\u{fe00}\u{fe0f}\u{e0100}\u{e01ef}"),
        ("reserved and annotations", "\u{fff0}\u{fff8}\u{fff9}\u{fffa}\u{fffb}"),
        ("shorthand and music", "\u{1bca0}\u{1bca3}\u{1d159}\u{1d173}\u{1d17a}"),
        ("tags", "\u{e0000}\u{e0001}\u{e0020}\u{e0041}\u{e007f}"),
        ("reserved tags", "\u{e0080}\u{e01f0}\u{e0fff}"),
    ];

    fn filter(text: &str) -> String {
        let (mut filter, mut out) = (UnsafeCharFilter::default(), String::new());
        text.chars().for_each(|c| filter.feed(c, &mut out));
        filter.finish(&mut out);
        out
    }

    #[test]
    fn every_class_of_unsafe_characters_is_replaced_stripped_and_named() {
        for (class, chars) in CLASSES {
            for c in chars.chars() {
                assert!(is_unsafe(c), "{class}: {c:?}");
                // Neither Latin nor Han letters make it valid. Han letters have selectors.
                for (before, after) in
                    [("du", "ck"), ("é", "é"), ("я", "я"), ("か", "か"), ("—", "—")]
                {
                    let text = format!("{before}{c}{after}");
                    assert_eq!(
                        one_line(&text),
                        format!("{before}\u{fffd}{after}"),
                        "{class}: {c:?}"
                    );
                    assert_eq!(
                        stripped_line(&text, 9),
                        format!("{before}{after}"),
                        "{class}: {c:?}"
                    );
                    assert_eq!(first_unsafe(&text), Some(c), "{class}");
                    let refused = check_name(&text, 9).unwrap_err().to_string();
                    assert!(
                        refused.ends_with(&format!(", without U+{:04X}", u32::from(c))),
                        "{refused}"
                    );
                }
                let message = if c.is_control() { "du ck" } else { "du\u{fffd}ck" };
                assert_eq!(message_line(&format!("du{c}ck"), 9), message, "{class}: {c:?}");
                let is_kept = matches!(c, '\n' | '\t');
                let text = format!("du{c}ck");
                assert_eq!(stripped_lines(&text) == text, is_kept, "{class}: {c:?}");
            }
        }
    }

    #[test]
    fn what_scripts_and_emoji_need_is_safe_in_texts_and_names() {
        for text in [
            "می\u{200c}خواهم",
            "क\u{94d}\u{200d}ष",
            "👩\u{200d}💻 👩🏽\u{200d}🚀 ❤\u{fe0f}\u{200d}🔥 🏳\u{fe0f}\u{200d}🌈",
            "👨\u{200d}👩\u{200d}👧\u{200d}👦 🏳\u{fe0f}\u{200d}⚧\u{fe0f} 🇩🇪 ©\u{fe0f}",
            "1\u{fe0f}\u{20e3} #\u{fe0f}\u{20e3} ㊗\u{fe0f}",
            "葛\u{e0100}飾",
            "ភាសា\u{200b}ខ្មែរ",
            "ᠠ\u{180b}ᠨ",
            "naïve — “quotes” … → 漢字 עברית العربية",
        ] {
            assert_eq!(one_line(text), text);
            assert_eq!(check_name(text, 99), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_joiner_that_joins_nothing_and_a_second_selector_are_replaced() {
        for (given, shown) in [
            ("\u{200d}👩", "\u{fffd}👩"),
            ("👩\u{200d}", "👩\u{fffd}"),
            ("👩\u{200d}x", "👩\u{fffd}x"),
            ("👩\u{200d} 👩", "👩\u{fffd} 👩"),
            ("👩\u{200d}\u{200c}👩", "👩\u{fffd}\u{fffd}👩"),
            ("👩\u{200d}é", "👩\u{fffd}é"),
            ("漢\u{200d}漢", "漢\u{fffd}漢"),
            ("❤\u{fe0f}\u{fe0e}\u{fe01}", "❤\u{fe0f}\u{fffd}\u{fffd}"),
            ("x\u{fe0f}\u{e0100}", "x\u{fffd}\u{fffd}"),
            ("ខ\u{200b}\u{200b}x\u{200b}", "ខ\u{200b}\u{fffd}x\u{fffd}"),
            ("👩\u{200d}\u{fe0f}", "👩\u{fffd}\u{fffd}"),
            ("ᠠ\u{180b}\u{180b}", "ᠠ\u{180b}\u{fffd}"),
            ("漢\u{180b}", "漢\u{fffd}"),
        ] {
            assert_eq!(one_line(given), shown, "{given:?}");
        }
    }

    #[test]
    fn lines_have_a_bound() {
        assert_eq!(one_line_cut("a\nb\u{1b}[1m\u{202e}c", 99), "a\u{fffd}b\u{fffd}[1m\u{fffd}c");
        for (text, max, shown) in [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abcde…"), ("ä", 0, "…")]
        {
            assert_eq!(one_line_cut(text, max), shown);
        }
        assert_eq!(one_line_cut(&"ä".repeat(9), 3), "ää…");
        assert_eq!(message_line("one\ntwo three", 7), "one two");
        assert_eq!(stripped_line("\u{1b}\u{202e}one two", 3), "one");
        assert_eq!(stripped_lines("a\r\n\tb\u{200b}"), "a\n\tb");
    }

    #[test]
    fn an_address_of_the_web_is_short_ascii_with_its_scheme() {
        let longest = format!("https://{}", "x".repeat(MAX_WEB_ADDRESS_BYTES - 8));
        for address in ["http://a", "HTTPS://b.example/?c=d;e#f", longest.as_str()] {
            assert!(is_web_address(address), "{address}");
        }
        let too_long = format!("{longest}x");
        for other in [
            "",
            "http:",
            "http:/a",
            "a.example",
            "javascript:alert(1)//http://a",
            "file:///etc/passwd",
            "data:text/html,http://a",
            " http://a",
            "http://a b",
            "http://a\n",
            "http://a\u{1b}[2J",
            "http://\u{e4}",
            too_long.as_str(),
        ] {
            assert!(!is_web_address(other), "{other}");
        }
    }

    #[test]
    fn names_are_not_blank_and_not_long() {
        for name in ["", " ", "\u{3000}", "xxxx"] {
            assert_eq!(check_name(name, 3), Err(NameError::Length(3)), "{name:?}");
        }
        assert_eq!(check_name("äöü", 3), Ok(()));
        let refused = check_name("a\u{e0041}", 3).unwrap_err();
        assert_eq!(refused.to_string(), "1 to 3 printable characters, without U+E0041");
    }

    /// Text with many characters that depend on their position.
    fn tricky() -> impl Strategy<Value = String> {
        let hidden = proptest::sample::select(
            "\u{200b}\u{200c}\u{200d}\u{200e}\u{61c}\u{2028}\u{202e}\u{2066}\u{fe0f}\u{e0100}\u{e0041}\u{feff}\u{180b}\u{2800}ᠠé👩漢ខمx 1"
                .chars()
                .collect::<Vec<_>>(),
        );
        proptest::collection::vec(prop_oneof![hidden, any::<char>()], 0..40)
            .prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn no_direction_no_line_end_and_no_tag_gets_through(text in tricky()) {
            let shown = filter(&text);
            prop_assert_eq!(shown.chars().count(), text.chars().count(), "each is kept or replaced");
            let mut before = None;
            for c in shown.chars() {
                match c {
                    '\u{200c}' | '\u{200d}' => {
                        prop_assert!(before.is_some_and(|it| is_joined(it) || is_selector(it)));
                    }
                    '\u{200b}' => prop_assert!(before.is_some_and(|it| is_unspaced(it) || is_selector(it))),
                    c if is_selector(c) => prop_assert!(before.is_some_and(|it| selects(c, it))),
                    c => prop_assert!(!is_invisible(c), "{:?} in {:?}", c, shown),
                }
                before = Some(c);
            }
            prop_assert_eq!(filter(&shown), shown, "a second pass changes nothing");
        }

        #[test]
        fn a_text_that_was_stripped_or_cut_is_safe(text in tricky(), max in 0_usize..50) {
            for line in [stripped_line(&text, max), message_line(&text, max)] {
                prop_assert!(line.chars().count() <= max);
                prop_assert_eq!(first_unsafe(&line), None, "{:?}", line);
            }
            prop_assert_eq!(first_unsafe(&one_line_cut(&text, max)), None);
            prop_assert_eq!(first_unsafe(&stripped_lines(&text).replace(['\n', '\t'], "")), None);
        }
    }
}
