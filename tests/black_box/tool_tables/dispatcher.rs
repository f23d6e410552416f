//! Checks before any tool runs: accepted arguments, and the order of refusals.

use super::{Bench, Put, check_rows};
use std::fs;

const INVALID: &str = "Error: Invalid JSON arguments";
const NO_OBJECT: &str = "Error: Tool arguments must be a JSON object";

#[test]
fn arguments_are_a_json_object_or_the_main_parameter_as_a_string() {
    let setup = [Put::File("f", b"content\n"), Put::File("src/g", b"needle\n")];
    let rows = [
        // Not JSON.
        ("bash", "", INVALID),
        ("bash", "ls", INVALID),
        ("bash", "{'command':'true'}", INVALID),
        ("bash", r#"{"command":"true",}"#, INVALID),
        ("bash", r#"{"command":"true"} x"#, INVALID),
        ("bash", "\u{feff}{}", INVALID),
        ("bash", "undefined", INVALID),
        // JSON, but neither an object nor a shorthand.
        ("bash", "null", NO_OBJECT),
        ("bash", "true", NO_OBJECT),
        ("bash", "5", NO_OBJECT),
        ("bash", "[\"true\"]", NO_OBJECT),
        ("write_file", "\"f\"", NO_OBJECT),
        ("edit_file", "\"f\"", NO_OBJECT),
        ("nonsense", "\"f\"", NO_OBJECT),
        // The shorthands.
        ("read_file", "\"f\"", "content\n"),
        ("bash", "\"echo hi\"", "hi\n\n[Exit code: 0]"),
        ("grep_search", "\"needle\"", "src/g:1:needle\n"),
        ("find_files", "\"g\"", "src/g"),
        ("read_file", " \t\r\n \"f\" ", "content\n"),
        // A blank shorthand counts as a blank parameter.
        ("bash", "\" \"", "Error: Missing required parameter 'command'"),
        ("web_search", "\"\"", "Error: Missing required parameter 'query'"),
        ("find_files", "\"\"", "f\nsrc/g"),
        // Half a surrogate pair, as JavaScript produces when it cuts a text: the Node daemon reads
        // it as U+FFFD.
        ("read_file", r#""\ud83e""#, "Error: File not found at '\u{fffd}'"),
        ("read_file", r#"{"path":"f","x":"\udd86"}"#, "content\n"),
    ];
    check_rows(&Bench::new(), &setup, &rows, false);
}

#[test]
fn a_parameter_is_the_first_alias_with_a_string_that_is_not_blank() {
    let setup = [
        Put::File("f", b"content\n"),
        Put::File(" f ", b"with spaces\n"),
        Put::File("\u{85}", b"next line\n"),
    ];
    let missing = "Error: Missing required parameter 'path'";
    let rows = [
        ("read_file", r#"{"path":5,"file":"f"}"#, "content\n"),
        ("read_file", r#"{"path":null,"file":"f"}"#, "content\n"),
        ("read_file", r#"{"path":["x"],"file":{"a":"x"},"filename":"f"}"#, "content\n"),
        ("read_file", r#"{"path":"","file":" \t\n","filepath":"f"}"#, "content\n"),
        // Blank means the characters that JavaScript trims. That includes these, and not the
        // next-line control character.
        ("read_file", r#"{"path":"\u00a0\ufeff\u2028","file":"f"}"#, "content\n"),
        ("read_file", r#"{"path":"\u0085","file":"f"}"#, "next line\n"),
        // The path is used unchanged.
        ("read_file", r#"{"path":" f "}"#, "with spaces\n"),
        // The aliases have a priority, regardless of the order of the keys.
        ("read_file", r#"{"file":"none","path":"f"}"#, "content\n"),
        // Extra keys are ignored, the last of two equal keys counts, and keys are case-sensitive.
        ("read_file", r#"{"path":"f","mode":"w","x":{"y":[1]}}"#, "content\n"),
        ("read_file", r#"{"path":"none","path":"f"}"#, "content\n"),
        ("read_file", r#"{"Path":"f"}"#, missing),
        ("read_file", r#"{"path":{"path":"f"}}"#, missing),
        ("read_file", "{}", missing),
    ];
    check_rows(&Bench::new(), &setup, &rows, false);
}

#[test]
fn arguments_are_checked_before_the_workspace_and_the_workspace_before_the_name() {
    let unknown = "Error: Unknown tool 'nonsense'";
    let rows = [
        ("nonsense", "{", INVALID),
        ("nonsense", "[]", NO_OBJECT),
        ("nonsense", "{}", unknown),
        ("nonsense", r#"{"path":"../x"}"#, unknown),
        ("", "{}", "Error: Unknown tool ''"),
        ("Bash", "{}", "Error: Unknown tool 'Bash'"),
        ("read_file ", "{}", "Error: Unknown tool 'read_file '"),
        ("toString", "{}", "Error: Unknown tool 'toString'"),
        ("é'\n", "{}", "Error: Unknown tool 'é'\n'"),
    ];
    check_rows(&Bench::new(), &[], &rows, false);

    let gone = "Error: Workspace not accessible: '{ws}'";
    let bench = Bench::new();
    let place = bench.place(&[]);
    assert_eq!(
        bench.voice(&place, "read_file", r#"{"path":"x"}"#, false),
        "Error: File not found at 'x'"
    );
    fs::remove_dir(place.base.join("ws")).unwrap();
    let check = |tool, arguments, expected| {
        assert_eq!(bench.voice(&place, tool, arguments, false), expected, "{tool} {arguments}");
        if let Some(data) = bench.quack_tool(&place, tool, arguments, false) {
            assert_eq!(data["text"], expected, "{tool} {arguments}");
        }
    };
    // A running worker checks the arguments first. Without a workspace no worker starts.
    assert_eq!(bench.voice(&place, "nonsense", "{", false), INVALID);
    assert_eq!(bench.voice(&place, "bash", "[]", false), NO_OBJECT);
    for is_file in [false, true] {
        for tool in ["nonsense", "read_file", "write_file", "edit_file", "bash", "grep_search"] {
            check(tool, "{}", gone);
        }
        check("find_files", "{}", gone);
        if !is_file {
            fs::write(place.base.join("ws"), "a file").unwrap();
        }
    }
}
