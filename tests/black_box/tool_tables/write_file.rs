//! write_file: replaces or creates one file atomically.

use super::{After, Bench, Put, check_changes, check_rows};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

const SETUP: [Put; 9] = [
    Put::File("f", b"old content\n"),
    Put::File("script", b"#!/bin/sh\n"),
    Put::Mode("script", 0o750),
    Put::HardLink("second-name", "f"),
    Put::Dir("d"),
    Put::Link("link", "f"),
    Put::Link("to-dir", "d"),
    Put::Link("dangling", "made/by/link"),
    Put::Fifo("fifo"),
];

const NO_PATH: &str = "Error: Missing required parameter 'path'";
const NO_CONTENT: &str = "Error: Missing required parameter 'content'";
const ESCAPES: &str = "Error: Path escapes workspace root";
const OLD: After<'_> = ("f", Some("old content\n"));
const X: After<'_> = ("n", Some("x"));
const NOTHING: After<'_> = ("n", None);

const ROWS: &[(&str, &str, After<'_>)] = &[
    // Every alias of the path, and the only name of the content.
    (r#"{"path":"n","content":"x"}"#, "Successfully wrote 1 bytes to n", X),
    (r#"{"file":"n","content":"x"}"#, "Successfully wrote 1 bytes to n", X),
    (r#"{"filepath":"n","content":"x"}"#, "Successfully wrote 1 bytes to n", X),
    (r#"{"file_path":"n","content":"x"}"#, "Successfully wrote 1 bytes to n", X),
    (r#"{"filename":"n","content":"x"}"#, "Successfully wrote 1 bytes to n", X),
    (r#"{"path":"n","text":"x"}"#, NO_CONTENT, NOTHING),
    (r#"{"path":"n","contents":"x"}"#, NO_CONTENT, NOTHING),
    (r#"{"path":"n","content":5}"#, NO_CONTENT, NOTHING),
    (r#"{"path":"n","content":null}"#, NO_CONTENT, NOTHING),
    (r#"{"path":"n","content":["x"]}"#, NO_CONTENT, NOTHING),
    (r#"{"path":"n"}"#, NO_CONTENT, NOTHING),
    // Empty and blank content is valid.
    (r#"{"path":"f","content":""}"#, "Successfully wrote 0 bytes to f", ("f", Some(""))),
    (r#"{"path":"f","content":" \n"}"#, "Successfully wrote 2 bytes to f", ("f", Some(" \n"))),
    // Order of the checks: path, content, target of the path.
    ("{}", NO_PATH, NOTHING),
    (r#"{"content":"x"}"#, NO_PATH, NOTHING),
    (r#"{"path":"../n"}"#, NO_CONTENT, NOTHING),
    (r#"{"path":"../n","content":"x"}"#, ESCAPES, NOTHING),
    // The count is in UTF-8 bytes, and the content is unchanged.
    (
        r#"{"path":"n","content":"é🦆\r\n\u0000\ufeff\u2028"}"#,
        "Successfully wrote 15 bytes to n",
        ("n", Some("é🦆\r\n\0\u{feff}\u{2028}")),
    ),
    // The text repeats the path unchanged. Missing parent directories are created.
    (
        r#"{"path":"./a/../b/c/n","content":"x"}"#,
        "Successfully wrote 1 bytes to ./a/../b/c/n",
        ("b/c/n", Some("x")),
    ),
    (r#"{"path":"{ws}/n","content":"x"}"#, "Successfully wrote 1 bytes to {ws}/n", X),
    (r#"{"path":"~/n","content":"x"}"#, "Successfully wrote 1 bytes to ~/n", ("~/n", Some("x"))),
    (r#"{"path":"d/n","content":"x"}"#, "Successfully wrote 1 bytes to d/n", ("d/n", Some("x"))),
    (r#"{"path":"-n","content":"x"}"#, "Successfully wrote 1 bytes to -n", ("-n", Some("x"))),
    // Writes go through links to their targets, even to a missing target. They never replace a
    // link.
    (r#"{"path":"link","content":"x"}"#, "Successfully wrote 1 bytes to link", ("f", Some("x"))),
    (
        r#"{"path":"to-dir/n","content":"x"}"#,
        "Successfully wrote 1 bytes to to-dir/n",
        ("d/n", Some("x")),
    ),
    (
        r#"{"path":"dangling","content":"x"}"#,
        "Successfully wrote 1 bytes to dangling",
        ("made/by/link", Some("x")),
    ),
    // Shorter content leaves no rest of the old content. Other hard links keep the old content,
    // because they may be outside the workspace.
    (r#"{"path":"f","content":"x"}"#, "Successfully wrote 1 bytes to f", ("link", Some("x"))),
    (
        r#"{"path":"f","content":"x"}"#,
        "Successfully wrote 1 bytes to f",
        ("second-name", Some("old content\n")),
    ),
    // Failures with Node's texts.
    (
        r#"{"path":"d","content":"x"}"#,
        "Error: Failed to write file: Error: EISDIR: illegal operation on a directory, open '{ws}/d'",
        NOTHING,
    ),
    (
        r#"{"path":"d/../d/","content":"x"}"#,
        "Error: Failed to write file: Error: EISDIR: illegal operation on a directory, open '{ws}/d/../d/'",
        NOTHING,
    ),
    (
        r#"{"path":".","content":"x"}"#,
        "Error: Failed to write file: Error: EISDIR: illegal operation on a directory, open '{ws}/.'",
        NOTHING,
    ),
    // Node's own text would report that the creation of the directory fails with EEXIST.
    (
        r#"{"path":"f/n","content":"x"}"#,
        "Error: Failed to write file: Error: ENOTDIR: not a directory, open '{ws}/f/n'",
        OLD,
    ),
    (
        r#"{"path":"fifo","content":"x"}"#,
        "Error: Failed to write file: not a regular file (fifo)",
        OLD,
    ),
    ("\"n\"", "Error: Tool arguments must be a JSON object", NOTHING),
];

#[test]
fn write_file_keeps_its_contract() {
    check_changes(&SETUP, "write_file", ROWS);
}

/// Like the Node daemon. quackd's own method takes arguments as JSON, and refuses a line with half
/// a surrogate pair.
#[test]
fn half_a_character_is_written_as_a_replacement() {
    let bench = Bench::new();
    let place = bench.place(&SETUP);
    let call = r#"{"path":"n","content":"half \ud83e"}"#;
    let text = bench.voice(&place, "write_file", call, false);
    assert_eq!(text, "Successfully wrote 8 bytes to n");
    assert_eq!(place.get("n").as_deref(), Some("half \u{fffd}"));
}

#[test]
fn a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own() {
    let bench = Bench::new();
    let place = bench.place(&SETUP);
    let mode = |name: &str| {
        let metadata = fs::symlink_metadata(place.base.join("ws").join(name)).unwrap();
        (metadata.is_symlink(), metadata.permissions().mode() & 0o7777)
    };
    let umask = bench.voice(&place, "bash", "\"umask\"", false);
    let umask = u32::from_str_radix(umask.lines().next().unwrap(), 8).unwrap();
    bench.voice(&place, "write_file", r#"{"path":"new","content":"x"}"#, false);
    bench.voice(&place, "write_file", r#"{"path":"script","content":"x"}"#, false);
    bench.voice(&place, "write_file", r#"{"path":"link","content":"x"}"#, false);
    assert_eq!((mode("new"), mode("script")), ((false, 0o666 & !umask), (false, 0o750)));
    assert!(mode("link").0);
}

/// Unlike the Node daemon, which overwrites the existing content: two agents would lose each
/// other's work.
#[test]
fn a_file_that_others_changed_since_it_was_read_is_not_overwritten() {
    let bench = Bench::new();
    let place = bench.place(&SETUP);
    let call = |tool, arguments| bench.voice(&place, tool, arguments, false);
    let write = r#"{"path":"f","content":"ours"}"#;
    let stale = "Error: File changed since it was last read: 'f'. Read it again before writing.";
    assert_eq!(call("read_file", "\"f\""), "old content\n");
    call("bash", "\"echo more >> link\"");
    assert_eq!(call("write_file", write), stale);
    assert_eq!(call("write_file", write), stale);
    assert_eq!(call("read_file", "\"link\""), "old content\nmore\n");
    assert_eq!(call("write_file", write), "Successfully wrote 4 bytes to f");
    assert_eq!(call("write_file", write), "Successfully wrote 4 bytes to f");
    assert_eq!(place.get("f").as_deref(), Some("ours"));
}

#[test]
fn what_permissions_forbid_is_refused() {
    let setup = [
        Put::File("closed", b"x"),
        Put::Mode("closed", 0o444),
        Put::File("dir/f", b"x"),
        Put::Mode("dir", 0o555),
    ];
    let denied = |name| {
        format!(
            "Error: Failed to write file: Error: EACCES: permission denied, open '{{ws}}/{name}'"
        )
    };
    let (closed, new) = (denied("closed"), denied("dir/new"));
    let rows = [
        ("write_file", r#"{"path":"closed","content":"y"}"#, &*closed),
        ("write_file", r#"{"path":"dir/new","content":"y"}"#, &*new),
        ("read_file", "\"closed\"", "x"),
    ];
    check_rows(&Bench::without_privilege(), &setup, &rows, false);
}
