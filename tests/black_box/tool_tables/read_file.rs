//! read_file: returns whole files as text.

use super::{Bench, Put, check, check_rows};
use serde_json::json;

#[test]
fn read_file_keeps_its_contract() {
    let setup = [
        Put::File("f", b"content\n"),
        Put::File("empty", b""),
        Put::File("bom", b"\xef\xbb\xbfa\r\nb\r"),
        Put::File("latin1", b"caf\xe9 \xf0\x9f\x98 \xff\xfe.\n"),
        Put::File("nul", b"a\0b\n"),
        Put::File("separators", "a\u{2028}b\u{2029}c".as_bytes()),
        Put::File("with space", b"space\n"),
        Put::File("-dash", b"dash\n"),
        Put::File("~", b"tilde\n"),
        Put::File("d/g", b"deep\n"),
        Put::Sized("over", 1_048_577),
        Put::Link("link", "f"),
        Put::Link("dangling", "made/by/link"),
        Put::Link("loop", "loop"),
        Put::Fifo("fifo"),
    ];
    let missing = "Error: Missing required parameter 'path'";
    let rows = [
        // Every alias of the parameter.
        (r#"{"path":"f"}"#, "content\n"),
        (r#"{"file":"f"}"#, "content\n"),
        (r#"{"filepath":"f"}"#, "content\n"),
        (r#"{"file_path":"f"}"#, "content\n"),
        (r#"{"filename":"f"}"#, "content\n"),
        (r#"{"name":"f"}"#, missing),
        (r#"{"path":"  "}"#, missing),
        // The whole content. Invalid UTF-8 is replaced; byte order mark and carriage returns stay.
        (r#"{"path":"empty"}"#, ""),
        (r#"{"path":"bom"}"#, "\u{feff}a\r\nb\r"),
        (r#"{"path":"latin1"}"#, "caf\u{fffd} \u{fffd} \u{fffd}\u{fffd}.\n"),
        (r#"{"path":"nul"}"#, "a\0b\n"),
        (r#"{"path":"separators"}"#, "a\u{2028}b\u{2029}c"),
        (r#"{"path":"with space"}"#, "space\n"),
        (r#"{"path":"-dash"}"#, "dash\n"),
        (r#"{"path":"~"}"#, "tilde\n"),
        (r#"{"path":"link"}"#, "content\n"),
        // A missing file, with the path as given.
        (r#"{"path":"none"}"#, "Error: File not found at 'none'"),
        (r#"{"path":"./x/../none"}"#, "Error: File not found at './x/../none'"),
        (r#"{"path":"f/none"}"#, "Error: File not found at 'f/none'"),
        (r#"{"path":"~/f"}"#, "Error: File not found at '~/f'"),
        (r#"{"path":"{ws}/none"}"#, "Error: File not found at '{ws}/none'"),
        (r#"{"path":"dangling"}"#, "Error: File not found at 'dangling'"),
        (r#"{"path":"it's"}"#, "Error: File not found at 'it's'"),
        // Too large. The test below reads a file with one byte less.
        (r#"{"path":"over"}"#, "Error: File exceeds 1MB limit (1048577 bytes)"),
        // Other failures.
        (
            r#"{"path":"d"}"#,
            "Error: Failed to read file: Error: EISDIR: illegal operation on a directory, read",
        ),
        (
            r#"{"path":"."}"#,
            "Error: Failed to read file: Error: EISDIR: illegal operation on a directory, read",
        ),
        // The Node daemon reports a missing file, which would send the reader searching for it.
        (
            r#"{"path":"loop"}"#,
            "Error: Failed to read file: Error: ELOOP: too many symbolic links encountered, open '{ws}/loop'",
        ),
        // The Node daemon waits forever.
        (r#"{"path":"fifo"}"#, "Error: Failed to read file: not a regular file (fifo)"),
    ];
    check(&setup, "read_file", &rows);
}

#[test]
fn read_file_gives_a_mebibyte_and_is_not_cut_at_100_kilobytes() {
    let setup = [Put::Sized("exact", 1_048_576), Put::Sized("middle", 102_401)];
    let (exact, middle) = ("x".repeat(1_048_576), "x".repeat(102_401));
    check(&setup, "read_file", &[("\"exact\"", &exact), ("\"middle\"", &middle)]);
}

#[test]
fn read_file_gives_some_lines_of_a_file_of_any_size() {
    let large = format!("first\n{}last\n", "0123456789abcde\n".repeat(200_000));
    let setup = [Put::File("f", b"one\r\ntwo\nthree"), Put::File("large", large.leak().as_bytes())];
    let whole = "Error: Parameter 'limit' must be a whole number from 1";
    let rows = [
        (r#"{"path":"f","offset":2}"#, "two\nthree"),
        (r#"{"path":"f","limit":1}"#, "one\r\n[Lines 1 to 1 shown. The file continues: offset 2]"),
        (r#"{"path":"f","line_numbers":true}"#, "     1\tone\r\n     2\ttwo\n     3\tthree"),
        (r#"{"path":"f","offset":4}"#, "Error: The file has 3 lines; offset 4 is beyond its end"),
        (r#"{"path":"f","limit":0}"#, whole),
        (r#"{"path":"f","limit":"2"}"#, whole),
        (r#"{"path":"large","offset":200002,"limit":5}"#, "last\n"),
        (
            r#"{"path":"large","offset":200001,"limit":1,"line_numbers":true}"#,
            "200001\t0123456789abcde\n[Lines 200001 to 200001 shown. The file continues: offset 200002]",
        ),
        (r#"{"path":"none","offset":1}"#, "Error: File not found at 'none'"),
        (
            r#"{"path":"f","offset":2,"max_bytes":2}"#,
            "tw\n[Line 2 is cut: 2 of its 4 bytes are shown. For more of it: tail -c +8 FILE | head -c 2. The file continues: offset 3]",
        ),
        (
            r#"{"path":"f","offset":3,"max_bytes":2}"#,
            "th\n[Line 3 is cut: 2 of its 5 bytes are shown. For more of it: tail -c +12 FILE | head -c 2]",
        ),
    ];
    check(&setup, "read_file", &rows);
}

#[test]
fn a_line_that_is_longer_than_any_answer_announces_no_line_after_the_last() {
    let shown = "x".repeat(1_048_576);
    let text = format!(
        "{shown}\n[Line 1 is cut: 1048576 of its 2000000 bytes are shown. For more of it: tail -c +1048577 FILE | head -c 951424]"
    );
    let setup = [Put::Sized("one.js", 2_000_000)];
    check(&setup, "read_file", &[(r#"{"path":"one.js","offset":1}"#, &text)]);
}

#[test]
fn a_file_that_may_not_be_read_is_said_to_be_so() {
    let setup = [
        Put::File("closed", b"x"),
        Put::Mode("closed", 0o000),
        Put::File("dir/f", b"x"),
        Put::Mode("dir", 0o000),
    ];
    let denied = "Error: Failed to read file: Error: EACCES: permission denied, open '{ws}/closed'";
    let below = "Error: Failed to read file: Error: EACCES: permission denied, open '{ws}/dir/f'";
    let rows = [("read_file", "\"closed\"", denied), ("read_file", "\"dir/f\"", below)];
    check_rows(&Bench::without_privilege(), &setup, &rows, false);
}

#[test]
fn content_that_looks_like_an_error_is_none() {
    let bench = Bench::new();
    let place = bench.place(&[Put::File("f", b"Error: this is only content\n")]);
    let data = bench.quack_tool(&place, "read_file", "\"f\"", false).unwrap();
    assert_eq!(data["text"], "Error: this is only content\n");
    assert_eq!(data["isError"], json!(false));
}
