//! Replacement text: literal, or with references to groups in the syntax of the regex crate.
//!
//! Unlike in the regex crate, a reference to an unknown group is an error. `$1_x` means a group `1_x`, and
//! replacing it with empty text would damage files unnoticed.

use super::error::ReplaceError;
use regex_automata::PatternID;
use regex_automata::meta::Regex;
use regex_automata::util::captures::Captures;
use std::ops::Range;

/// Replacement for the matches of one pattern.
#[derive(Debug)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Group(usize),
}

/// Conversion of line breaks in a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineBreaks {
    AsTheyAre,
    Lf,
    CrLf,
}

impl Template {
    /// Creates a template without references.
    pub(super) fn text(text: &str, breaks: LineBreaks) -> Self {
        Self { pieces: vec![Piece::Text(converted(text, breaks))] }
    }

    /// Parses references to groups of the pattern `id` of `regex`.
    ///
    /// # Errors
    /// [`ReplaceError::UnknownGroup`].
    pub(super) fn with_groups(
        template: &str,
        regex: &Regex,
        id: PatternID,
        breaks: LineBreaks,
    ) -> Result<Self, ReplaceError> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = template;

        while let Some((before, behind)) = rest.split_once('$') {
            text.push_str(before);
            if let Some(plain) = behind.strip_prefix('$') {
                text.push('$');
                rest = plain;
                continue;
            }

            // A dollar sign that begins no reference is text.
            let Some((name, is_braced, behind_name)) = reference(behind) else {
                text.push('$');
                rest = behind;
                continue;
            };

            let group =
                group(regex, id, name).ok_or_else(|| unknown(regex, id, name, is_braced))?;
            if !text.is_empty() {
                pieces.push(Piece::Text(converted(&text, breaks)));
                text.clear();
            }
            pieces.push(Piece::Group(group));
            rest = behind_name;
        }

        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(converted(&text, breaks)));
        }
        Ok(Self { pieces })
    }

    /// Whether matches must be found with their groups.
    pub(super) fn has_groups(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Group(_)))
    }

    /// Appends the replacement of one match. `text` returns the text of a group.
    pub(super) fn expand<'t>(
        &self,
        text: impl Fn(Range<usize>) -> &'t [u8],
        groups: Option<&Captures>,
        out: &mut Vec<u8>,
    ) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => out.extend_from_slice(piece),
                Piece::Group(index) => {
                    let span = groups.and_then(|groups| groups.get_group(*index));
                    out.extend_from_slice(span.map(|span| text(span.range())).unwrap_or_default());
                }
            }
        }
    }
}

/// Whether the replacement contains line breaks, which may differ from those in the file.
pub(super) fn has_line_breaks(text: &str) -> bool {
    text.contains('\n')
}

fn converted(text: &str, breaks: LineBreaks) -> Vec<u8> {
    let plain = || text.replace("\r\n", "\n");
    match breaks {
        LineBreaks::AsTheyAre => text.to_owned(),
        LineBreaks::Lf => plain(),
        LineBreaks::CrLf => plain().replace('\n', "\r\n"),
    }
    .into_bytes()
}

/// Parses the reference at the start of `behind`, the text after a dollar. Returns its name, whether it is in
/// braces, and the remaining text.
fn reference(behind: &str) -> Option<(&str, bool, &str)> {
    if let Some(braced) = behind.strip_prefix('{') {
        let (name, rest) = braced.split_once('}')?;
        return Some((name, true, rest));
    }
    let end = behind.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let (name, rest) = behind.split_at(end.unwrap_or(behind.len()));
    (!name.is_empty()).then_some((name, false, rest))
}

fn group(regex: &Regex, id: PatternID, name: &str) -> Option<usize> {
    let info = regex.group_info();
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return name.parse().ok().filter(|index| *index < info.group_len(id));
    }
    info.to_index(id, name)
}

fn unknown(regex: &Regex, id: PatternID, name: &str, is_braced: bool) -> ReplaceError {
    // The longest beginning that names a group was probably meant.
    let cuts = (1..name.len()).rev().filter_map(|at| name.split_at_checked(at));
    let mut known = cuts.filter(|(begin, _)| group(regex, id, begin).is_some());
    let meant = if is_braced { None } else { known.next() };
    let fix = match meant {
        Some((begin, rest)) => {
            format!("write ${{{begin}}}{rest} for group {begin} and then '{rest}'")
        }
        None if is_braced => "write $$ for a dollar".to_owned(),
        None => format!("write $${name} for a dollar and then '{name}'"),
    };
    ReplaceError::UnknownGroup { name: name.to_owned(), fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(pattern: &str, template: &str, haystack: &str) -> Result<String, String> {
        let regex = Regex::new(pattern).unwrap();
        let id = PatternID::ZERO;
        let template = Template::with_groups(template, &regex, id, LineBreaks::AsTheyAre)
            .map_err(|error| error.to_string())?;
        let mut groups = regex.create_captures();
        regex.captures(haystack, &mut groups);
        let mut out = Vec::new();
        template.expand(|span| &haystack.as_bytes()[span], Some(&groups), &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn references_are_read_as_the_regex_crate_does() {
        let pattern = r"(?<first>\w)(\w)?-(?<x_1>\w+)";
        let cases = [
            ("$1$2", "ab"),
            ("${2}_$1", "b_a"),
            ("$first.${x_1}", "a.cd"),
            ("$x_1!", "cd!"),
            ("$0", "ab-cd"),
            ("$$1 $", "$1 $"),
            ("${1", "${1"),
            ("$ $é $-", "$ $é $-"),
            ("a$$$1", "a$a"),
            ("", ""),
        ];
        for (template, expected) in cases {
            assert_eq!(expanded(pattern, template, "ab-cd").unwrap(), expected, "{template}");
        }
        assert_eq!(expanded("(a)|b", "<$1>", "b").unwrap(), "<>");
    }

    #[test]
    fn a_group_that_does_not_exist_is_refused_with_the_fix() {
        let cases = [
            ("$2_$1", "write ${2}_ for group 2 and then '_'"),
            ("$1x", "write ${1}x for group 1 and then 'x'"),
            ("$namex", "write ${name}x for group name and then 'x'"),
            ("$HOME", "write $$HOME for a dollar and then 'HOME'"),
            ("$9", "write $$9 for a dollar and then '9'"),
            ("${}", "write $$ for a dollar"),
            ("${nam}", "write $$ for a dollar"),
            ("$18446744073709551617", "write ${1}8446744073709551617"),
        ];
        for (template, fix) in cases {
            let error = expanded("(a)(?<name>b)", template, "ab").unwrap_err();
            assert!(error.contains(fix), "{template}: {error}");
        }
    }

    #[test]
    fn line_breaks_become_those_of_the_file() {
        let of = |breaks| String::from_utf8(converted("a\nb\r\nc\r", breaks)).unwrap();
        assert_eq!(of(LineBreaks::AsTheyAre), "a\nb\r\nc\r");
        assert_eq!(of(LineBreaks::Lf), "a\nb\nc\r");
        assert_eq!(of(LineBreaks::CrLf), "a\r\nb\r\nc\r");
    }
}
