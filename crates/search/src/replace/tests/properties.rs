//! Property tests against a slow and simple implementation.

use super::super::diff::unified;
use super::*;
use proptest::prelude::*;
use std::path::Path;

/// Patterns with every kind of anchor and class, and templates for their one group.
const PATTERNS: &[&str] = &[
    "(a)",
    "(ab|a)",
    "^(a?)",
    "(b*)$",
    "^(.*)$",
    r"(\s+)",
    r"(\w+)",
    r"\b(\w)",
    "(.)$",
    "([^a]+)",
    r"(a+)\s*b",
    "(?i)(A)",
    r"(?-u)([\x80-\xff])",
    r"\A(.)",
    r"(.)\z",
    "(?s)(.+)",
    "(a|b|c| )+",
    "(é)",
];
const TEMPLATES: &[&str] = &["", "x", "$1", "<$1>", "$1$1", "$$", "ab"];

fn content() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        &b"a"[..],
        b"b",
        b"c",
        b"ab",
        b" ",
        b"\t",
        b"\n",
        b"\r\n",
        b"\r",
        b"\n\n",
        b"\xe9",
        "é".as_bytes(),
        b"A",
    ]);
    prop::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat())
}

fn pick(of: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(of.to_vec())
}

/// Replaces line by line with the regex crate.
fn plainly(pattern: &str, template: &str, old: &[u8]) -> Vec<u8> {
    let regex = regex::bytes::Regex::new(pattern).unwrap();
    let mut new = Vec::new();
    for line in old.split_inclusive(|byte| *byte == b'\n') {
        let content =
            line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
        let (_, terminator) = line.split_at(content.len());
        new.extend_from_slice(&regex.replace_all(content, template.as_bytes()));
        new.extend_from_slice(terminator);
    }
    new
}

fn terminators(text: &[u8]) -> Vec<&[u8]> {
    let ends = text.split_inclusive(|byte| *byte == b'\n');
    ends.map(|line| match line {
        [.., b'\r', b'\n'] => &b"\r\n"[..],
        [.., b'\n'] => b"\n",
        _ => b"",
    })
    .collect()
}

fn without_lone_crs(old: &[u8]) -> Vec<u8> {
    let is_lone = |at: usize| old[at] == b'\r' && old.get(at + 1) != Some(&b'\n');
    (0..old.len()).filter(|at| !is_lone(*at)).map(|at| old[at]).collect()
}

fn without_crs(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| *byte != b'\r').collect()
}

/// Applies a unified diff.
fn patched(old: &str, diff: &str) -> String {
    let mut old_lines = old.split_inclusive('\n').peekable();
    let (mut new, mut line_no) = (String::new(), 0);
    let text = diff.replace("\n\\ No newline at end of file\n", "\u{1}");
    let lines = text.split_inclusive(['\n', '\u{1}']).skip(2);
    for line in lines {
        let plain = |line: &str| line[1..].replace('\u{1}', "");
        if let Some(range) = line.strip_prefix("@@ -") {
            let (first, rest) = range.split_once([',', ' ']).unwrap();
            let is_empty = rest.starts_with("0 ");
            let first: usize = first.parse().unwrap();
            while line_no + usize::from(!is_empty) < first {
                new.push_str(old_lines.next().unwrap());
                line_no += 1;
            }
        } else if line.starts_with('+') {
            new.push_str(&plain(line));
        } else {
            assert_eq!(old_lines.next().unwrap(), plain(line), "{diff}");
            line_no += 1;
            if line.starts_with(' ') {
                new.push_str(&plain(line));
            }
        }
    }
    old_lines.for_each(|line| new.push_str(line));
    new
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn lines_are_edited_as_one_by_one(old in content(), pattern in pick(PATTERNS), template in pick(TEMPLATES)) {
        // The only difference is an empty match within a character.
        prop_assume!(std::str::from_utf8(&old).is_ok_and(|text| text.is_ascii()) || !pattern.contains('*'));
        prop_assert_eq!(edited(&request(pattern, template), &old), plainly(pattern, template, &old));
    }

    #[test]
    fn line_endings_stay(old in content(), pattern in pick(PATTERNS), template in pick(TEMPLATES)) {
        // The replacement could move a carriage return within a line to its end.
        let old = without_lone_crs(&old);
        let new = edited(&request(pattern, template), &old);
        let (before, after) = (terminators(&old), terminators(&new));
        // A last line without a line break may become empty, and then disappears.
        let kept = before.len().min(after.len());
        prop_assert_eq!(&before[..kept], &after[..kept]);
        prop_assert!(before[kept..].iter().chain(&after[kept..]).all(|end| end.is_empty()));
    }

    #[test]
    fn lines_and_matches_are_counted(old in content(), pattern in pick(PATTERNS), template in pick(TEMPLATES)) {
        let Some(found) = Editor::new(&request(pattern, template)).unwrap().edit(&old).unwrap() else {
            prop_assert_eq!(plainly(pattern, template, &old), old);
            return Ok(());
        };
        fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
            text.split(|byte| *byte == b'\n')
        }
        let changed = lines(&old).zip(lines(&found.new)).filter(|(a, b)| a != b).count() as u64;
        prop_assert_ne!(&found.new, &old);
        prop_assert!(changed <= found.lines && found.lines <= found.replacements);
    }

    #[test]
    fn across_lines_it_is_one_pass(old in content(), pattern in pick(PATTERNS), template in pick(TEMPLATES)) {
        prop_assume!(old.is_ascii() || !pattern.contains('*'));
        // The replacement could move a carriage return within a line to its end.
        let old = without_lone_crs(&old);
        let regex = regex::bytes::RegexBuilder::new(pattern).multi_line(true).build().unwrap();
        let plainly = regex.replace_all(&without_crs(&old), template.as_bytes()).into_owned();
        prop_assert_eq!(without_crs(&edited(&across_lines(pattern, template), &old)), plainly);
    }

    #[test]
    fn across_lines_the_ends_of_others_stay(old in content(), pattern in prop::sample::select(vec![r"a\nb", r"(a)\n", "b$", r"a\s+"])) {
        let old = without_lone_crs(&old);
        let regex = regex::bytes::RegexBuilder::new(&pattern.replace(r"\n", r"\r?\n").replace('$', r"(?R:$)")).multi_line(true).build().unwrap();
        prop_assert_eq!(edited(&across_lines(pattern, "x"), &old), regex.replace_all(&old, &b"x"[..]).into_owned());
    }

    #[test]
    fn twice_is_once_if_the_replacement_does_not_match(old in content()) {
        let asked = request("a+|é", "x");
        let once = edited(&asked, &old);
        prop_assert_eq!(edited(&asked, &once), once);
    }

    #[test]
    fn utf_16_is_edited_as_the_same_text(old in content(), pattern in pick(PATTERNS), template in pick(TEMPLATES)) {
        prop_assume!(!pattern.contains("-u"));
        let Ok(old) = String::from_utf8(old) else { return Ok(()) };
        let encode = |text: &str| -> Vec<u8> {
            ['\u{feff}'].into_iter().chain(text.chars()).collect::<String>()
                .encode_utf16().flat_map(u16::to_be_bytes).collect()
        };
        let asked = request(pattern, template);
        let new = String::from_utf8(edited(&asked, old.as_bytes())).unwrap();
        prop_assert_eq!(edited(&asked, &encode(&old)), encode(&new));
    }

    #[test]
    fn diffs_lead_from_the_old_text_to_the_new(
        old in content(),
        pattern in pick(PATTERNS),
        template in prop::sample::select(vec!["", "x", "$1\n", "\n", "y\ny\ny", "$1$1"]),
        crosses in any::<bool>(),
    ) {
        prop_assume!(!pattern.contains("-u"));
        let Ok(old) = String::from_utf8(old) else { return Ok(()) };
        let asked = if crosses { across_lines(pattern, template) } else { request(pattern, template) };
        let change = Editor::new(&asked).unwrap().change(old.as_bytes(), None).unwrap();
        let Some(change) = change else { return Ok(()) };
        let diff = unified(Path::new("a"), old.as_bytes(), &change.edited.new, &change.edits, usize::MAX);
        prop_assert!(!diff.is_cut);
        let new = String::from_utf8(change.edited.new).unwrap();
        prop_assert_eq!(patched(&old, &diff.text), new);
    }
}
