//! Tests of plans for real files.

use super::*;
use crate::SearchError;
use crate::note::Note;
use crate::request::Dialect;
use crate::test_files::Files;
use std::fs;
use std::sync::atomic::Ordering;

fn names(plan: &ReplacePlan) -> Vec<&str> {
    plan.files.iter().map(|file| file.path.to_str().unwrap()).collect()
}

#[test]
fn a_plan_names_what_changes_and_changes_nothing() {
    let tree = Files::new(&[
        ("b", b"a\naa\n"),
        ("a", b"a"),
        ("a-b", b"xa"),
        ("sub/c", b"none"),
        ("same", b"b"),
    ]);
    let found = plan(&request("[ab]", "b"), &tree).unwrap();
    assert_eq!(names(&found), ["a", "a-b", "b"]);
    assert_eq!((found.lines_changed, found.replacements, found.files_searched), (4, 5, 5));
    assert!(found.is_complete() && found.notes.is_empty());
    let last = &found.files[2];
    assert_eq!((last.lines_changed, last.replacements), (2, 3));
    assert_eq!(last.before, Digest::of(b"a\naa\n"));
    assert_eq!(last.after, Digest::of(b"b\nbb\n"));
    assert_eq!((last.len_before, last.len_after, last.n_names), (5, 5, 1));
    assert_eq!(fs::read(tree.at("b")).unwrap(), b"a\naa\n");
    // Applying edits the content in the same way.
    let again = Editor::new(&found.request).unwrap().edit(b"a\naa\n").unwrap().unwrap();
    assert_eq!(Digest::of(&again.new), last.after);
}

#[test]
fn a_plan_beyond_its_limits_is_none() {
    let tree = Files::new(&[("a", b"aa"), ("b", b"a"), ("c", b"")]);
    let mut asked = request("a", "b");
    (asked.max_files, asked.max_replacements) = (2, 3);
    assert!(plan(&asked, &tree).is_ok());
    asked.max_files = 1;
    assert_eq!(plan(&asked, &tree).unwrap_err(), ReplaceError::TooManyFiles { max: 1 });
    (asked.max_files, asked.max_replacements) = (2, 2);
    assert_eq!(plan(&asked, &tree).unwrap_err(), ReplaceError::TooManyReplacements { max: 2 });
    asked.max_replacements = 1;
    assert_eq!(plan(&asked, &tree).unwrap_err(), ReplaceError::TooManyReplacements { max: 1 });
}

#[test]
fn what_is_left_out_is_told() {
    let large = usize::try_from(MAX_FILE_BYTES).unwrap() + 1;
    let tree = Files::new(&[
        ("a.bin", b"a\0"),
        ("b", b"\xff\xfea"),
        ("c", b"a"),
        ("large", &vec![b'a'; large]),
    ]);
    let found = plan(&request("a", "b"), &tree).unwrap();
    assert_eq!(names(&found), ["c"]);
    let skipped = |path: &str, reason| SkippedFile { path: path.into(), reason };
    let expected = [
        skipped("b", SkipReason::MalformedUtf16),
        skipped("large", SkipReason::TooLarge { len: large as u64 }),
        skipped("a.bin", SkipReason::Binary),
    ];
    assert_eq!(found.skipped, expected);
    assert_eq!((found.skipped_count, found.counts.binary, found.counts.too_large), (3, 1, 1));
}

#[test]
fn a_range_of_lines_needs_one_file() {
    let tree = Files::new(&[("a", b"a\na\n"), ("b", b"a")]);
    let mut asked = request("a", "b");
    asked.line_range = Some((2, 2));
    let error = plan(&asked, &tree).unwrap_err();
    assert_eq!(error, ReplaceError::LineRangeNeedsOneFile { found: 2 });
    asked.scope.starts = vec!["a".into()];
    assert_eq!(plan(&asked, &tree).unwrap().files[0].after, Digest::of(b"a\nb\n"));
}

#[test]
fn a_plan_that_was_cut_says_so() {
    let tree = Files::new(&[("a", b"a")]);
    let mut asked = request("a", "b");
    asked.stop.deadline = Instant::now();
    let cut = plan(&asked, &tree).unwrap();
    assert!(cut.timed_out && !cut.is_complete());
    let asked = request("a", "b");
    asked.stop.cancelled.store(true, Ordering::Relaxed);
    let error = plan(&asked, &tree).unwrap_err();
    assert_eq!(error, ReplaceError::Search(SearchError::Cancelled));
}

#[test]
fn a_basic_pattern_is_tried_if_asked_and_the_plan_keeps_how_it_was_read() {
    let tree = Files::new(&[("a", b"foo bar")]);
    let mut asked = request(r"foo\|baz", "x");
    assert_eq!(names(&plan(&asked, &tree).unwrap()), [""; 0]);
    asked.pattern.retry_as_basic = true;
    let found = plan(&asked, &tree).unwrap();
    assert_eq!((names(&found), found.dialect_used), (vec!["a"], Dialect::Basic));
    assert_eq!(found.notes, [Note::RetriedAsBasic]);
    assert_eq!(edited(&found.request, b"foo bar"), b"x bar");
    asked.pattern.patterns = vec![r"qux\|quux".into()];
    let none = plan(&asked, &tree).unwrap();
    assert_eq!((none.dialect_used, none.notes.len()), (Dialect::Rust, 0));
}

#[test]
fn diffs_share_their_limit() {
    let tree = Files::new(&[("a", b"a\n"), ("b", b"\xff\xfea\0\n\0")]);
    let mut asked = request("a", "\u{fc}");
    asked.diff = DiffMode::Unified;
    let found = plan(&asked, &tree).unwrap();
    let diffs: Vec<_> = found.files.iter().map(|file| file.diff.clone().unwrap()).collect();
    assert_eq!(diffs[0], "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+ü\n");
    // For UTF-16, the diff shows the decoded text.
    assert_eq!(diffs[1], "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-a\n+ü\n");
    assert!(!found.diffs_cut);
    asked.max_diff_bytes = diffs[0].len();
    let found = plan(&asked, &tree).unwrap();
    assert!(found.diffs_cut && found.files[0].diff.is_some() && found.files[1].diff.is_none());
}
