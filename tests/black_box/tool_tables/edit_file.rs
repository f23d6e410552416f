//! edit_file: replaces one literal occurrence.

use super::{After, Bench, Put, check_changes, check_rows};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

const SETUP: [Put; 10] = [
    Put::File("f", b"one\ntwo\ntwo\n"),
    Put::File("crlf", b"a\r\nb\r\n"),
    Put::File("both", b"a\r\nb\ne\r\n"),
    Put::File("rows", b"0,\n0,\n0,\n"),
    Put::File("curly", "say \u{201c}a\u{201d} \nend\n".as_bytes()),
    Put::File("mixed", b"\xef\xbb\xbfa\n\xff\xfeb\0c"),
    Put::File("aaaa", b"aaaa"),
    Put::Dir("d"),
    Put::Link("link", "f"),
    Put::Link("dangling", "none"),
];

const SAME: After<'_> = ("f", Some("one\ntwo\ntwo\n"));
const DONE: After<'_> = ("f", Some("1\ntwo\ntwo\n"));
const EDITED: &str = "Successfully edited f";
const NO_PATH: &str = "Error: Missing required parameter 'path'";
const NO_OLD: &str = "Error: Missing required parameter 'old_text'";
const NO_NEW: &str = "Error: Missing required parameter 'new_text'";
const NOT_FOUND: &str = "Error: old_text not found in file";

#[test]
fn edit_file_reads_its_parameters() {
    let rows: &[(&str, &str, After<'_>)] = &[
        // Every alias of each parameter.
        (r#"{"path":"f","old_text":"one","new_text":"1"}"#, EDITED, DONE),
        (r#"{"file":"f","oldText":"one","newText":"1"}"#, EDITED, DONE),
        (r#"{"filepath":"f","find":"one","replace":"1"}"#, EDITED, DONE),
        (r#"{"file_path":"f","find":"one","newText":"1"}"#, EDITED, DONE),
        (r#"{"filename":"f","old_text":"one","replace":"1"}"#, EDITED, DONE),
        // The first non-empty old text counts, and the first new text that is a string.
        (r#"{"path":"f","old_text":"","oldText":5,"find":"one","new_text":"1"}"#, EDITED, DONE),
        (r#"{"path":"f","old_text":"one","new_text":null,"newText":"1"}"#, EDITED, DONE),
        (
            r#"{"path":"f","old_text":"one\n","new_text":"","newText":"x"}"#,
            EDITED,
            ("f", Some("two\ntwo\n")),
        ),
        // Order of the checks: path, old text, new text, target of the path.
        ("{}", NO_PATH, SAME),
        (r#"{"old_text":"one","new_text":"1"}"#, NO_PATH, SAME),
        (r#"{"path":"../f"}"#, NO_OLD, SAME),
        (r#"{"path":"f","new_text":"1"}"#, NO_OLD, SAME),
        (r#"{"path":"f","old_text":"","new_text":"1"}"#, NO_OLD, SAME),
        (r#"{"path":"f","old_text":["one"],"new_text":"1"}"#, NO_OLD, SAME),
        (r#"{"path":"../f","old_text":"one"}"#, NO_NEW, SAME),
        (r#"{"path":"f","old_text":"one","new_text":1}"#, NO_NEW, SAME),
        (
            r#"{"path":"../f","old_text":"one","new_text":"1"}"#,
            "Error: Path escapes workspace root",
            SAME,
        ),
        ("\"f\"", "Error: Tool arguments must be a JSON object", SAME),
    ];
    check_changes(&SETUP, "edit_file", rows);
}

const EDITS: &[(&str, &str, After<'_>)] = &[
    (r#"{"path":"f","old_text":"three","new_text":"3"}"#, NOT_FOUND, SAME),
    (r#"{"path":"f","old_text":"ONE","new_text":"1"}"#, NOT_FOUND, SAME),
    (r#"{"path":"f","old_text":"o.e","new_text":"1"}"#, NOT_FOUND, SAME),
    (
        r#"{"path":"f","old_text":"two","new_text":"2"}"#,
        "Error: old_text found 2 times (ambiguous edit)",
        SAME,
    ),
    (
        r#"{"path":"f","old_text":"\n","new_text":" "}"#,
        "Error: old_text found 3 times (ambiguous edit)",
        SAME,
    ),
    // Occurrences that overlap are two: the Node daemon replaces the first.
    (
        r#"{"path":"aaaa","old_text":"aaa","new_text":"b"}"#,
        "Error: old_text found 2 times (ambiguous edit)",
        ("aaaa", Some("aaaa")),
    ),
    (
        r#"{"path":"aaaa","old_text":"aa","new_text":"b"}"#,
        "Error: old_text found 2 times (ambiguous edit)",
        ("aaaa", Some("aaaa")),
    ),
    // Text can be deleted, and white space is valid text: the Node daemon refuses both.
    (r#"{"path":"f","old_text":"one\ntwo\n","new_text":""}"#, EDITED, ("f", Some("two\n"))),
    (
        r#"{"path":"f","old_text":"e\nt","new_text":"e\n\nt"}"#,
        EDITED,
        ("f", Some("one\n\ntwo\ntwo\n")),
    ),
    (r#"{"path":"f","old_text":"one\ntwo\ntwo\n","new_text":""}"#, EDITED, ("f", Some(""))),
    (
        r#"{"path":"crlf","old_text":"\r\nb","new_text":" "}"#,
        "Successfully edited crlf",
        ("crlf", Some("a \r\n")),
    ),
    // The new text is literal: the Node daemon expands these.
    (
        r#"{"path":"f","old_text":"one","new_text":"$& $$ $` $' $1 \\1"}"#,
        EDITED,
        ("f", Some("$& $$ $` $' $1 \\1\ntwo\ntwo\n")),
    ),
    // Each line keeps its line end: the Node daemon finds no text of several lines in such a file.
    (
        r#"{"path":"crlf","old_text":"a\nb","new_text":"x\ny\nb"}"#,
        "Successfully edited crlf",
        ("crlf", Some("x\r\ny\r\nb\r\n")),
    ),
    (
        r#"{"path":"crlf","old_text":"a","new_text":"x\ny"}"#,
        "Successfully edited crlf",
        ("crlf", Some("x\r\ny\r\nb\r\n")),
    ),
    (
        r#"{"path":"both","edits":[{"old_text":"a\nb","new_text":"c\nd"},{"old_text":"c","new_text":"c\nc"}]}"#,
        "Successfully edited both: 2 edits",
        ("both", Some("c\r\nc\r\nd\ne\r\n")),
    ),
    (
        r#"{"path":"crlf","old_text":"a\nb","new_text":"x","any_line_ending":false}"#,
        NOT_FOUND,
        ("crlf", Some("a\r\nb\r\n")),
    ),
    // Occurrences that overlap.
    (
        r#"{"path":"rows","old_text":"0,\n0,\n","new_text":"9,\n"}"#,
        "Error: old_text found 2 times (ambiguous edit)",
        ("rows", Some("0,\n0,\n0,\n")),
    ),
    (
        r#"{"path":"rows","edits":[{"old_text":"0,\n0,\n0,\n","new_text":"ababa"},{"old_text":"aba","new_text":"c"}]}"#,
        "Error: edit 2 of the call: old_text found 2 times (ambiguous edit); nothing was changed",
        ("rows", Some("0,\n0,\n0,\n")),
    ),
    // Quotes and blanks count, unless the caller does not want that.
    (
        r#"{"path":"curly","old_text":"\"a\"","new_text":"b"}"#,
        NOT_FOUND,
        ("curly", Some("say \u{201c}a\u{201d} \nend\n")),
    ),
    (
        r#"{"path":"curly","old_text":"\"a\"\nend","new_text":"\"a\"\nEND","similar":true}"#,
        "Successfully edited curly\n[Note: from line 1 the file has other quotes, dashes or spaces and other blanks at line ends than old_text; they stay where the text did not change]",
        ("curly", Some("say \u{201c}a\u{201d} \nEND\n")),
    ),
    (r#"{"path":"link","old_text":"one","new_text":"1"}"#, "Successfully edited link", DONE),
    (r#"{"path":"{ws}/f","old_text":"one","new_text":"1"}"#, "Successfully edited {ws}/f", DONE),
    // Failures with Node's texts. No file or directory is created.
    (
        r#"{"path":"none","old_text":"one","new_text":"1"}"#,
        "Error: Failed to edit file: Error: ENOENT: no such file or directory, open '{ws}/none'",
        ("none", None),
    ),
    (
        r#"{"path":"a/none","old_text":"one","new_text":"1"}"#,
        "Error: Failed to edit file: Error: ENOENT: no such file or directory, open '{ws}/a/none'",
        ("a/none", None),
    ),
    (
        r#"{"path":"dangling","old_text":"one","new_text":"1"}"#,
        "Error: Failed to edit file: Error: ENOENT: no such file or directory, open '{ws}/dangling'",
        ("none", None),
    ),
    (
        r#"{"path":"d","old_text":"one","new_text":"1"}"#,
        "Error: Failed to edit file: Error: EISDIR: illegal operation on a directory, read",
        SAME,
    ),
];

#[test]
fn edit_file_replaces_the_one_occurrence_and_nothing_else() {
    check_changes(&SETUP, "edit_file", EDITS);
}

/// The Node daemon writes every invalid UTF-8 byte back as U+FFFD.
#[test]
fn bytes_around_an_edit_and_the_mode_of_the_file_stay() {
    let bench = Bench::new();
    let place = bench.place(&SETUP);
    let path = place.base.join("ws/mixed");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o740)).unwrap();
    let edit = r#"{"path":"mixed","old_text":"a\n","new_text":"é\r\n"}"#;
    assert_eq!(bench.voice(&place, "edit_file", edit, false), "Successfully edited mixed");
    assert_eq!(fs::read(&path).unwrap(), b"\xef\xbb\xbf\xc3\xa9\r\n\xff\xfeb\0c");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o740);
}

/// quackd's own limit, because the file is in memory twice.
#[test]
fn a_file_of_more_than_16_megabytes_is_not_edited() {
    let setup = [Put::Sized("big", 16 * 1024 * 1024 + 1)];
    let edit = r#"{"path":"big","old_text":"y","new_text":"z"}"#;
    let rows = [("edit_file", edit, "Error: File exceeds 16MB limit (16777217 bytes)")];
    check_rows(&Bench::new(), &setup, &rows, false);
}

#[test]
fn what_permissions_forbid_is_refused() {
    let setup = [Put::File("closed", b"one"), Put::Mode("closed", 0o444)];
    let edit = r#"{"path":"closed","old_text":"one","new_text":"1"}"#;
    let denied = "Error: Failed to edit file: Error: EACCES: permission denied, open '{ws}/closed'";
    let rows = [("edit_file", edit, denied)];
    check_rows(&Bench::without_privilege(), &setup, &rows, false);
}
