//! Finds texts that differ only in form: line ends, blanks, typographic characters or the Unicode form.

use memchr::memmem;
use std::ops::Range;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::canonical_combining_class;

/// Largest text in which similar text is searched, in bytes.
pub(crate) const MAX_SEARCHED: usize = 1024 * 1024;

/// A difference of form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `\r\n` for `\n`.
    LineEnds,
    /// Blanks before a line end.
    TrailingBlanks,
    /// Tabs and the number of blanks, also at the beginning of a line.
    Blanks,
    /// Typographic quotes, dashes and spaces for plain ones.
    Typographic,
    /// Composed and decomposed characters.
    Unicode,
}

impl Form {
    /// All of them.
    pub(crate) const ALL: &[Self] =
        &[Self::LineEnds, Self::TrailingBlanks, Self::Blanks, Self::Typographic, Self::Unicode];
}

/// A text without some differences of form, with the place of each of its bytes in the original.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    text: String,
    /// Start and end of the original of each byte.
    places: Vec<(u32, u32)>,
    len: usize,
}

impl Plain {
    /// Removes differences of these forms.
    pub(crate) fn of(text: &str, forms: &[Form]) -> Self {
        let has = |form| forms.contains(&form);
        let seen = |c: char| if has(Form::Typographic) { untypographic(c) } else { c };
        let mut plain = Self { len: text.len(), ..Self::default() };
        let mut at = 0;

        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let blanks = rest.trim_start_matches(|c| is_blank(seen(c)));
            let after_blanks = at + rest.len() - blanks.len();
            if at < after_blanks {
                let ends_line = blanks.starts_with('\n') || blanks.starts_with("\r\n");
                if has(Form::Blanks) && !(ends_line && has(Form::TrailingBlanks)) {
                    plain.push(' ', at..after_blanks);
                } else if !(ends_line && has(Form::TrailingBlanks)) {
                    let all = rest.get(..after_blanks - at).unwrap_or_default();
                    for (n, c) in all.char_indices() {
                        plain.push(seen(c), at + n..at + n + c.len_utf8());
                    }
                }
                at = after_blanks;
                continue;
            }

            if has(Form::LineEnds) && rest.starts_with("\r\n") {
                // The LF that follows is the line end.
                at += 1;
                continue;
            }

            let mut chars = rest.chars();
            let Some(c) = chars.next() else { break };
            // NFC can join several characters, so all bytes of the result get the place of the whole cluster.
            let joined = chars.as_str().trim_start_matches(joins);
            let len = if has(Form::Unicode) { rest.len() - joined.len() } else { c.len_utf8() };
            if has(Form::Unicode) && (len != c.len_utf8() || !c.is_ascii()) {
                let cluster = rest.get(..len).unwrap_or_default();
                cluster.nfc().for_each(|c| plain.push(seen(c), at..at + len));
            } else {
                plain.push(seen(c), at..at + len);
            }
            at += len;
        }
        plain
    }

    fn push(&mut self, c: char, place: Range<usize>) {
        self.text.push(c);
        // `MAX_SEARCHED` bounds the text, so 32 bits are enough.
        let short = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let place = (short(place.start), short(place.end));
        self.places.extend(std::iter::repeat_n(place, c.len_utf8()));
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the original of a range.
    pub(crate) fn original(&self, range: Range<usize>) -> Range<usize> {
        let wide = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        let start = self.start_of(range.start);
        let last = range.end.checked_sub(1).filter(|last| range.start <= *last);
        let end = last.and_then(|last| self.places.get(last)).map_or(start, |place| wide(place.1));
        start..end
    }

    /// Returns where the original of a position starts.
    fn start_of(&self, at: usize) -> usize {
        let start = self.places.get(at).map(|place| usize::try_from(place.0).unwrap_or(usize::MAX));
        start.unwrap_or(self.len)
    }

    /// Returns the number of bytes whose original starts before a position.
    fn n_before(&self, at: usize) -> usize {
        self.places.partition_point(|place| usize::try_from(place.0).unwrap_or(usize::MAX) < at)
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// Whether the character is part of the one before it.
fn joins(c: char) -> bool {
    canonical_combining_class(c) != 0 || matches!(c, '\u{1160}'..='\u{11ff}')
}

/// Returns the plain character for a typographic one.
fn untypographic(c: char) -> char {
    match c {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        c => c,
    }
}

/// A similar text in another one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Similar {
    /// Range of the text in bytes.
    pub(crate) range: Range<usize>,
    /// The forms in which the two differ.
    pub(crate) forms: Vec<Form>,
    /// The text for its place.
    pub(crate) new: String,
}

/// Finds the only text that differs from `old` in nothing but the forms. In the new text, what `old` and `new` have in
/// common is as it is in the text.
pub(crate) fn find_only(text: &str, old: &str, new: &str, forms: &[Form]) -> Option<Similar> {
    if MAX_SEARCHED < text.len() || MAX_SEARCHED < old.len() {
        return None;
    }
    let there = Plain::of(text, forms);
    let (old, at) = match only(there.text(), Plain::of(old, forms).text()) {
        Some(at) => (old, at),
        None => {
            let old = without_last_blanks(old, forms)?;
            (
                old,
                only(there.text(), Plain::of(old, forms).text()).filter(|at| {
                    ends_line(there.text(), at + Plain::of(old, forms).text().len())
                })?,
            )
        }
    };

    let plain_old = Plain::of(old, forms);
    let range = there.original(at..at + plain_old.text().len());

    // Only the part that `new` changes is replaced. The rest keeps the form that it has in the file.
    let head = common(old.chars().zip(new.chars()));
    let (old_rest, new_rest) =
        (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
    let tail = common(old_rest.chars().rev().zip(new_rest.chars().rev()));

    let original = |n: usize| there.start_of(at + n).clamp(range.start, range.end);
    let head_end = original(plain_old.n_before(head));
    let tail_start = original(plain_old.n_before(old.len() - tail)).max(head_end);
    let tail_start = if tail == 0 { range.end } else { tail_start };

    let middle = new_rest.get(..new_rest.len() - tail).unwrap_or_default();
    let parts = [text.get(range.start..head_end), Some(middle), text.get(tail_start..range.end)];
    let new = parts.map(Option::unwrap_or_default).concat();

    let forms = differences(text.get(range.clone()).unwrap_or_default(), old, forms);
    Some(Similar { range, forms, new })
}

/// Finds the first text that differs from `old` in nothing but the forms. Returns its place.
pub(crate) fn find_first(text: &str, old: &str, forms: &[Form]) -> Option<Range<usize>> {
    let there = Plain::of(text, forms);
    let place = |old: &str| {
        let plain = Plain::of(old, forms);
        let at = first(there.text(), plain.text())?;
        Some(at..at + plain.text().len())
    };

    let range = place(old).or_else(|| {
        place(without_last_blanks(old, forms)?).filter(|range| ends_line(there.text(), range.end))
    });
    Some(there.original(range?))
}

/// Returns a text without the blanks at its end, if it has some and their form does not count.
fn without_last_blanks<'t>(text: &'t str, forms: &[Form]) -> Option<&'t str> {
    let cut = text.trim_end_matches(is_blank);
    (forms.contains(&Form::TrailingBlanks) && cut.len() < text.len()).then_some(cut)
}

fn ends_line(text: &str, at: usize) -> bool {
    text.get(at..)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('\n') || rest.starts_with("\r\n"))
}

/// Returns the forms in which two texts differ that do not differ otherwise.
pub(crate) fn differences(one: &str, other: &str, forms: &[Form]) -> Vec<Form> {
    let differ = |form: &&Form| {
        let others: Vec<Form> = forms.iter().copied().filter(|other| other != *form).collect();
        Plain::of(one, &others).text != Plain::of(other, &others).text
    };
    forms.iter().filter(differ).copied().collect()
}

/// Returns the first place of a text, if it is not empty.
fn first(text: &str, part: &str) -> Option<usize> {
    memmem::find(text.as_bytes(), part.as_bytes()).filter(|_| !part.is_empty())
}

fn only(text: &str, part: &str) -> Option<usize> {
    let at = first(text, part)?;
    // An occurrence that overlaps with the first one counts too.
    let next = at + text.get(at..)?.chars().next()?.len_utf8();
    first(text.get(next..)?, part).is_none().then_some(at)
}

/// Returns the number of bytes of equal characters at the beginning.
fn common(pairs: impl Iterator<Item = (char, char)>) -> usize {
    pairs.take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTES: &[Form] = &[Form::TrailingBlanks, Form::Typographic];

    #[test]
    fn unchanged_parts_of_a_similar_text_stay() {
        let file = "say \u{201c}hello\u{201d}  \nand \u{2018}go\u{2019} \u{2014} now\t\nend\n";
        for (old, new, expected, forms) in [
            ("\"hello\"", "\"bye\"", "\u{201c}bye\u{201d}", vec![Form::Typographic]),
            ("hello\"\nand", "hello\"\nor", "hello\u{201d}  \nor", QUOTES.to_vec()),
            ("'go' - now\nend", "", "", QUOTES.to_vec()),
            ("now\nend", "now\nEND", "now\t\nEND", vec![Form::TrailingBlanks]),
            (
                "say \"hello\"",
                "x say \"hello\"",
                "x say \u{201c}hello\u{201d}",
                vec![Form::Typographic],
            ),
            (
                "say \"hello\"",
                "say \"hello\"!",
                "say \u{201c}hello\u{201d}!",
                vec![Form::Typographic],
            ),
        ] {
            let found = find_only(file, old, new, QUOTES).unwrap();
            assert_eq!((found.new.as_str(), &found.forms), (expected, &forms), "{old}");
        }
        let found = find_only(file, "end ", "END ", QUOTES).unwrap();
        assert_eq!((found.new.as_str(), found.range), ("END ", 40..43));
        for none in ["\"", "hello ", "say  \"hello\"", "absent", "a", ""] {
            assert_eq!(find_only(file, none, "", QUOTES), None, "{none}");
        }
        let twice = "\u{201c}a\u{201d} \u{201c}a\u{201d}";
        assert_eq!(find_only(twice, "\"a\"", "", QUOTES), None);
    }

    #[test]
    fn each_form_is_told_from_the_others() {
        for (one, other, expected) in [
            ("a\r\nb", "a\nb", vec![Form::LineEnds]),
            ("a \nb", "a\nb", vec![Form::TrailingBlanks]),
            ("\ta", "    a", vec![Form::Blanks]),
            ("\u{201c}a\u{201d}", "\"a\"", vec![Form::Typographic]),
            ("caf\u{e9}", "cafe\u{301}", vec![Form::Unicode]),
            ("\u{ac00}", "\u{1100}\u{1161}", vec![Form::Unicode]),
            ("\ta \r\n", "  a\n", vec![Form::LineEnds, Form::TrailingBlanks, Form::Blanks]),
            ("a", "a", vec![]),
        ] {
            assert_eq!(Plain::of(one, Form::ALL).text, Plain::of(other, Form::ALL).text, "{one:?}");
            assert_eq!(differences(one, other, Form::ALL), expected, "{one:?} {other:?}");
        }
        assert_ne!(Plain::of("a b", Form::ALL).text, Plain::of("ab", Form::ALL).text);
    }
}
