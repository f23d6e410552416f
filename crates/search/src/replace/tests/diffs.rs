//! Tests of diffs: `patch` can apply them, and they keep to the size limit.

use super::super::diff::{Diff, behind_mark, unified};
use super::*;
use std::path::Path;

fn diff_of(request: &Replace, old: &str, max: usize) -> Diff {
    let change = Editor::new(request).unwrap().change(old.as_bytes(), None).unwrap().unwrap();
    unified(Path::new("dir/a"), old.as_bytes(), &change.edited.new, &change.edits, max)
}

fn diff(request: &Replace, old: &str) -> String {
    diff_of(request, old, usize::MAX).text
}

#[test]
fn a_change_is_shown_with_three_lines_around_it() {
    let old = "1\n2\n3\n4\na\n6\n7\n8\n9\n";
    let expected = "--- a/dir/a\n+++ b/dir/a\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-a\n+b\n 6\n 7\n 8\n";
    assert_eq!(diff(&request("a", "b"), old), expected);
}

#[test]
fn near_changes_share_a_hunk_and_far_ones_do_not() {
    let lines = |between: usize| format!("a\n{}a", "-\n".repeat(between));
    assert_eq!(diff(&request("a", "b"), &lines(6)).matches("@@ -").count(), 1);
    let far = diff(&request("a", "b"), &lines(7));
    assert!(far.contains("@@ -1,4 +1,4 @@\n-a\n+b\n -\n -\n -\n@@ -6,4 +6,4 @@\n"), "{far}");
    assert!(far.ends_with("-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"));
}

#[test]
fn lines_that_come_and_go_move_the_numbers() {
    let gone = diff(&across_lines("a\n", ""), "a\nb\n");
    assert!(gone.ends_with("@@ -1,2 +1 @@\n-a\n b\n"), "{gone}");
    let all = diff(&across_lines("(?s).+", ""), "a\nb\n");
    assert!(all.ends_with("@@ -1,2 +0,0 @@\n-a\n-b\n"), "{all}");
    let joined = diff(&across_lines("a\n", "a"), "a\nb\nc\n");
    assert!(joined.ends_with("@@ -1,3 +1,2 @@\n-a\n-b\n+ab\n c\n"), "{joined}");
    let more = diff(&request("b", "b\nb"), "a\nb\nc\n");
    assert!(more.ends_with("@@ -1,3 +1,4 @@\n a\n b\n+b\n c\n"), "{more}");
    let end = diff(&across_lines(r"\z", "x\n"), "a\n");
    assert!(end.ends_with("@@ -1 +1,2 @@\n a\n+x\n"), "{end}");
    let newline = diff(&across_lines(r"\z", "\n"), "a");
    assert!(newline.ends_with("-a\n\\ No newline at end of file\n+a\n"), "{newline}");
}

#[test]
fn two_changes_in_a_line_are_one_line() {
    let both = diff(&request("(?:aaaa)|b", "-"), "aaaab b\n");
    assert!(both.ends_with("@@ -1 +1 @@\n-aaaab b\n+-- -\n"), "{both}");
}

#[test]
fn a_diff_that_is_too_long_ends_with_a_whole_hunk() {
    let old = "a\n".to_owned() + &"-\n".repeat(20) + "a\n";
    let whole = diff_of(&request("a", "b"), &old, usize::MAX);
    assert!(!whole.is_cut);
    let exact = diff_of(&request("a", "b"), &old, whole.text.len());
    assert_eq!(exact, whole);
    let cut = diff_of(&request("a", "b"), &old, whole.text.len() - 1);
    assert!(cut.is_cut && cut.text.ends_with("+b\n -\n -\n -\n"), "{cut:?}");
    assert_eq!(
        diff_of(&request("a", "b"), &old, 30),
        Diff { text: String::new(), is_cut: true, is_exact: true }
    );
}

#[test]
fn names_are_quoted_as_git_quotes_them() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    for (name, expected) in [
        (&b"plain-\xc3\xa9"[..], "a/plain-\u{e9}"),
        (b"two words", "a/two words\t"),
        (b"tab\t\n\r\x01\x7f.txt", r#""a/tab\t\n\r\001\177.txt""#),
        (b"\"\\ \xc3\xa9", "\"a/\\\"\\\\ \u{e9}\""),
        (b"caf\xe9 \xc3\xa9", r#""a/caf\351 \303\251""#),
    ] {
        let change =
            Editor::new(&request("a", "b")).unwrap().change(b"a\n", None).unwrap().unwrap();
        let path = Path::new(OsStr::from_bytes(name));
        let diff = unified(path, b"a\n", &change.edited.new, &change.edits, usize::MAX);
        let head = format!("--- {expected}\n+++ {}\n@@", expected.replacen("a/", "b/", 1));
        assert!(diff.text.starts_with(&head), "{}", diff.text);
    }
}

#[test]
fn a_diff_with_bytes_that_are_no_text_says_so() {
    for (old, is_exact) in [
        (&b"a \xe9\n"[..], false),
        (b"a\n\xe9\n", false),
        // The invalid byte is not shown.
        (b"a\n-\n-\n-\n\xe9\n", true),
        ("a \u{fffd}\n".as_bytes(), true),
    ] {
        let change = Editor::new(&request("a", "b")).unwrap().change(old, None).unwrap().unwrap();
        let diff = unified(Path::new("a"), old, &change.edited.new, &change.edits, usize::MAX);
        assert_eq!(diff.is_exact, is_exact, "{}", diff.text);
    }
}

#[test]
fn the_mark_of_a_file_is_a_part_of_its_first_line() {
    let old = b"\xef\xbb\xbfa\nc\n";
    let change = Editor::new(&request("a", "b")).unwrap().change(old, None).unwrap().unwrap();
    let edits = behind_mark(&change.edits, 3);
    let diff = unified(Path::new("a"), old, &change.edited.new, &edits, usize::MAX);
    assert!(diff.text.ends_with("@@ -1,2 +1,2 @@\n-\u{feff}a\n+\u{feff}b\n c\n"), "{}", diff.text);
}
