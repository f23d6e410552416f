//! Line ends `\r\n`: a pattern sees them as `\n`, unless it names `\r`.
//!
//! Within a line the pattern sees the text before the line end. If matches may cross lines, the pattern sees the
//! text without these carriage returns, and the places of the matches are mapped back.

use memchr::memmem;
use regex_syntax::ast::{self, AssertionKind, Ast, ClassSetItem, Span, Visitor};
use std::borrow::Cow;
use std::convert::Infallible;
use std::ops::Range;

/// The carriage returns that were removed from a text.
#[derive(Debug, Default)]
pub struct CrlfMap {
    /// Positions of the line feeds before which they were, in the text without them.
    places: Vec<u32>,
}

impl CrlfMap {
    /// Removes the carriage return of each `\r\n`. Returns the new length of the text.
    #[must_use]
    pub fn fold(text: &mut [u8]) -> (usize, Self) {
        let mut places = Vec::new();
        let (mut from, mut to) = (0, 0);

        while let Some(at) = memmem::find(text.get(from..).unwrap_or_default(), b"\r\n") {
            if from != to {
                text.copy_within(from..from + at, to);
            }
            to += at;
            places.push(u32::try_from(to).unwrap_or(u32::MAX));
            // The LF stays, and moves with the text after it.
            from += at + 1;
        }

        if from != to {
            text.copy_within(from.., to);
        }
        (text.len() - (from - to), Self { places })
    }

    /// Returns the position in the original text. The position of a line feed becomes that of its carriage return.
    #[must_use]
    pub fn original(&self, at: usize) -> usize {
        at + self.n_before(at)
    }

    /// Returns the original range of a range.
    #[must_use]
    pub fn original_range(&self, range: Range<usize>) -> Range<usize> {
        self.original(range.start)..self.original(range.end)
    }

    /// Returns the original of a part of the text, which is at `at`.
    pub(crate) fn restored<'t>(&self, part: &'t [u8], at: usize) -> Cow<'t, [u8]> {
        let places = self.places.get(self.n_before(at)..self.n_before(at + part.len()));
        let places = places.unwrap_or_default();

        if places.is_empty() {
            return part.into();
        }

        let mut all = Vec::with_capacity(part.len() + places.len());
        let mut from = 0;
        for place in places {
            let to = wide(*place) - at;
            all.extend_from_slice(part.get(from..to).unwrap_or_default());
            all.push(b'\r');
            from = to;
        }
        all.extend_from_slice(part.get(from..).unwrap_or_default());
        all.into()
    }

    fn n_before(&self, at: usize) -> usize {
        self.places.partition_point(|place| wide(*place) < at)
    }
}

fn wide(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// Whether a pattern names the carriage return, so that it sees line ends as they are. A class such as `\s` does not
/// name it. A pattern that cannot be parsed names none.
pub(crate) fn names_cr(pattern: &str, is_literal: bool) -> bool {
    if is_literal || pattern.contains('\r') {
        return pattern.contains('\r');
    }
    visited(pattern).is_some_and(|seen| seen.names_cr)
}

/// Returns the pattern with each `$` also before a carriage return, or `None` if it has no `$`.
pub(crate) fn with_ends_before_cr(pattern: &str) -> Option<String> {
    let ends = visited(pattern)?.ends;
    if ends.is_empty() {
        return None;
    }

    let mut text = String::with_capacity(pattern.len() + ends.len() * END.len());
    let mut from = 0;
    for end in ends {
        text.push_str(pattern.get(from..end.start.offset)?);
        text.push_str(END);
        from = end.end.offset;
    }
    text.push_str(pattern.get(from..)?);
    Some(text)
}

/// The end of a line, and each place before a carriage return.
pub(crate) const END: &str = "(?:$|(?R:$))";

fn visited(pattern: &str) -> Option<Seen> {
    let parsed = ast::parse::Parser::new().parse(pattern).ok()?;
    let Ok(seen) = ast::visit(&parsed, Seen::default());
    Some(seen)
}

/// Parts of a pattern that decide about line ends.
#[derive(Default)]
struct Seen {
    names_cr: bool,
    /// Places of each `$`, in order.
    ends: Vec<Span>,
}

impl Seen {
    fn look(&mut self, literal: &ast::Literal) {
        self.names_cr |= literal.c == '\r';
    }
}

impl Visitor for Seen {
    type Output = Self;
    type Err = Infallible;

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        match ast {
            Ast::Literal(literal) => self.look(literal),
            Ast::Assertion(end) if end.kind == AssertionKind::EndLine => self.ends.push(end.span),
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        match item {
            ClassSetItem::Literal(literal) => self.look(literal),
            ClassSetItem::Range(range) => {
                self.look(&range.start);
                self.look(&range.end);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_patterns_with_a_carriage_return_name_it() {
        for pattern in [r"\r", r"a\r?\n", r"[^\r\n]", r"\x0d", r"\u{d}", "a\rb", r"[\r-z]"] {
            assert!(names_cr(pattern, false), "{pattern}");
        }
        for pattern in [r"\s", r"\\r", "r", r"[\x00-\x1f]", "(", "."] {
            assert!(!names_cr(pattern, false), "{pattern}");
        }
        assert!(!names_cr(r"\r", true) && names_cr("\r", true));
    }

    #[test]
    fn only_ends_of_lines_are_widened() {
        let both = END;
        assert_eq!(with_ends_before_cr("a$|(b$)"), Some(format!("a{both}|(b{both})")));
        for pattern in ["a", r"\$", "[$]", r"\z", "("] {
            assert_eq!(with_ends_before_cr(pattern), None, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn a_folded_text_can_be_restored(
            pieces in prop::collection::vec(prop::sample::select(vec!["a", "\r\n", "\n", "\r"]), 0..30),
            (from, to) in (0..60_usize, 0..60_usize),
        ) {
            let text = pieces.concat();
            let mut folded = text.clone().into_bytes();
            let (len, map) = CrlfMap::fold(&mut folded);
            folded.truncate(len);
            let crs: Vec<bool> = pieces.concat().into_bytes().windows(2).map(|two| two == b"\r\n").collect();
            prop_assert_eq!(len, text.len() - crs.iter().filter(|is_crlf| **is_crlf).count());
            let (from, to) = (from.min(to).min(len), from.max(to).min(len));
            let range = map.original_range(from..to);
            let part = map.restored(&folded[from..to], from);
            prop_assert_eq!(&*part, &text.as_bytes()[range.clone()]);
            let start_is_after_cr = range.start != 0 && text[range.start - 1..].starts_with("\r\n");
            prop_assert!(!start_is_after_cr);
        }
    }
}
