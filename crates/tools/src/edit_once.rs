//! Replaces the only occurrence of a text in the content of a file, and keeps the line ends of its lines.

use crate::edit_hint;
use crate::similar_text::{Form, find_only};
use crate::write_error::WriteFailure;
use memchr::memmem::{self, Finder};
use quackd_search::CrlfMap;
use std::borrow::Cow;
use std::ops::Range;

/// Most places that a failure names, and most that are looked for among those that overlap.
const MAX_PLACES: usize = 11;

/// Differences that do not matter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Leniency {
    /// `\n` in the texts stands for the line end of the file's line.
    pub(crate) any_line_ending: bool,
    /// Typographic characters and blanks at line ends, if the text occurs once then.
    pub(crate) similar: bool,
}

/// Result of an edit.
#[derive(Debug)]
pub(crate) struct EditedOnce {
    pub(crate) content: Vec<u8>,
    /// Line of a text that was only similar, and the differences.
    pub(crate) similar: Option<(usize, Vec<Form>)>,
}

/// Returns `content` with its only occurrence of `old` replaced. An occurrence that overlaps with another one counts.
pub(crate) fn replace_once(
    content: &[u8],
    old: &str,
    new: &str,
    leniency: Leniency,
) -> Result<EditedOnce, WriteFailure> {
    // A text with a CR names its line ends itself.
    let folds = leniency.any_line_ending && !old.contains('\r');
    let (searched, crlf) = if folds && memmem::find(content, b"\r\n").is_some() {
        let mut searched = content.to_vec();
        let (len, crlf) = CrlfMap::fold(&mut searched);
        searched.truncate(len);
        (Cow::Owned(searched), crlf)
    } else {
        (Cow::Borrowed(content), CrlfMap::default())
    };

    let mut new = Cow::Borrowed(new);
    let mut similar = None;
    let place = match occurrences(&searched, old.as_bytes()) {
        Occurrences::One(at) => at..at + old.len(),
        Occurrences::Several { count, first } => {
            let hint = edit_hint::of_several(&searched, count, &first);
            return Err(WriteFailure::Ambiguous { count, hint });
        }
        Occurrences::None => {
            let forms = &[Form::TrailingBlanks, Form::Typographic];
            let text = std::str::from_utf8(&searched).ok().filter(|_| leniency.similar);
            let Some(hit) = text.and_then(|text| find_only(text, old, &new, forms)) else {
                let compared = if folds { &*searched } else { content };
                let hint = edit_hint::of_missing(compared, old.as_bytes());
                return Err(WriteFailure::NoOccurrence { hint });
            };

            let before = searched.get(..hit.range.start).unwrap_or_default();
            let line = 1 + memchr::memchr_iter(b'\n', before).count();
            similar = Some((line, hit.forms));
            new = Cow::Owned(hit.new);
            hit.range
        }
    };

    // Positions in the folded content become positions in the file, whose line ends must stay.
    let region = crlf.original_range(place.clone());
    let old = searched.get(place).unwrap_or_default();
    let new = if folds && new.contains('\n') && !new.contains('\r') {
        with_line_ends(content, &region, old, new.as_bytes())
    } else {
        new.as_bytes().to_vec()
    };

    let before = content.get(..region.start).unwrap_or_default();
    let after = content.get(region.end..).unwrap_or_default();
    Ok(EditedOnce { content: [before, &new, after].concat(), similar })
}

enum Occurrences {
    None,
    One(usize),
    Several { count: usize, first: Vec<usize> },
}

/// Finds the occurrences of a text. If several do not overlap, only those count.
fn occurrences(content: &[u8], old: &[u8]) -> Occurrences {
    let finder = Finder::new(old);
    let mut matches = finder.find_iter(content);
    let Some(at) = matches.next() else { return Occurrences::None };
    let mut first = vec![at];
    let mut count = 1;

    for place in matches {
        count += 1;
        if first.len() < MAX_PLACES {
            first.push(place);
        }
    }

    // The iterator skips overlapping occurrences. They make the text ambiguous too.
    if count == 1 {
        let mut from = at + 1;
        while let Some(more) = finder.find(content.get(from..).unwrap_or_default()) {
            first.push(from + more);
            from += more + 1;
            if first.len() == MAX_PLACES {
                break;
            }
        }
        count = first.len();
    }

    if count == 1 { Occurrences::One(at) } else { Occurrences::Several { count, first } }
}

/// Gives each line of `new` the line end of the line that it replaces. A line without such a line gets the end of the
/// line before it, or of the line in which it is.
fn with_line_ends(content: &[u8], region: &Range<usize>, old: &[u8], new: &[u8]) -> Vec<u8> {
    let replaced = content.get(region.clone()).unwrap_or_default();
    let ends: Vec<bool> = memchr::memchr_iter(b'\n', replaced)
        .map(|at| replaced.get(..at).is_some_and(|before| before.ends_with(b"\r")))
        .collect();
    let here = is_crlf_here(content, region);

    let (old, new): (Vec<&[u8]>, Vec<&[u8]>) = (lines(old), lines(new));
    let n_new = new.len() - 1;
    let n_old = ends.len().min(old.len() - 1);

    // Equal lines at both ends keep their line ends. The lines between them take those that they replace.
    let head = (0..n_old.min(n_new)).take_while(|n| old.get(*n) == new.get(*n)).count();
    let most = n_old.min(n_new) - head;
    let same_from_end = |n: &usize| old.get(n_old - n) == new.get(n_new - n);
    let tail = (1..=most).take_while(same_from_end).count();

    let end_of = |n: usize| {
        let n = if n < head {
            n
        } else if n_new - tail <= n {
            n_old - (n_new - n)
        } else {
            // The last of the replaced lines, or the line before them.
            n.min((n_old - tail).checked_sub(1).unwrap_or(n_old))
        };
        ends.get(n).or_else(|| ends.first()).copied().unwrap_or(here)
    };

    let mut text = Vec::with_capacity(region.len() + 64);
    for (n, line) in new.iter().enumerate() {
        text.extend_from_slice(line);
        if n < n_new {
            text.extend_from_slice(if end_of(n) { b"\r\n" } else { b"\n" });
        }
    }
    text
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split(|byte| *byte == b'\n').collect()
}

/// Whether the line in which a region ends has CRLF. A last line without an end has that of the line before it.
fn is_crlf_here(content: &[u8], region: &Range<usize>) -> bool {
    let after = memchr::memchr(b'\n', content.get(region.end..).unwrap_or_default());
    let before = || memchr::memrchr(b'\n', content.get(..region.start).unwrap_or_default());
    let end = after.map(|at| region.end + at).or_else(before);
    end.is_some_and(|at| content.get(..at).is_some_and(|line| line.ends_with(b"\r")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Leniency = Leniency { any_line_ending: true, similar: false };

    fn edited(content: &str, old: &str, new: &str, leniency: Leniency) -> Result<String, String> {
        let edited = replace_once(content.as_bytes(), old, new, leniency);
        let text = |edited: EditedOnce| String::from_utf8(edited.content).unwrap();
        edited.map(text).map_err(|failure| failure.to_string())
    }

    #[test]
    fn each_line_keeps_its_end() {
        type Case = (&'static str, &'static str, &'static str, &'static str);
        let cases: &[Case] = &[
            ("a\r\nb\r\n", "a\nb", "c\nd\r\n", "c\nd\r\n\r\n"),
            ("a\r\nb\r\n", "a\nb", "c\nd\n", "c\r\nd\r\n\r\n"),
            ("a\r\nb\r\n", "a", "c\nd", "c\r\nd\r\nb\r\n"),
            ("a\r\nb", "b", "c\nd", "a\r\nc\r\nd"),
            ("a\r\nb\r\n", "a\r\nb", "c\nd", "c\nd\r\n"),
            ("a\r\nb\r\n", "a\nb\n", "", ""),
            ("a\r\nb\n", "a\nb\n", "c\nd\n", "c\r\nd\n"),
            ("a\r\nb\n", "a\nb\n", "a\nx\nb\n", "a\r\nx\r\nb\n"),
            ("a\nb\r\nc\n", "a\nb\nc", "a\nx\ny\nb\nc", "a\nx\ny\nb\r\nc\n"),
            ("a\nb\r\nc\nd\r\n", "b\nc", "b\nx\nc", "a\nb\r\nx\r\nc\nd\r\n"),
            ("a\nb\r\n", "b", "c\nd", "a\nc\r\nd\r\n"),
            ("a\nb\r\nc", "a", "c\nd", "c\nd\nb\r\nc"),
            ("a\nb\r\nc\n", "a\nb\nc\n", "c\n", "c\n"),
            ("a\nb\n", "a\nb", "c\nd", "c\nd\n"),
            ("a", "a", "b\nc", "b\nc"),
            ("a\r\n\r\nb\r\n", "a\n\nb", "a\nb", "a\r\nb\r\n"),
            ("a\rb\r\nc\r\n", "b\nc", "d\ne", "a\rd\r\ne\r\n"),
        ];
        for &(content, old, new, expected) in cases {
            let edited = edited(content, old, new, ANY);
            assert_eq!(edited.as_deref(), Ok(expected), "{content:?} {old:?} {new:?}");
        }
        let literal = Leniency::default();
        assert!(edited("a\r\nb", "a\nb", "", literal).is_err());
        assert_eq!(edited("a\r\nb", "a", "c\nd", literal).as_deref(), Ok("c\nd\r\nb"));
    }

    #[test]
    fn a_text_that_occurs_twice_is_ambiguous_even_if_it_overlaps_or_its_line_ends_differ() {
        for (content, old, n) in [
            ("[\n0,\n0,\n0,\n1]", "0,\n0,\n", 2),
            ("[\r\n0,\r\n0,\n0,\r\n1]", "0,\n0,\n", 2),
            ("ababa", "aba", 2),
            ("aaaa", "aa", 2),
            ("aaa", "aa", 2),
            ("aaaaa", "aaa", 3),
            ("a\nb a\r\nb", "a\nb", 2),
        ] {
            let error = edited(content, old, "", ANY).unwrap_err();
            assert_eq!(error, format!("old_text found {n} times (ambiguous edit)"), "{content:?}");
        }
        let failure = replace_once(b"x\n0,\n0,\n0,\n", "0,\n0,\n", "", ANY).unwrap_err();
        let WriteFailure::Ambiguous { hint, .. } = failure else { panic!("{failure}") };
        assert!(hint.starts_with("It is in the lines 2, 3. "), "{hint}");
    }

    #[test]
    fn similar_text_is_found_only_if_that_is_wanted() {
        let similar = Leniency { any_line_ending: true, similar: true };
        let file = "say \u{201c}a\u{201d} \r\nb\r\n";
        let once = replace_once(file.as_bytes(), "\"a\"\nb", "\"a\"\nc\nd", similar).unwrap();
        assert_eq!(once.content, "say \u{201c}a\u{201d} \r\nc\r\nd\r\n".as_bytes());
        assert_eq!(once.similar, Some((1, vec![Form::TrailingBlanks, Form::Typographic])));
        assert!(edited(file, "\"a\"\nb", "", ANY).is_err());
        assert!(replace_once(file.as_bytes(), "b", "c", similar).unwrap().similar.is_none());
    }

    /// A slow and simple way to edit: the line ends become letters.
    #[test]
    fn random_edits_change_nothing_outside_of_the_text() {
        let mut seed = 1_u64;
        let mut below = |n: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((seed >> 33) % n).unwrap()
        };
        for _ in 0..20_000 {
            let mut piece = |n: u64| -> String {
                (0..below(n)).map(|_| ["a", "b", "\n", "\r\n", "ab"][below(5)]).collect()
            };
            let (content, old, new) =
                (piece(12), piece(4).replace('\r', ""), piece(4).replace('\r', ""));
            if old.is_empty() {
                continue;
            }
            let plain = content.replace("\r\n", "\n");
            let places = (0..plain.len()).filter(|at| plain[*at..].starts_with(&old)).count();
            match edited(&content, &old, &new, ANY) {
                Ok(edited) => {
                    assert_eq!(places, 1, "{content:?} {old:?}");
                    assert_eq!(edited.replace("\r\n", "\n"), plain.replacen(&old, &new, 1));
                    if !content.contains("\r\n") {
                        assert!(!edited.contains('\r'));
                    }
                    if !content.replace("\r\n", "").contains('\n') && content.contains('\n') {
                        assert_eq!(
                            edited.matches('\n').count(),
                            edited.matches("\r\n").count(),
                            "{content:?} {old:?} {new:?}"
                        );
                    }
                }
                Err(_) => assert_ne!(places, 1, "{content:?} {old:?}"),
            }
        }
    }
}
