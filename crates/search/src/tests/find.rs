//! Tests of find on small trees.

use super::{Files, stop};
use crate::{
    Case, EntryKind, Find, FindOutcome, FindSort, GlobRule, Hidden, Ignore, Kinds, NameRule, Note,
    Scope, find,
};
use std::fs::File;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

fn tree(names: &[&str]) -> Files {
    Files::new(&names.iter().map(|name| (*name, b"".as_slice())).collect::<Vec<_>>())
}

/// Request as `find_files` makes it.
fn minimatch(pattern: &str) -> Find {
    let mut request = Find::new(stop());
    request.name = NameRule::Minimatch(pattern.into());
    request.kinds.symlinks = true;
    request.scope.ignore = Ignore::None;
    request.scope.hidden = Hidden::Leave;
    request.scope.exclude_dirs = vec![".git".into(), "node_modules".into()];
    request
}

fn globs(patterns: &[&str]) -> Find {
    let mut request = Find::new(stop());
    request.name = NameRule::Globs(patterns.iter().map(|one| (*one).to_owned()).collect());
    request
}

fn paths(outcome: &FindOutcome) -> Vec<String> {
    outcome.entries.iter().map(|entry| entry.path.display().to_string()).collect()
}

fn found(tree: &Files, request: &Find) -> Vec<String> {
    paths(&find(request, tree).unwrap())
}

#[test]
fn paths_come_in_byte_order_and_in_pages() {
    let tree = tree(&["b", "a/z", "a-b", "a.b", "a/b/c", "a/b.c", "Z", "é"]);
    let all = ["Z", "a-b", "a.b", "a/b.c", "a/b/c", "a/z", "b", "é"];
    assert_eq!(found(&tree, &minimatch("**/*")), all);
    let mut request = minimatch("**");
    request.kinds.dirs = true;
    let all = ["Z", "a", "a-b", "a.b", "a/b", "a/b.c", "a/b/c", "a/z", "b", "é"];
    assert_eq!(found(&tree, &request), all);
    for limit in 1..=all.len() {
        for by_cursor in [false, true] {
            let mut request = Find { limit, ..request.clone() };
            let mut pages = Vec::new();
            loop {
                let page = find(&request, &tree).unwrap();
                assert_eq!(page.total.count, all.len() as u64);
                pages.extend(paths(&page));
                assert_eq!(page.truncated, pages.len() != all.len());
                let Some(offset) = page.next_offset else { break };
                if by_cursor {
                    request.cursor = page.cursor;
                } else {
                    request.offset = offset;
                }
            }
            assert_eq!(pages, all);
        }
    }
    request.offset = 99;
    let past = find(&request, &tree).unwrap();
    assert_eq!((past.shown, past.notes), (0, vec![Note::OffsetPastEnd { total: 10 }]));
    request.cursor = Some("1r.1.1.1.1.".into());
    assert_eq!(find(&request, &tree).unwrap_err(), crate::SearchError::BadCursor);
}

#[test]
fn hidden_names_need_to_be_asked_for_and_excluded_ones_are_not_entered() {
    let tree = tree(&[".env", ".github/ci.yml", "a/node_modules/x", "a/b", "c/node_modules"]);
    assert_eq!(found(&tree, &minimatch("**/*")), ["a/b", "c/node_modules"]);
    assert_eq!(found(&tree, &minimatch(".*")), [""; 0]);
    let mut request = minimatch("**/*");
    request.scope.hidden = Hidden::Show;
    request.kinds.dirs = true;
    let all = [".env", ".github", ".github/ci.yml", "a", "a/b", "c", "c/node_modules"];
    assert_eq!(found(&tree, &request), all);
    // A request that names an excluded or hidden directory searches it.
    request.scope.hidden = Hidden::Leave;
    for (start, expected) in [("a/node_modules", "a/node_modules/x"), (".github", ".github/ci.yml")]
    {
        request.scope.starts = vec![start.into()];
        assert_eq!(found(&tree, &request), [expected]);
    }
}

#[test]
fn a_minimatch_pattern_is_compared_with_five_spellings_of_a_path() {
    let tree = tree(&["src/a.ts", "src/deep/a.ts", "a.ts"]);
    let cases: &[(&str, &str, &[&str])] = &[
        ("a.TS", "", &["a.ts", "src/a.ts", "src/deep/a.ts"]),
        ("/a.ts", "", &["a.ts"]),
        ("/a.ts", "src", &["src/a.ts"]),
        ("src/*.ts", "src", &["src/a.ts"]),
        ("/src/*.ts", "src", &["src/a.ts"]),
        ("deep/*", "src", &["src/deep/a.ts"]),
        ("/deep/*", "src", &["src/deep/a.ts"]),
        ("deep/*", "", &[]),
        ("./a.ts", "", &[]),
        ("src\\*", "", &["src/a.ts"]),
        ("!*.ts", "", &[]),
        ("src/**", "", &["src/a.ts", "src/deep/a.ts"]),
    ];
    for (pattern, start, expected) in cases {
        let mut request = minimatch(pattern);
        request.scope.starts = vec![start.into()];
        assert_eq!(found(&tree, &request), *expected, "{pattern} in {start:?}");
    }
}

#[test]
fn symlinks_are_entries_and_are_not_followed_and_special_files_are_nothing() {
    let tree = tree(&["d/a"]);
    for (target, link) in [("d", "to-d"), ("..", "d/up"), ("/", "root"), ("nowhere", "dangling")] {
        symlink(target, tree.at(link)).unwrap();
    }
    std::os::unix::net::UnixListener::bind(tree.at("socket")).unwrap();
    assert_eq!(found(&tree, &minimatch("**/*")), ["d/a", "d/up", "dangling", "root", "to-d"]);
    let mut links = Find::new(stop());
    links.kinds = Kinds { files: false, dirs: false, symlinks: true };
    let outcome = find(&links, &tree).unwrap();
    assert!(outcome.entries.iter().all(|entry| entry.kind == EntryKind::Symlink));
    assert_eq!(outcome.shown, 4);
}

#[test]
fn globs_are_those_of_a_search() {
    let tree = tree(&["A.md", "docs/b.md", "x/docs/c.md", ".github/d.md", "docs/e.rs"]);
    assert_eq!(found(&tree, &globs(&["*.md"])), ["A.md", "docs/b.md", "x/docs/c.md"]);
    assert_eq!(found(&tree, &globs(&["docs/*.{md,rs}"])), ["docs/b.md", "docs/e.rs"]);
    assert_eq!(found(&tree, &globs(&[".github/*"])), [".github/d.md"]);
    assert_eq!(found(&tree, &globs(&["a.md"])), [""; 0]);
    let mut any_case = globs(&["a.MD"]);
    any_case.case = Case::Insensitive;
    assert_eq!(found(&tree, &any_case), ["A.md"]);
    let mut anchored = globs(&["*.md"]);
    anchored.scope.globs = GlobRule::Anchored;
    assert_eq!(found(&tree, &anchored), ["A.md"]);
    let mut dirs = globs(&["docs/"]);
    dirs.kinds.dirs = true;
    assert_eq!(found(&tree, &dirs), ["docs", "x/docs"]);
    let mut both = globs(&["*.md"]);
    both.scope.include = vec!["docs/**".into()];
    assert_eq!(found(&tree, &both), ["docs/b.md"]);
    let outcome = find(&globs(&["docs/c.*"]), &tree).unwrap();
    assert_eq!(paths(&outcome), ["x/docs/c.md"]);
    assert_eq!(outcome.notes, [Note::GlobRetried { glob: "**/docs/c.*".into() }]);
}

#[test]
fn sizes_and_times_choose_and_order() {
    let tree = Files::new(&[("a", b"12345"), ("b/c", b"1"), ("d", b""), ("e", b"12345")]);
    let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    for (name, seconds) in [("a", 10), ("b/c", 40), ("d", 20), ("e", 30)] {
        let file = File::options().write(true).open(tree.at(name)).unwrap();
        file.set_modified(time(seconds)).unwrap();
    }
    let with = |change: &dyn Fn(&mut Find)| {
        let mut request = Find::new(stop());
        change(&mut request);
        found(&tree, &request)
    };
    assert_eq!(with(&|request| request.sort_by = FindSort::Size), ["a", "e", "b/c", "d"]);
    assert_eq!(with(&|request| request.sort_by = FindSort::Modified), ["b/c", "e", "d", "a"]);
    assert_eq!(with(&|request| request.min_size = Some(1)), ["a", "b/c", "e"]);
    assert_eq!(with(&|request| request.max_size = Some(1)), ["b/c", "d"]);
    assert_eq!(with(&|request| request.modified_after = Some(time(30))), ["b/c", "e"]);
    assert_eq!(with(&|request| request.modified_before = Some(time(30))), ["a", "d"]);
    let mut long = Find::new(stop());
    long.long = true;
    let entry = find(&long, &tree).unwrap().entries.remove(0);
    assert_eq!((entry.size, entry.modified), (Some(5), Some(time(10))));
    assert_eq!(entry.mode.map(|mode| mode & 0o600), Some(0o600));
    long.long = false;
    let entry = find(&long, &tree).unwrap().entries.remove(0);
    assert_eq!((entry.size, entry.modified, entry.mode), (None, None, None));
}

#[test]
fn fuzzy_names_come_best_first() {
    let tree = tree(&["src/request.rs", "src/respect.rs", "reads/quest.rs", "other.rs"]);
    let mut request = Find::new(stop());
    request.name = NameRule::Fuzzy("reqst".into());
    request.case = Case::Smart;
    request.sort_by = FindSort::Score;
    let outcome = find(&request, &tree).unwrap();
    assert_eq!(paths(&outcome)[0], "src/request.rs");
    assert_eq!(outcome.shown, 2);
    assert!(outcome.entries.is_sorted_by_key(|entry| std::cmp::Reverse(entry.score)));
}

#[test]
fn ignored_files_are_left_out_and_counted() {
    let tree = Files::new(&[(".gitignore", b"*.log\n"), ("a.log", b""), ("b", b"")]);
    let outcome = find(&Find::new(stop()), &tree).unwrap();
    assert_eq!(paths(&outcome), ["b"]);
    assert_eq!((outcome.skipped.ignored, outcome.skipped.hidden), (1, 1));
    let mut all = Find::new(stop());
    all.scope = Scope { ignore: Ignore::None, hidden: Hidden::Show, ..Scope::default() };
    assert_eq!(found(&tree, &all), [".gitignore", "a.log", "b"]);
}

#[test]
fn the_deadline_keeps_what_was_found_and_cancelling_keeps_nothing() {
    let tree = tree(&["a", "b/x"]);
    let mut late = Find::new(stop());
    late.stop.deadline = Instant::now();
    let outcome = find(&late, &tree).unwrap();
    assert_eq!((outcome.timed_out, outcome.total.is_exact), (true, false));
    let cancelled = Find::new(stop());
    cancelled.stop.cancelled.store(true, Ordering::Relaxed);
    assert_eq!(find(&cancelled, &tree).unwrap_err(), crate::SearchError::Cancelled);
}

#[test]
fn a_pattern_that_is_too_large_and_a_start_that_is_missing_are_errors() {
    let tree = tree(&["a"]);
    let error = find(&minimatch(&"x".repeat(5000)), &tree).unwrap_err();
    assert_eq!(error.to_string(), "pattern is longer than 4096 bytes");
    let mut missing = Find::new(stop());
    missing.scope.starts = vec!["none".into()];
    assert!(matches!(find(&missing, &tree), Err(crate::SearchError::StartNotFound(_))));
}
