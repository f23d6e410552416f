//! Tests of matches and rows: expressions, modes, context, encodings.

use super::*;

#[test]
fn lines_are_what_is_between_newlines() {
    let tree = Files::new(&[("a", b"one\r\ntwo \xff three\n\nlast\x0bline")]);
    assert_eq!(found(&tree, &request("^")).len(), 4);
    let outcome = run(&tree, &request("^one|two|^last"));
    let texts: Vec<&[u8]> = outcome.files[0].rows.iter().map(|row| row.text.as_slice()).collect();
    assert_eq!(texts, [b"one\r".as_slice(), b"two \xff three", b"last\x0bline"]);
    // A carriage return before the newline is part of the row, and of the line if the pattern names it.
    assert_eq!(found(&tree, &request("one$")).len(), 1);
    assert_eq!(found(&tree, &request(r"one\r$")).len(), 1);
}

#[test]
fn several_patterns_are_alternatives_and_so_are_lines_of_one() {
    let tree = Files::new(&[("a", b"one\ntwo\nthree\n")]);
    let mut several = request("one");
    several.pattern.patterns.push("three".into());
    assert_eq!(found(&tree, &several), ["a:1:one", "a:3:three"]);
    let mut listed = request("one\ntwo\n");
    listed.pattern.multiline = Multiline::Off;
    assert_eq!(found(&tree, &listed), ["a:1:one", "a:2:two"]);
    for patterns in [vec![], vec![String::new()], vec!["a".into(), String::new()]] {
        several.pattern.patterns = patterns;
        assert_eq!(search(&several, &tree).unwrap_err(), SearchError::EmptyPattern);
    }
}

#[test]
fn literals_words_lines_and_case() {
    let tree = Files::new(&[("a", "a.c\nabc\nABC\nx abc y\nabcd\nпривет\nПРИВЕТ\n".as_bytes())]);
    let with = |pattern: &str, change: &dyn Fn(&mut Pattern)| {
        let mut request = request(pattern);
        change(&mut request.pattern);
        let rows = run(&tree, &request).files.into_iter().flat_map(|file| file.rows);
        rows.map(|row| row.line).collect::<Vec<_>>()
    };
    assert_eq!(with("a.c", &|_| ()), [1, 2, 4, 5]);
    assert_eq!(with("a.c", &|pattern| pattern.literal = true), [1]);
    assert_eq!(with("abc", &|pattern| pattern.boundary = Boundary::Word), [2, 4]);
    assert_eq!(with("abc", &|pattern| pattern.boundary = Boundary::Line), [2]);
    assert_eq!(with("abc", &|pattern| pattern.case = Case::Insensitive), [2, 3, 4, 5]);
    assert_eq!(with("abc", &|pattern| pattern.case = Case::Smart), [2, 3, 4, 5]);
    assert_eq!(with("ABC", &|pattern| pattern.case = Case::Smart), [3]);
    assert_eq!(with("привет", &|pattern| pattern.case = Case::Smart), [6, 7]);
    assert_eq!(with("(?i)a|ABC", &|_| ()), [1, 2, 3, 4, 5]);
}

#[test]
fn rows_say_where_their_matches_are() {
    let tree = Files::new(&[("a", "\nä ab ab\n".as_bytes())]);
    let outcome = run(&tree, &request("ab"));
    let row = &outcome.files[0].rows[0];
    assert_eq!((row.line, row.end_line, row.column), (2, 2, 4));
    assert_eq!(row.spans.as_slice(), [3..5, 6..8]);
    let mut inverted = request("ab");
    inverted.invert = true;
    let row = &run(&tree, &inverted).files[0].rows[0];
    assert_eq!((row.line, row.column, row.spans.len()), (1, 1, 0));
    // An empty match at the end counts with and without a newline.
    for content in [b"r".as_slice(), b"r\n"] {
        let tree = Files::new(&[("a", content)]);
        let row = &run(&tree, &request("$")).files[0].rows[0];
        assert_eq!((row.column, row.spans.as_slice()), (2, [1..1].as_slice()));
    }
}

#[test]
fn context_shows_gaps_and_nothing_twice() {
    let tree = Files::new(&[("a", b"1\nx\n3\nx\n5\n6\n7\n8\nx\n"), ("b", b"x\n2\n")]);
    let mut request = request("x");
    (request.before, request.after) = (1, 1);
    let all =
        ["a-1-1", "a:2:x", "a-3-3", "a:4:x", "a-5-5", "--", "a-8-8", "a:9:x", "b:1:x", "b-2-2"];
    assert_eq!(found(&tree, &request), all);
    request.limit = 2;
    assert_eq!(found(&tree, &request), &all[..5]);
    request.offset = 1;
    assert_eq!(found(&tree, &request), ["a-3-3", "a:4:x", "a-5-5", "--", "a-8-8", "a:9:x"]);
    request.offset = 3;
    assert_eq!(found(&tree, &request), ["b:1:x", "b-2-2"]);
    // The last allowed match of a file has context too.
    (request.offset, request.limit, request.max_per_file) = (0, 0, Some(1));
    assert_eq!(found(&tree, &request), ["a-1-1", "a:2:x", "a-3-3", "b:1:x", "b-2-2"]);
}

#[test]
fn each_mode_has_its_rows() {
    let tree = Files::new(&[("a", b"xx y\nx\n"), ("b", b"y\n"), ("c", b"x\n")]);
    let with = |output| {
        let mut request = request("x");
        (request.output, request.count_total) = (output, true);
        let outcome = run(&tree, &request);
        let files = outcome.files.iter();
        let files: Vec<_> =
            files.map(|file| (file.path.display().to_string(), file.lines, file.matches)).collect();
        (files, outcome.total.count)
    };
    let entry = |name: &str, lines, matches| (name.to_owned(), lines, matches);
    let both = |first| vec![first, entry("c", 1, 1)];
    assert_eq!(with(OutputMode::Lines), (both(entry("a", 2, 2)), 3));
    assert_eq!(with(OutputMode::OnlyMatching), (both(entry("a", 2, 3)), 4));
    assert_eq!(with(OutputMode::CountLines), (both(entry("a", 2, 2)), 2));
    assert_eq!(with(OutputMode::CountMatches), (both(entry("a", 2, 3)), 2));
    assert_eq!(with(OutputMode::Files), (both(entry("a", 1, 1)), 2));
    assert_eq!(with(OutputMode::FilesWithout), (vec![entry("b", 0, 0)], 1));
    let mut only = request("x");
    only.output = OutputMode::OnlyMatching;
    assert_eq!(found(&tree, &only), ["a:1:x", "a:1:x", "a:2:x", "c:1:x"]);
    let columns: Vec<u64> = run(&tree, &only).files[0].rows.iter().map(|row| row.column).collect();
    assert_eq!(columns, [1, 2, 1]);
}

#[test]
fn matches_cross_lines_when_the_pattern_says_so() {
    let tree = Files::new(&[("a", b"a {\n  b\n}\nc\na {\n  x\n}\n")]);
    let outcome = run(&tree, &request(r"a \{\n\s+b"));
    let row = &outcome.files[0].rows[0];
    assert_eq!((row.line, row.end_line, row.text.as_slice()), (1, 2, b"a {\n  b".as_slice()));
    assert_eq!(outcome.notes, [Note::MultilineBecauseOfNewline]);
    assert!(outcome.multiline_used);
    let mut on = request(r"a.*?x");
    assert_eq!(found(&tree, &on), [""; 0]);
    on.pattern.multiline = Multiline::On { dot_all: true };
    assert_eq!(run(&tree, &on).files[0].rows[0].end_line, 6);
    on.pattern.multiline = Multiline::On { dot_all: false };
    assert_eq!(found(&tree, &on), [""; 0]);
    let mut only = request(r"\{\n.*\n\}");
    (only.output, only.after) = (OutputMode::OnlyMatching, 3);
    let rows = &run(&tree, &only).files[0].rows;
    let places: Vec<_> = rows.iter().map(|row| (row.line, row.end_line, row.column)).collect();
    assert_eq!(places, [(1, 3, 3), (5, 7, 3)]);
    let mut off = request(r"a\nb");
    off.pattern.multiline = Multiline::Off;
    assert!(matches!(search(&off, &tree), Err(SearchError::BadPattern { .. })));
}

#[test]
fn a_basic_pattern_that_finds_nothing_is_read_as_one() {
    let tree = Files::new(&[("a", b"foo\nbar\nf|b\n")]);
    let cases: [(&str, &[&str], Dialect); 4] = [
        (r"foo\|bar", &["a:1:foo", "a:2:bar"], Dialect::Basic),
        // This is not a valid Rust pattern.
        (r"\(foo\)\|bar(", &["a:1:foo"], Dialect::Basic),
        // The Rust dialect wins if it finds something.
        (r"f\|b", &["a:3:f|b"], Dialect::Rust),
        (r"nothing\|none", &[], Dialect::Rust),
    ];
    for (pattern, rows, dialect) in cases {
        let mut request = request(pattern);
        request.pattern.retry_as_basic = true;
        let outcome = run(&tree, &request);
        assert_eq!(lines(&outcome), rows, "{pattern}");
        assert_eq!(outcome.dialect_used, dialect, "{pattern}");
        let is_noted = outcome.notes == [Note::RetriedAsBasic];
        assert_eq!(is_noted, dialect == Dialect::Basic, "{pattern}");
        // The next page uses the same dialect.
        request.limit = 1;
        let first = run(&tree, &request);
        if first.truncated {
            request.cursor = first.cursor;
            assert_eq!(found(&tree, &request), &rows[1..], "{pattern}");
            assert_eq!(run(&tree, &request).dialect_used, dialect, "{pattern}");
        }
    }
    let mut basic = request("f|b");
    basic.pattern.dialect = Dialect::Basic;
    assert_eq!(found(&tree, &basic), ["a:3:f|b"]);
    assert_eq!(found(&tree, &request(r"foo\|bar")), [""; 0]);
}

#[test]
fn binary_files_are_left_out_read_or_named() {
    let mut late = b"x\n".repeat(50_000);
    late.extend_from_slice(b"\0x\n");
    let tree = Files::new(&[("a-early", b"x\0x\n"), ("b-late", &late), ("c", b"x\n")]);
    let mut request = request("x");
    request.max_bytes = 10_000_000;
    request.count_total = true;
    let outcome = run(&tree, &request);
    let skipped = Skipped { binary: 2, ..Skipped::default() };
    assert_eq!((lines(&outcome), outcome.skipped), (vec!["c:1:x".to_owned()], skipped));
    request.binary = Binary::Text;
    assert_eq!(run(&tree, &request).total.count, 50_003);
    request.binary = Binary::Report;
    let outcome = run(&tree, &request);
    let files: Vec<_> =
        outcome.files.iter().map(|file| (file.is_binary, file.rows.len())).collect();
    assert_eq!(files, [(true, 1), (true, 1), (false, 1)]);
    assert_eq!(lines(&outcome), ["a-early:1:", "b-late:1:", "c:1:x"]);
    request.pattern = Pattern::new("none");
    assert_eq!(found(&tree, &request), [""; 0]);
}

#[test]
fn encodings_are_told_by_their_mark_or_by_the_caller() {
    let utf16 = |text: &str| {
        let units = text.encode_utf16().flat_map(u16::to_le_bytes);
        [0xFF, 0xFE].into_iter().chain(units).collect::<Vec<u8>>()
    };
    let tree = Files::new(&[
        ("latin1", b"caf\xe9\n"),
        ("sjis", b"\x83V\x83F\n"),
        ("utf16", &utf16("x Шерлок\ny\n")),
        ("utf8", "\u{feff}Шерлок\n".as_bytes()),
    ]);
    let with = |pattern: &str, encoding: Encoding| {
        let mut request = request(pattern);
        request.encoding = encoding;
        found(&tree, &request)
    };
    assert_eq!(with("Шерлок$", Encoding::Auto), ["utf16:1:x Шерлок", "utf8:1:Шерлок"]);
    assert_eq!(with("^Шерлок", Encoding::Auto), ["utf8:1:Шерлок"]);
    assert_eq!(with("^Шерлок", Encoding::None), [""; 0]);
    assert_eq!(with("café", Encoding::Label("latin1".into())), ["latin1:1:café"]);
    assert_eq!(with("シェ", Encoding::Label("shift_jis".into())), ["sjis:1:シェ"]);
    let mut request = request("x");
    request.encoding = Encoding::Label("klingon".into());
    let error = search(&request, &tree).unwrap_err();
    assert_eq!(error.to_string(), "unknown encoding 'klingon'");
}

#[test]
fn an_empty_answer_says_why() {
    let tree = Files::new(&[
        (".gitignore", b"ignored\n"),
        ("ignored", b"x"),
        (".hidden", b"x"),
        ("a", b"Foo(bar)\n"),
    ]);
    let with = |pattern: &str, change: &dyn Fn(&mut Search)| {
        let mut request = request(pattern);
        request.scope.exclude = vec![".gitignore".into()];
        request.explain_empty = true;
        change(&mut request);
        let outcome = run(&tree, &request);
        outcome.notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let literal = "the pattern is a regular expression; taken as plain text it occurs in 1 lines";
    assert_eq!(with("Foo(bar)", &|_| ()), [literal]);
    assert_eq!(with("foo", &|_| ()), ["1 lines match if upper and lower case are the same"]);
    assert_eq!(with("nothing", &|_| ()), [""; 0]);
    let leave = |request: &mut Search| {
        request.scope.hidden = Hidden::Leave;
        request.scope.ignore = Ignore::All;
    };
    assert_eq!(
        with("nothing", &leave),
        ["1 ignored and 2 hidden files or directories were not searched"]
    );
    assert_eq!(
        with("x", &|request| request.scope.include = vec!["*.none".into()]),
        ["no file was searched; filters left out 4"]
    );
    assert_eq!(with("foo", &|request| request.offset = 5), with("foo", &|_| ()));
    assert_eq!(
        with("Foo", &|request| request.offset = 5),
        ["the offset is past the end; there are 1 results"]
    );
}

/// Lines of `a` that a request finds.
fn of_content(content: &[u8], request: &Search) -> Vec<String> {
    found(&Files::new(&[("a", content)]), request)
}

#[test]
fn lines_that_end_with_crlf_are_found_without_their_end() {
    let file = b"one;\r\nfoo\r\n\r\n  \r\nbar \r\nlone\rcr\r\nend\r";
    for (pattern, expected) in [
        (";$", "1"),
        ("^foo$", "2"),
        ("^$", "3"),
        (r"^\s*$", "3 4"),
        (r"\s+$", "4 5 7"),
        ("[^;]$", "2 4 5 6 7"),
        ("foo.", ""),
        ("lone$", ""),
        (r"lone\z|foo\z", "2"),
        ("lone.cr$", "6"),
        ("end$", ""),
        (r"(?-m)foo$", "2"),
        (r"e+;$|cr$", "1 6"),
        (r"foo\r$", "2"),
        (r"\r", "1 2 3 4 5 6 7"),
        (r"[^\r]$", ""),
    ] {
        let numbers = |request: &Search| {
            let rows = of_content(file, request);
            let number = |row: String| row.split(':').nth(1).unwrap().to_owned();
            rows.into_iter().map(number).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(numbers(&request(pattern)), expected, "{pattern}");
        let mut inverted = request(pattern);
        inverted.invert = true;
        let others = (1..=7).map(|n| n.to_string());
        let others: Vec<_> =
            others.filter(|n| !expected.split(' ').any(|found| found == n)).collect();
        assert_eq!(numbers(&inverted), others.join(" "), "not {pattern}");
    }
    let mut whole = request("foo");
    whole.pattern.boundary = Boundary::Line;
    assert_eq!(of_content(file, &whole), ["a:2:foo\r"]);
    (whole.pattern.patterns, whole.pattern.literal) = (vec!["one;".to_owned()], true);
    assert_eq!(of_content(file, &whole), ["a:1:one;\r"]);
    let mut only = request(".*");
    only.output = OutputMode::OnlyMatching;
    assert_eq!(of_content(b"ab\r\nc\r\n", &only), ["a:1:ab", "a:2:c"]);
    let utf16: Vec<u8> =
        "\u{feff}one;\r\ntwo\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(of_content(&utf16, &request(";$")), ["a:1:one;\r"]);
}

#[test]
fn matches_across_lines_find_crlf_and_keep_their_places() {
    let file = b"zero\r\none\r\ntwo\nfoo\rbar\r\n\r\nend\r\n";
    for (pattern, expected) in [
        (r"one\ntwo\nfoo", vec!["a:2:one\r\ntwo\nfoo\rbar\r"]),
        ("bar\n\nend", vec!["a:4:foo\rbar\r\n\r\nend\r"]),
        (r"^one$\n", vec!["a:2:one\r"]),
        (r"one\r\ntwo", vec!["a:2:one\r\ntwo"]),
        (r"two\r\nfoo", vec![]),
        (r"two\n[^\r]oo", vec!["a:3:two\nfoo\rbar\r"]),
        (r"one\n[^\r]wo", vec![]),
        (r"one.\n", vec![]),
    ] {
        let mut request = request(pattern);
        request.pattern.multiline = Multiline::Auto;
        assert_eq!(of_content(file, &request), expected, "{pattern}");
        let text = String::from_utf8(file.to_vec()).unwrap();
        let utf16: Vec<u8> =
            format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(of_content(&utf16, &request), expected, "{pattern} in UTF-16");
    }
    let tree = Files::new(&[("a", file)]);
    let mut request = request(r"o\n(t|o)");
    request.pattern.multiline = Multiline::Auto;
    let outcome = run(&tree, &request);
    let row = &outcome.files[0].rows[0];
    assert_eq!((row.line, row.end_line, row.column), (1, 2, 4));
    assert_eq!(row.spans.to_vec(), [3..7]);
    (request.before, request.after) = (1, 1);
    request.pattern.patterns = vec![r"e\ntwo".to_owned()];
    assert_eq!(found(&tree, &request), ["a-1-zero\r", "a:2:one\r\ntwo", "a-4-foo\rbar\r"]);
    request.output = OutputMode::OnlyMatching;
    let outcome = run(&tree, &request);
    let row = &outcome.files[0].rows[0];
    assert_eq!((row.line, row.end_line, row.column), (2, 3, 3));
    assert_eq!(row.text, b"e\r\ntwo");
}

proptest::proptest! {
    #[test]
    fn random_line_ends_hide_no_line(
        lines in proptest::collection::vec(
            (proptest::sample::select(vec!["", "a", "ab;", "a ", "b\ra", "\r"]), proptest::bool::ANY),
            1..12,
        ),
        pattern in proptest::sample::select(vec!["a$", "^a", r"\s$", "[^a]$", "^$", ".", "b.a$", r"a\z", "x*"]),
        n in 1..400_usize,
    ) {
        // Many lines make a file that is read in blocks.
        let n = if n < 380 { 1 } else { 100 * n };
        let lines: Vec<_> = lines.iter().cycle().take(lines.len() * n).collect();
        let content: String =
            lines.iter().flat_map(|(line, is_crlf)| [*line, if *is_crlf { "\r\n" } else { "\n" }]).collect();
        let regex = regex::bytes::Regex::new(&format!("(?m:{pattern})")).unwrap();
        let expected: Vec<String> = content
            .split_terminator('\n')
            .enumerate()
            .filter(|(_, line)| regex.is_match(line.strip_suffix('\r').unwrap_or(line).as_bytes()))
            .map(|(n, line)| format!("a:{}:{line}", n + 1))
            .collect();
        let mut request = request(pattern);
        (request.limit, request.max_bytes) = (0, usize::MAX);
        let found = of_content(content.as_bytes(), &request);
        proptest::prop_assert_eq!(found.len(), expected.len().min(MAX_ROWS));
        proptest::prop_assert!(found.iter().zip(&expected).all(|(found, expected)| found == expected));
    }
}
