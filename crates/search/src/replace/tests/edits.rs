//! Tests of editing one file: matches, replacements, and unchanged bytes.

use super::*;
use crate::request::{Boundary, Case, Dialect};

fn text(request: &Replace, old: &str) -> String {
    String::from_utf8(edited(request, old.as_bytes())).unwrap()
}

#[test]
fn within_lines_the_pattern_never_sees_what_ends_a_line() {
    let cases: &[(&str, &str, &str, &str)] = &[
        ("a", "b", "a\r\na\na", "b\r\nb\nb"),
        (r"\s+$", "", "a \t\r\nb  \n\n c", "a\r\nb\n\n c"),
        ("$", ";", "a\r\nb\n\nc", "a;\r\nb;\n;\nc;"),
        ("^", "> ", "a\r\n\nb\n", "> a\r\n> \n> b\n"),
        (".*", "x", "a\r\n\nb", "x\r\nx\nx"),
        (r"[^x]+", "-", "a\r\nb", "-\r\n-"),
        (r"(?s).", "-", "a\r\n\n", "-\r\n\n"),
        (r"\A.|.\z", "-", "abc\r\ndef\n", "-b-\r\n-e-\n"),
        (r"\r", "", "a\r\nb\rc\r", "a\r\nbc"),
        (r"\bfoo\b", "bar", "foo food\r\nfoo", "bar food\r\nbar"),
        ("a|", "-", "ab", "-b-"),
        ("x*", "-", "éa", "-é-a-"),
        ("a\nb", "x", "a\nb\nc", "x\nx\nc"),
        ("a\n", "x", "a\nb", "x\nb"),
        (r"(?-u:\xc3)", "-", "a", "a"),
    ];
    for (pattern, replacement, old, new) in cases {
        assert_eq!(text(&request(pattern, replacement), old), *new, "{pattern} in {old:?}");
    }
}

#[test]
fn across_lines_a_match_may_take_line_breaks_with_it() {
    let cases: &[(&str, &str, &str, &str)] = &[
        (r"a\s+b", "ab", "a\r\n b\n", "ab\n"),
        (r"\n\n+", "\n", "a\n\n\nb", "a\nb"),
        ("^a", "b", "a\na", "b\nb"),
        ("a$", "b", "a\na\r\n", "b\nb\r\n"),
        (r"a\nb", "x", "a\r\nb\na\nb\r\n", "x\nx\r\n"),
        (r"(a\n)b(\n)", "${1}c$2", "a\r\nb\na\nb\r\n", "a\r\nc\na\nc\r\n"),
        (r"a\nb", "x\ny", "a\r\nb\r\n", "x\r\ny\r\n"),
        (r"a.\n", "x", "a\r\n", "a\r\n"),
        (r"[^;\n]$", "!", "a;\r\nb\r\n", "a;\r\n!\r\n"),
        (r"\r\n", "\n", "a\r\nb\n", "a\nb\n"),
        (r"a\r?\nb", "x", "a\r\nb\na\nb", "x\nx"),
        (r"a\r\nb", "x", "a\nb", "a\nb"),
        ("a.b", "x", "a\nb", "a\nb"),
        ("(?s)a.b", "x", "a\nb", "x"),
        (r"\z", "end", "a\n", "a\nend"),
        (r"(\w)\n(\w)", "$2\n$1", "a\nb", "b\na"),
    ];
    for (pattern, replacement, old, new) in cases {
        assert_eq!(text(&across_lines(pattern, replacement), old), *new, "{pattern} in {old:?}");
    }
}

#[test]
fn a_line_feed_in_a_pattern_is_an_error_or_crosses_lines_by_what_was_asked() {
    let mut asked = request(r"a\nb", "x");
    let error = Editor::new(&asked).unwrap_err().to_string();
    assert_eq!(error, r#"the literal "\n" is not allowed in a regex"#);
    asked.pattern.multiline = Multiline::Auto;
    assert!(Editor::new(&asked).unwrap().is_multiline());
    assert_eq!(text(&asked, "a\nb"), "x");
    let mut plain = request(r"a\\nb", "x");
    plain.pattern.multiline = Multiline::Auto;
    assert!(!Editor::new(&plain).unwrap().is_multiline());
    plain.pattern.literal = true;
    plain.pattern.patterns = vec![r"a\nb".into()];
    assert_eq!(text(&plain, "a\nb a\\nb"), "a\nb x");
}

#[test]
fn line_breaks_of_the_replacement_become_those_of_the_file() {
    let mut asked = request("-", "x\ny\r\nz");
    assert_eq!(text(&asked, "-"), "x\ny\nz");
    assert_eq!(text(&asked, "-\n"), "x\ny\nz\n");
    assert_eq!(text(&asked, "-\r\n"), "x\r\ny\r\nz\r\n");
    assert_eq!(text(&asked, "-\r\n\r\n\n"), "x\r\ny\r\nz\r\n\r\n\n");
    assert_eq!(text(&asked, "-\r\n\n\n"), "x\ny\nz\r\n\n\n");
    asked.raw_newlines = true;
    assert_eq!(text(&asked, "-\r\n"), "x\ny\r\nz\r\n");
    // Line breaks that a group matched are not converted.
    assert_eq!(text(&across_lines(r"a(\n)b", "$1\n"), "a\nb\r\n\r\n"), "\n\r\n\r\n\r\n");
}

#[test]
fn the_replacement_is_a_template_or_text() {
    let mut asked = request("(a)(b)", "$2$1$$");
    assert_eq!(text(&asked, "ab"), "ba$");
    asked.template = false;
    assert_eq!(text(&asked, "ab"), "$2$1$$");
    asked.pattern.literal = true;
    assert_eq!(text(&asked, "ab (a)(b)"), "ab $2$1$$");
    let unknown = request("(a)(b)", "$2_$1");
    let error = Editor::new(&unknown).unwrap_err().to_string();
    assert_eq!(
        error,
        "the replacement refers to group '2_', which the pattern does not have; \
         write ${2}_ for group 2 and then '_'"
    );
    // Each alternative has its own groups.
    let mut two = request("(a)x", "<$1>");
    two.pattern.patterns.push("y(b)".into());
    assert_eq!(text(&two, "ax yb"), "<a> <b>");
    two.pattern.patterns.push("z".into());
    assert!(matches!(Editor::new(&two), Err(ReplaceError::UnknownGroup { .. })));
}

#[test]
fn case_boundaries_and_dialect_are_those_of_a_search() {
    let mut asked = request("aé", "x");
    asked.pattern.case = Case::Insensitive;
    assert_eq!(text(&asked, "AÉ aé"), "x x");
    asked.pattern.case = Case::Smart;
    assert_eq!(text(&asked, "AÉ aé"), "x x");
    asked.pattern.patterns = vec![r"A\w".into()];
    assert_eq!(text(&asked, "AÉ aé"), "x aé");
    asked.pattern.patterns = vec![r"\Waé".into()];
    assert_eq!(text(&asked, "AÉ AÉ"), "AÉx");
    let mut word = request("a|ab", "x");
    word.pattern.boundary = Boundary::Word;
    assert_eq!(text(&word, "a ab aab a-b"), "x x aab x-b");
    word.pattern.boundary = Boundary::Line;
    assert_eq!(text(&word, "ab\r\na b\na"), "x\r\na b\nx");
    let mut basic = request(r"\(a\)+", r"<$1>");
    basic.pattern.dialect = Dialect::Basic;
    assert_eq!(text(&basic, "a+ a"), "<a> a");
}

#[test]
fn only_the_asked_lines_and_the_first_matches_change() {
    let lines = "a\na\r\na\na";
    let cases = [
        ((1, 1), "b\na\r\na\na"),
        ((2, 3), "a\nb\r\nb\na"),
        ((4, 9), "a\na\r\na\nb"),
        ((5, 9), lines),
        ((1, u64::MAX), "b\nb\r\nb\nb"),
    ];
    for (range, expected) in cases {
        for mut asked in [request("a", "b"), across_lines("a", "b")] {
            asked.line_range = Some(range);
            assert_eq!(text(&asked, lines), expected, "{range:?}");
        }
    }
    let mut ends = request("$", ";");
    ends.line_range = Some((2, 2));
    assert_eq!(text(&ends, "a\nb\n"), "a\nb;\n");
    assert_eq!(text(&ends, "a\n"), "a\n");
    let mut first = request("a", "b");
    first.max_per_file = Some(3);
    assert_eq!(text(&first, "aa\naa\naa"), "bb\nba\naa");
    first.max_per_file = Some(0);
    assert_eq!(text(&first, "aa"), "aa");
    for (first, last) in [(0, 1), (3, 2)] {
        let mut asked = request("a", "b");
        asked.line_range = Some((first, last));
        let error = Editor::new(&asked).unwrap_err();
        assert_eq!(error, ReplaceError::BadLineRange { first, last });
    }
}

#[test]
fn what_is_counted_is_what_changes() {
    let counted = |request: &Replace, old: &str| {
        let edited = Editor::new(request).unwrap().edit(old.as_bytes()).unwrap();
        edited.map(|edited| (edited.lines, edited.replacements))
    };
    assert_eq!(counted(&request("a", "b"), "aa\nb\na"), Some((2, 3)));
    assert_eq!(counted(&request("[ab]", "b"), "ab\nb\n"), Some((1, 1)));
    assert_eq!(counted(&request("a", "a"), "aaa"), None);
    assert_eq!(counted(&request("x", "y"), "aaa"), None);
    assert_eq!(counted(&across_lines("a\na", "x"), "a\na\na\na"), Some((4, 2)));
    assert_eq!(counted(&across_lines("a\n", ""), "a\na\nb"), Some((2, 2)));
    assert_eq!(counted(&across_lines("^", "> "), "a\nb\n"), Some((3, 3)));
}

#[test]
fn the_kinds_of_files_are_told_and_kept() {
    let edit = |old: &[u8]| Editor::new(&request("a", "ü")).unwrap().edit(old);
    let kind = |old: &[u8]| {
        let edited = edit(old).unwrap().unwrap();
        (edited.eol.name(), edited.encoding.name(), edited.new)
    };
    assert_eq!(kind(b"a"), ("none", "utf-8", "ü".into()));
    assert_eq!(kind(b"\xef\xbb\xbfa\n"), ("lf", "utf-8-bom", "\u{feff}ü\n".into()));
    assert_eq!(kind(b"a\xe9\r\n"), ("crlf", "bytes", b"\xc3\xbc\xe9\r\n".to_vec()));
    assert_eq!(kind(b"\xff\xfea\0\n\0"), ("lf", "utf-16le", b"\xff\xfe\xfc\0\n\0".to_vec()));
    assert_eq!(kind(b"\xfe\xff\0a\0\r\0\n\0\n").0, "mixed");
    assert_eq!(edit(b"\xff\xfea").unwrap_err(), SkipReason::MalformedUtf16);
    assert_eq!(edit(b"a\0").unwrap_err(), SkipReason::Binary);
    let mut all = request("a", "b");
    all.skip_binary = false;
    assert_eq!(edited(&all, b"a\0a"), b"b\0b");
    // A byte order mark is not text: `^` matches after it.
    assert_eq!(edited(&request("^", "x"), b"\xef\xbb\xbf\n"), b"\xef\xbb\xbfx\n");
    let half = request(r"(?-u:\xc3)", "x");
    let utf16: Vec<u8> = "\u{feff}é".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(Editor::new(&half).unwrap().edit(&utf16), Err(SkipReason::NotEncodable));
}

#[test]
fn everything_has_a_limit() {
    let editor = |request: &Replace| Editor::new(request).unwrap();
    let large = vec![b'a'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
    let len = large.len() as u64;
    let once = request("^a", "b");
    assert_eq!(editor(&once).edit(&large), Err(SkipReason::TooLarge { len }));
    assert!(editor(&once).edit(&large[1..]).unwrap().is_some());
    let grow = request("^a", "bb");
    assert_eq!(editor(&grow).edit(&large[1..]), Err(SkipReason::WouldBeTooLarge));
    let mut bomb = request("a", &"b".repeat(MAX_REPLACEMENT_BYTES));
    bomb.max_replacements = u64::MAX;
    assert_eq!(editor(&bomb).edit(&large[1..1000]), Err(SkipReason::WouldBeTooLarge));
    let mut few = request("a", "b");
    few.max_replacements = 3;
    assert_eq!(editor(&few).edit(b"aaaa"), Err(SkipReason::TooManyReplacements));
    assert!(editor(&few).edit(b"aaa").is_ok());
    let long = request("a", &"b".repeat(MAX_REPLACEMENT_BYTES + 1));
    assert!(matches!(Editor::new(&long), Err(ReplaceError::ReplacementTooLong { .. })));
    for (pattern, reason) in [
        (r"(\w{100}){100}{100}", "compiled regex exceeds size limit of 10485760"),
        ("a(?=b)", "look-around, including look-ahead and look-behind, is not supported"),
        ("", "pattern is empty"),
    ] {
        assert_eq!(Editor::new(&request(pattern, "")).unwrap_err().to_string(), reason);
    }
}
