//! Tests of limits, pages, totals and long lines.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn the_cut_is_on_a_row_and_only_when_more_exists() {
    let tree = Files::new(&[("a", b"x1\nx2\n"), ("b", b"x3\n")]);
    // Each row is `a:1:x1` and a newline: seven bytes.
    let cases = [(21, 3, false), (20, 2, true), (14, 2, true), (13, 1, true), (7, 1, true)];
    for (max_bytes, n_rows, truncated) in cases {
        let mut request = request("x");
        request.max_bytes = max_bytes;
        let outcome = run(&tree, &request);
        assert_eq!((outcome.shown, outcome.truncated), (n_rows, truncated), "{max_bytes}");
    }
    let mut tiny = request("x");
    tiny.max_bytes = 1;
    let outcome = run(&tree, &tiny);
    assert_eq!((lines(&outcome), outcome.truncated), (vec!["a:1:x".to_owned()], true));
    assert_eq!(outcome.files[0].rows[0].cut, Some(Cut { before: 0, after: 1 }));
}

#[test]
fn every_page_of_every_size_gives_the_rows_of_the_whole() {
    let tree = Files::new(&[
        ("a", b"x\nno\nx x\nno\nno\nx\n"),
        ("a-b", b"no\n"),
        ("a.d/b", b"x\n"),
        ("c", b"x x x\nx\nno\nx"),
        ("d", b"x\0"),
        ("e", b"x\n"),
    ]);
    for output in [
        OutputMode::Lines,
        OutputMode::OnlyMatching,
        OutputMode::Files,
        OutputMode::FilesWithout,
        OutputMode::CountLines,
        OutputMode::CountMatches,
    ] {
        let mut whole = request("x");
        whole.output = output;
        whole.count_total = true;
        let listed = |outcome: &SearchOutcome| {
            let mut rows = lines(outcome);
            if rows.is_empty() {
                let files = outcome.files.iter();
                rows =
                    files.map(|file| format!("{} {}", file.path.display(), file.matches)).collect();
            }
            rows
        };
        let all = run(&tree, &whole);
        assert!(!all.truncated && all.next_offset.is_none() && all.cursor.is_none());
        assert_eq!(all.total, Total { count: all.shown, is_exact: true });
        for limit in 1..=usize::try_from(all.shown).unwrap() + 1 {
            for by_cursor in [false, true] {
                for count_total in [false, true] {
                    let mut request = Search { limit, count_total, ..whole.clone() };
                    let mut pages = Vec::new();
                    loop {
                        let page = run(&tree, &request);
                        assert!(page.shown <= limit as u64);
                        if count_total {
                            assert_eq!(page.total, all.total, "{output:?} {limit} {by_cursor}");
                        }
                        pages.extend(listed(&page));
                        let Some(offset) = page.next_offset else {
                            assert!(!page.truncated);
                            assert_eq!(page.total, all.total);
                            break;
                        };
                        assert!(page.truncated);
                        assert_eq!(offset, pages.len() as u64);
                        if by_cursor {
                            request.cursor = page.cursor;
                        } else {
                            request.offset = offset;
                        }
                    }
                    assert_eq!(pages, listed(&all), "{output:?} {limit} {by_cursor}");
                }
            }
        }
        let past = Search { offset: all.shown, ..whole.clone() };
        let page = run(&tree, &past);
        assert_eq!((page.shown, page.truncated, page.total), (0, false, all.total));
        assert_eq!(page.notes, [Note::OffsetPastEnd { total: all.shown }]);
    }
}

#[test]
fn pages_that_are_full_by_bytes_lose_nothing_also_with_context() {
    let line =
        |n: usize| format!("{}{n}\n", if n.is_multiple_of(3) { "x" } else { "-" }.repeat(90));
    let content: String = (0..900).map(line).collect();
    let tree = Files::new(&[("a", content.as_bytes()), ("b", b"x\n")]);
    for (before, after) in [(0, 0), (2, 2), (3, 0), (0, 3)] {
        for count_total in [false, true] {
            let mut request = request("x");
            (request.before, request.after, request.count_total) = (before, after, count_total);
            request.max_bytes = 5_000;
            let mut seen = Vec::new();
            loop {
                let page = run(&tree, &request);
                let rows = page.files.iter().flat_map(|file| &file.rows);
                seen.extend(rows.filter(|row| row.kind == RowKind::Match).map(|row| row.line));
                assert!(page.shown != 0 || !page.truncated);
                assert_eq!(page.truncated, page.cursor.is_some());
                request.cursor = page.cursor;
                if request.cursor.is_none() {
                    break;
                }
            }
            let all: Vec<u64> = (1..=900).step_by(3).chain([1]).collect();
            assert_eq!(seen, all, "{before} {after} {count_total}");
        }
    }
}

#[test]
fn a_cursor_serves_its_own_request_also_when_files_changed() {
    let tree = Files::new(&[("a", b"x1\nx2\nx3\n"), ("b", b"x4\n"), ("c", b"x5\n")]);
    let mut first = request("x");
    first.limit = 2;
    let cursor = run(&tree, &first).cursor;
    let next = Search { cursor: cursor.clone(), ..first.clone() };
    assert_eq!(found(&tree, &next), ["a:3:x3", "b:1:x4"]);
    // The page size may change between pages, but the request may not.
    let larger = Search { limit: 9, max_bytes: 999, ..next.clone() };
    assert_eq!(found(&tree, &larger), ["a:3:x3", "b:1:x4", "c:1:x5"]);
    let other = Search { pattern: Pattern::new("y"), ..next.clone() };
    assert_eq!(search(&other, &tree).unwrap_err(), SearchError::BadCursor);
    tree.write("0", b"x0\n");
    fs::remove_file(tree.at("b")).unwrap();
    assert_eq!(found(&tree, &next), ["a:3:x3", "c:1:x5"]);
    fs::remove_file(tree.at("a")).unwrap();
    assert_eq!(found(&tree, &next), ["c:1:x5"]);
}

#[test]
fn totals_are_exact_only_if_all_was_counted() {
    let tree = Files::new(&[("a", &b"x\n".repeat(1000)), ("b", &b"x\n".repeat(500))]);
    let mut request = request("x");
    request.limit = 10;
    let page = run(&tree, &request);
    assert_eq!((page.shown, page.truncated, page.total.is_exact), (10, true, false));
    assert!(10 < page.total.count && page.total.count <= 1500);
    request.count_total = true;
    let page = run(&tree, &request);
    assert_eq!(page.total, Total { count: 1500, is_exact: true });
    assert_eq!(page.files[0].lines, 1000);
    request.offset = 1200;
    let page = run(&tree, &request);
    assert_eq!((page.total.count, page.shown, page.files_searched), (1500, 10, 2));
    // A limit of 0 means the maximum.
    (request.limit, request.offset) = (0, 0);
    assert_eq!(run(&tree, &request).shown, 1500);
    let many = Files::new(&[("a", &b"x\n".repeat(MAX_ROWS + 1))]);
    let page = run(&many, &request);
    assert_eq!((page.shown, page.truncated), (MAX_ROWS as u64, true));
}

#[test]
fn matching_lines_of_one_file_can_be_limited() {
    let tree = Files::new(&[("a", b"x x\nx\nx\n"), ("b", b"x\n")]);
    let with = |output| {
        let mut request = request("x");
        (request.output, request.max_per_file, request.count_total) = (output, Some(1), true);
        let outcome = run(&tree, &request);
        (outcome.total.count, outcome.files[0].lines, outcome.files[0].matches)
    };
    assert_eq!(with(OutputMode::Lines), (2, 1, 1));
    assert_eq!(with(OutputMode::OnlyMatching), (3, 1, 2));
    assert_eq!(with(OutputMode::CountLines), (2, 1, 1));
}

#[test]
fn a_long_line_is_shown_around_its_match() {
    let mut line = vec![b'-'; 100_000];
    line.splice(50_000..50_000, *b"needle");
    let tree = Files::new(&[("a", &line)]);
    let mut request = request("needle");
    request.max_line = Some(10);
    let outcome = run(&tree, &request);
    let row = &outcome.files[0].rows[0];
    assert_eq!((row.text.as_slice(), row.column), (b"--needle--".as_slice(), 50_001));
    assert_eq!(row.spans.as_slice(), [2..8]);
    assert_eq!(row.cut, Some(Cut { before: 49_998, after: 49_998 }));
    assert!(!outcome.truncated);
}

#[test]
fn context_that_is_larger_than_a_page_hides_no_match() {
    let long = format!("{}\n", "-".repeat(6_000)).repeat(40);
    let before = format!("{long}needle b\n");
    let around = format!("{long}needle c\n{long}needle c\n{long}");
    let tree = Files::new(&[
        ("a", b"needle a\n"),
        ("b", before.as_bytes()),
        ("c", around.as_bytes()),
        ("d", b"needle d\n"),
    ]);
    let expected = [("a", 1), ("b", 41), ("c", 41), ("c", 82), ("d", 1)];
    for (before, after) in [(20, 20), (20, 0), (0, 20)] {
        for count_total in [false, true] {
            for by_cursor in [false, true] {
                let mut request = request("needle");
                (request.before, request.after) = (before, after);
                (request.max_bytes, request.count_total) = (10_000, count_total);
                let mut seen = Vec::new();
                loop {
                    let page = run(&tree, &request);
                    assert!(page.shown != 0, "after {seen:?}");
                    for file in &page.files {
                        let rows = file.rows.iter().filter(|row| row.kind == RowKind::Match);
                        let name = file.path.display().to_string();
                        seen.extend(rows.map(|row| (name.clone(), row.line)));
                    }
                    let Some(offset) = page.next_offset else { break };
                    assert_eq!(offset, seen.len() as u64);
                    (request.offset, request.cursor) = (offset, page.cursor.filter(|_| by_cursor));
                }
                assert!(seen.iter().map(|(name, line)| (name.as_str(), *line)).eq(expected));
            }
        }
    }
    // The text nearest to the match is shown, with the size of the cut.
    let mut request = request("needle");
    (request.before, request.offset, request.max_bytes) = (20, 1, 10_000);
    let page = run(&tree, &request);
    let rows = page.files[0].rows.iter();
    let rows: Vec<_> = rows.map(|row| (row.line, row.text.len(), row.cut.is_some())).collect();
    assert_eq!(rows, [(39, 3_974, true), (40, 6_000, false), (41, 8, false)]);
}

#[test]
fn context_of_rows_before_the_page_takes_no_room_of_it() {
    // Enough files for threads to claim several at once.
    let long = format!("x\n{}", format!("{}\n", "-".repeat(400)).repeat(20));
    let tree = Files::new(&[("000", long.as_bytes())]);
    for n in 1..200 {
        tree.write(&format!("{n:03}"), b"x\n");
    }
    let mut request = request("x");
    (request.before, request.after, request.max_bytes, request.limit) = (20, 20, 5_000, 1);
    request.cursor = run(&tree, &request).cursor;
    assert_eq!(found(&tree, &request), ["001:1:x"]);
}

/// A row without the fields that depend on the page.
type Line = (PathBuf, u64, bool, Vec<u8>);

fn lines_of(outcome: &SearchOutcome) -> Vec<Line> {
    let of = |file: &FileHits| {
        let path = file.path.to_path_buf();
        let line =
            |row: &Row| (path.clone(), row.line, row.kind == RowKind::Match, row.text.clone());
        file.rows.iter().map(line).collect::<Vec<_>>()
    };
    outcome.files.iter().flat_map(of).collect()
}

/// Returns the size of `path:line:text` and a newline in bytes.
fn bytes_of((path, line, _, text): &Line) -> usize {
    path.as_os_str().len() + line.to_string().len() + text.len() + 3
}

/// Joins pages. A line may be context on one page and a match on the next.
fn join(pages: Vec<Line>) -> Vec<Line> {
    let mut joined = std::collections::BTreeMap::new();
    for (path, line, is_match, text) in pages {
        let known = joined.entry((path, line)).or_insert_with(|| (is_match, text.clone()));
        if is_match {
            *known = (true, text);
        }
    }
    joined
        .into_iter()
        .map(|((path, line), (is_match, text))| (path, line, is_match, text))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_of_any_size_with_context_are_the_whole(
        files in vec(vec((any::<bool>(), 0..40_usize), 0..30), 1..4),
        (before, after) in (0..5_usize, 0..5_usize),
        max_bytes in 20..500_usize,
        limit in prop_oneof![Just(0), 1..9_usize],
        (count_total, by_cursor) in any::<(bool, bool)>(),
    ) {
        let tree = Files::new(&[]);
        for (n, file) in files.iter().enumerate() {
            let line = |(is_match, len): &(bool, usize)| {
                format!("{}{}\n", if *is_match { "x" } else { "" }, "-".repeat(*len))
            };
            tree.write(&n.to_string(), file.iter().map(line).collect::<String>().as_bytes());
        }
        let mut request = request("x");
        (request.before, request.after, request.count_total) = (before, after, count_total);
        let whole = lines_of(&run(&tree, &request));
        (request.limit, request.max_bytes) = (limit, max_bytes);
        let (mut pages, mut n_shown) = (Vec::new(), 0);
        loop {
            let page = run(&tree, &request);
            let lines = lines_of(&page);
            let bytes: usize = lines.iter().map(bytes_of).sum();
            prop_assert!(bytes <= max_bytes || lines.len() == 1, "{bytes} of {max_bytes}");
            prop_assert_eq!(page.truncated, page.next_offset.is_some());
            pages.extend(lines);
            n_shown += page.shown;
            let Some(offset) = page.next_offset else { break };
            prop_assert!(page.shown != 0);
            prop_assert_eq!(offset, n_shown);
            (request.offset, request.cursor) = (offset, page.cursor.filter(|_| by_cursor));
        }
        let matches = |lines: &[Line]| -> Vec<(PathBuf, u64)> {
            let found = lines.iter().filter(|line| line.2);
            found.map(|line| (line.0.clone(), line.1)).collect()
        };
        prop_assert_eq!(matches(&pages), matches(&whole));
        let all_fit = whole.iter().filter(|line| line.2).all(|(path, line, ..)| {
            let near = |other: &&Line| {
                other.0 == *path && *line <= other.1 + before as u64 && other.1 <= line + after as u64
            };
            whole.iter().filter(near).map(bytes_of).sum::<usize>() <= max_bytes
        });
        if all_fit {
            prop_assert_eq!(join(pages), whole);
        }
    }
}
