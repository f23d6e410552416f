//! Tests of rows that are passed on while the search runs.

use super::*;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// Returns the rows that a stream passes on, file by file, and its outcome.
fn streamed(tree: &dyn Tree, request: &Search) -> (SearchOutcome, Vec<FileHits>) {
    let mut files: Vec<FileHits> = Vec::new();
    let mut take = |file: FileHits| {
        match files.last_mut() {
            // The parts of one file.
            Some(last) if last.path == file.path => last.rows.extend(file.rows),
            _ => files.push(file),
        }
        true
    };
    let outcome = search_to(request, tree, &mut take).unwrap();
    assert_eq!(outcome.files, []);
    (outcome, files)
}

/// Returns the rows of all pages. Lines of context that two pages have are returned once.
fn paged(tree: &dyn Tree, request: &Search) -> Vec<String> {
    let mut request = request.clone();
    let mut all: Vec<FileHits> = Vec::new();
    loop {
        let page = run(tree, &request);
        all.extend(page.files);
        request.cursor = page.cursor;
        if request.cursor.is_none() {
            let mut seen = HashSet::new();
            return rows(&all).into_iter().filter(|row| seen.insert(row.clone())).collect();
        }
    }
}

/// Returns what identifies each row. The first line of a page is never after a gap, so gaps are not included.
fn rows(files: &[FileHits]) -> Vec<String> {
    let of_file = |file: &FileHits| -> Vec<String> {
        let path = file.path.display();
        if file.rows.is_empty() {
            return vec![format!("{path} {} {}", file.lines, file.matches)];
        }
        let row = |row: &Row| {
            let text = String::from_utf8_lossy(&row.text).into_owned();
            let Row { kind, line, end_line, column, spans, .. } = row;
            format!("{path} {kind:?} {line} {end_line} {column} {spans:?} {text}")
        };
        file.rows.iter().map(row).collect()
    };
    files.iter().flat_map(of_file).collect()
}

/// Files of which some have many rows, some few, and some none.
fn mixed() -> Files {
    let tree = Files::new(&[("zero", b"x\0"), ("none", b"no\n")]);
    let line = |n: usize| match n % 7 {
        0 | 3 => format!("x {n} x\n"),
        _ => format!("- {n}\n"),
    };
    for n in 0..150 {
        let lines = if n % 50 == 1 { 20_000 } else { 20 };
        let content: String = (0..lines).map(line).collect();
        tree.write(&format!("d{}/f{n}", n % 5), content.as_bytes());
    }
    tree
}

#[test]
fn a_stream_has_the_rows_of_all_pages() {
    let tree = mixed();
    for output in [
        OutputMode::Lines,
        OutputMode::OnlyMatching,
        OutputMode::Files,
        OutputMode::FilesWithout,
        OutputMode::CountLines,
        OutputMode::CountMatches,
    ] {
        for (before, after) in [(0, 0), (1, 2)] {
            let request = Search { output, before, after, ..request("x") };
            let (outcome, files) = streamed(&tree, &request);
            let (all, expected) =
                (rows(&files), paged(&tree, &Search { limit: 700, ..request.clone() }));
            assert!(all == expected, "{output:?} {before}: {} {}", all.len(), expected.len());
            assert!(!outcome.truncated && outcome.total.is_exact && outcome.skipped.binary == 1);
            assert_eq!((outcome.shown, outcome.files_searched), (outcome.total.count, 151));
        }
    }
}

#[test]
fn the_limit_of_a_stream_is_that_of_a_page() {
    let tree = Files::new(&[
        ("a", b"x1\nx2\nb\nc\nd\nx3\ne\n"),
        ("b", b"x4\n"),
        ("c", b"no\n"),
        ("d", b"no\nx5\n"),
    ]);
    for (before, after) in [(0, 0), (1, 1), (3, 0), (0, 3)] {
        for limit in 1..=6 {
            let request = Search { limit, before, after, ..request("x") };
            let page = run(&tree, &request);
            let (outcome, files) = streamed(&tree, &request);
            assert_eq!(files, page.files, "{limit} {before} {after}");
            assert_eq!((outcome.shown, outcome.truncated), (page.shown, page.truncated), "{limit}");
            assert_eq!(outcome.next_offset, page.next_offset);
        }
    }
    let past = Search { offset: 4, ..request("x") };
    assert_eq!(streamed(&tree, &past).1, run(&tree, &past).files);
}

#[test]
fn a_file_with_many_rows_comes_in_parts_with_its_gaps() {
    let content: String =
        (0..60_000).map(|n| format!("{}\n", if n % 3 == 0 { "x" } else { "-" })).collect();
    let tree = Files::new(&[("a", content.as_bytes())]);
    let (mut n_parts, mut most, mut lines, mut n_gaps) = (0, 0, Vec::new(), 0);
    let mut take = |file: FileHits| {
        n_parts += 1;
        most = most.max(file.rows.len());
        n_gaps += file.rows.iter().filter(|row| row.after_gap).count();
        lines.extend(file.rows.iter().map(|row| row.line));
        true
    };
    search_to(&request("x"), &tree, &mut take).unwrap();
    assert!(5 < n_parts && most < 4_000, "{n_parts} {most}");
    assert_eq!((lines.len(), n_gaps), (20_000, 19_999));
    assert!(lines.is_sorted());
}

#[test]
fn a_stream_ends_with_its_receiver_or_when_it_is_cancelled() {
    let tree = mixed();
    let mut n = 0;
    let mut take = |_| {
        n += 1;
        n < 3
    };
    let outcome = search_to(&request("x"), &tree, &mut take).unwrap();
    assert_eq!((n, outcome.total.is_exact, outcome.timed_out), (3, false, false));
    let request = request("x");
    let stop = request.stop.clone();
    let mut n = 0;
    let mut take = |_| {
        n += 1;
        stop.cancelled.store(true, Ordering::Relaxed);
        false
    };
    let cancelled = search_to(&request, &tree, &mut take);
    assert_eq!((cancelled.unwrap_err(), n), (SearchError::Cancelled, 1));
}

#[test]
fn the_second_reading_of_a_pattern_is_streamed_if_the_first_one_finds_nothing() {
    let tree = Files::new(&[("a", b"ab\nb\n")]);
    let mut request = request(r"\(a\)b");
    request.pattern.retry_as_basic = true;
    let (outcome, files) = streamed(&tree, &request);
    assert_eq!((outcome.shown, files.len(), outcome.dialect_used), (1, 1, Dialect::Basic));
}

#[test]
fn entries_are_passed_on_without_a_page() {
    let tree = mixed();
    let mut all = Find::new(stop());
    all.scope.hidden = Hidden::Show;
    for limit in [0, 7] {
        all.limit = limit;
        let mut entries = Vec::new();
        let mut take = |entry| {
            entries.push(entry);
            true
        };
        let outcome = find_to(&all, &tree, &mut take).unwrap();
        let page = find(&all, &tree).unwrap();
        assert_eq!((&entries, outcome.entries.len()), (&page.entries, 0));
        assert_eq!((outcome.shown, outcome.truncated), (page.shown, page.truncated));
    }
    let mut n = 0;
    let mut take = |_| {
        n += 1;
        n < 5
    };
    find_to(&all, &tree, &mut take).unwrap();
    assert_eq!(n, 5);
}
