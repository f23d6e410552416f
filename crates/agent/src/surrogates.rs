//! Escapes of lone surrogates in JSON, which parsers refuse. JavaScript writes them for a text that was cut between two
//! UTF-16 units.

/// First of the 2048 private characters that stand for surrogates in a text that may be the part of another one. The
/// text of a model has none of them, or is read with [`char::REPLACEMENT_CHARACTER`].
const FIRST_HALF: u32 = 0x10_f800;

/// Replaces the escapes of lone surrogates by private characters, for [`joined`] and [`Pending`]. Returns `None` if there is no
/// such escape, or if the text contains one of these characters.
pub(crate) fn with_halves(text: &str) -> Option<String> {
    let has_own = text.chars().any(|c| half(c).is_some());
    // The escapes of these characters begin with one of these units.
    let is_escaped = ["\\udbfe", "\\udbff"].iter().any(|unit| {
        text.as_bytes()
            .windows(unit.len())
            .any(|window| window.eq_ignore_ascii_case(unit.as_bytes()))
    });

    if has_own || is_escaped {
        return None;
    }
    replaced(text, |unit| char::from_u32(FIRST_HALF + u32::from(unit) - 0xd800).map(String::from))
}

/// Returns the surrogate that a private character stands for.
fn half(c: char) -> Option<u16> {
    let offset = u32::from(c).checked_sub(FIRST_HALF)?;
    u16::try_from(0xd800 + offset).ok()
}

fn is_high(unit: u16) -> bool {
    (0xd800..=0xdbff).contains(&unit)
}

/// Joins the halves of a text. Lone ones become [`char::REPLACEMENT_CHARACTER`].
pub(crate) fn joined(text: &str) -> String {
    let mut pending = Pending::default();
    let mut joined = pending.join(text);
    joined.extend(pending.end());
    joined
}

/// The first half of a character whose second half may be in the next part of a text.
#[derive(Debug, Default)]
pub(crate) struct Pending(Option<u16>);

impl Pending {
    /// Returns true if the first half of a character is waiting.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.is_some()
    }

    /// Joins the halves of the next part, and keeps a first half at its end.
    pub(crate) fn join(&mut self, part: &str) -> String {
        let mut joined = String::with_capacity(part.len());
        for c in part.chars() {
            let unit = half(c);
            if let (Some(first), Some(second)) = (self.0, unit)
                && let [Ok(whole)] = *char::decode_utf16([first, second]).collect::<Vec<_>>()
            {
                joined.push(whole);
                self.0 = None;
                continue;
            }

            // The half that waited has no partner.
            joined.extend(self.end());
            match unit {
                Some(unit) if is_high(unit) => self.0 = Some(unit),
                Some(_) => joined.push(char::REPLACEMENT_CHARACTER),
                None => joined.push(c),
            }
        }
        joined
    }

    /// Adds a part without halves.
    pub(crate) fn end_before(&mut self, part: &str) -> String {
        self.end().into_iter().chain(part.chars()).collect()
    }

    /// Forgets the half. Returns the character in its place.
    pub(crate) fn end(&mut self) -> Option<char> {
        self.0.take().map(|_| char::REPLACEMENT_CHARACTER)
    }
}

fn replaced(text: &str, replacement: impl Fn(u16) -> Option<String>) -> Option<String> {
    let (mut kept, mut rest, mut is_changed) = (String::new(), text, false);
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        kept.push_str(plain);

        let len = match (unit(escape), escape.get(6..).and_then(unit)) {
            // A pair of escapes is one valid character.
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(lone @ 0xd800..=0xdfff), _) => {
                is_changed = true;
                kept.push_str(&replacement(lone)?);
                rest = escape.get(6..)?;
                continue;
            }
            // Another escape, such as that of a backslash, is kept as a whole.
            _ => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };

        let (escape, after) = escape.split_at(len);
        kept.push_str(escape);
        rest = after;
    }
    kept.push_str(rest);
    is_changed.then_some(kept)
}

/// Returns the UTF-16 unit of the escape at the start of the text.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{Pending, joined, replaced, with_halves};

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (text, expected) in [
            (r"a\ud83eb", Some(r"a?b")),
            (r"\udd86\ud83e", Some("??")),
            (r"\ud83e\ud83e\udd86", Some(r"?\ud83e\udd86")),
            (r"\ud83e\udd86", None),
            (r"\\ud83e", None),
            (r"\é\ud83e", Some(r"\é?")),
            (r"\", None),
            (r"\ud83", None),
            ("", None),
        ] {
            assert_eq!(replaced(text, |_| Some("?".to_owned())).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn halves_are_joined_over_every_cut() {
        let text = with_halves(r"a\ud83e\udd86\ud83eb\udd86").unwrap();
        assert_eq!(joined(&text), "a\\ud83e\\udd86\u{fffd}b\u{fffd}");
        let units = with_halves(r"a\ud83e").unwrap() + &with_halves(r"\udd86b\ud83e").unwrap();
        for (cut, _) in units.char_indices() {
            let (one, other) = units.split_at(cut);
            let mut pending = Pending::default();
            let mut text = pending.join(one) + &pending.join(other);
            assert!(pending.is_waiting());
            text.extend(pending.end());
            assert_eq!(text, "a🦆b\u{fffd}", "{cut}");
        }
        let mut pending = Pending::default();
        assert_eq!(pending.join(&with_halves(r"\ud83e").unwrap()), "");
        assert_eq!(pending.end_before("x"), "\u{fffd}x");
    }

    #[test]
    fn a_text_with_the_private_characters_has_no_halves() {
        for text in [r"\ud83e\udbfe\udc00", r"\ud83e\uDBFF\udc00", "\\ud83e\u{10f800}", "a"] {
            assert_eq!(with_halves(text), None, "{text}");
        }
    }
}
