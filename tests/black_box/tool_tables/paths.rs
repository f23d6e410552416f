//! Resolution of paths: the rules common to all file tools.

use super::{Bench, Put, assert_none, check_rows, wrongs};
use serde_json::json;
use std::fs;

const LINKS: [Put; 16] = [
    Put::File("f", b"inside\n"),
    Put::File("src/g", b"deep\n"),
    Put::Link("in", "f"),
    Put::Link("in-absolute", "{base}/ws/f"),
    Put::Link("in-dir", "src"),
    Put::Link("in-round", "../ws/src/../f"),
    Put::Link("out", "../outside/secret"),
    Put::Link("out-absolute", "{base}/outside/secret"),
    Put::Link("out-dir", "../outside"),
    Put::Link("out-dir-absolute", "{base}/outside"),
    Put::Link("src/up", "../../outside"),
    Put::Link("chain", "out"),
    Put::Link("chain-dir", "src/up"),
    Put::Link("root", "/"),
    Put::Link("dangling-out", "../outside/new"),
    Put::Link("dangling-out-absolute", "{base}/new"),
];

/// Outside by spelling, by a link, or by a dangling link. The Node daemon creates a file through a
/// dangling link.
const OUTSIDE: &[&str] = &[
    "..",
    "/",
    "../f",
    "../ws2/f",
    "../missing",
    "../outside/secret",
    "../outside/missing/deep",
    "src/../..",
    "src/../../outside/secret",
    "./src/.././../outside/secret",
    "/etc/passwd",
    "/missing",
    "{base}",
    "{base}/outside/secret",
    "{base}/outside/missing",
    // Starts with the workspace's path as text, but is not inside it.
    "{ws}2/f",
    "{ws}/../outside/secret",
    "out",
    "out-absolute",
    "out-dir",
    "out-dir/secret",
    "out-dir/missing",
    "out-dir/missing/deep",
    "out-dir-absolute/secret",
    "src/up/secret",
    "in-dir/up/secret",
    "chain",
    "chain-dir/secret",
    "root/etc/passwd",
    "dangling-out",
    "dangling-out-absolute",
];

/// Paths inside the workspace, and the relative name of each.
const INSIDE: &[(&str, &str)] = &[
    ("f", "f"),
    ("./f", "f"),
    ("src/../f", "f"),
    ("none/../f", "f"),
    (".//f", "f"),
    ("f/", "f"),
    ("{ws}/f", "f"),
    ("{ws}//src/../f", "f"),
    ("{base}/outside/../ws/f", "f"),
    ("../ws/f", "f"),
    // Resolved as text: `..` removes the link before its target is checked.
    ("out-dir/../f", "f"),
    ("in", "f"),
    ("in-absolute", "f"),
    ("in-round", "f"),
    ("in-dir/g", "src/g"),
    ("in-dir/../f", "f"),
];

#[test]
fn nothing_leads_out_of_the_workspace() {
    let calls = OUTSIDE.iter().flat_map(|path| {
        [
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "x"})),
            ("edit_file", json!({"path": path, "old_text": "secret", "new_text": "x"})),
            ("grep_search", json!({"path": path, "pattern": "secret"})),
            ("find_files", json!({"path": path})),
        ]
    });
    let calls: Vec<_> = calls.map(|(tool, arguments)| (tool, arguments.to_string())).collect();
    let escapes = "Error: Path escapes workspace root";
    let rows: Vec<_> = calls.iter().map(|(tool, text)| (*tool, text.as_str(), escapes)).collect();
    check_rows(&Bench::new(), &LINKS, &rows, false);
}

#[test]
fn every_spelling_of_what_is_inside_is_accepted() {
    let bench = Bench::new();
    let place = bench.place(&LINKS);
    for (path, name) in INSIDE {
        let content = place.get(name).unwrap();
        let word = content.trim();
        let rows = [
            ("read_file", json!({"path": path}), content.clone()),
            ("grep_search", json!({"path": path, "pattern": word}), format!("{name}:1:{content}")),
            (
                "find_files",
                json!({"path": path}),
                format!("Error: Search path is not a directory: '{path}'"),
            ),
            // Two equal items, because every row is called twice.
            (
                "edit_file",
                json!({"path": path, "old_text": word, "new_text": word}),
                format!("Successfully edited {path}"),
            ),
            (
                "write_file",
                json!({"path": path, "content": "changed\n"}),
                format!("Successfully wrote 8 bytes to {path}"),
            ),
        ];
        for (tool, arguments, expected) in rows {
            let row = (tool, &*arguments.to_string(), &*expected);
            assert_none(&wrongs(&bench, [&place; 2], row, false));
        }
        assert_eq!(place.get(name).as_deref(), Some("changed\n"), "{path}");
        fs::write(place.base.join("ws").join(name), content).unwrap();
    }
    place.check_around();
}

#[test]
fn a_name_that_the_system_does_not_take_is_refused_in_its_words() {
    let long = "x".repeat(300);
    let path = "x/".repeat(2100);
    let fails = |what: &str, path: &str| {
        format!(
            "Error: Failed to {what} file: Error: ENAMETOOLONG: name too long, open '{{ws}}/{path}'"
        )
    };
    let nul = r#"{"path":"a\u0000b","content":"x","old_text":"a","new_text":"b"}"#;
    let of_nul = |what: &str| {
        format!("Error: Failed to {what} file: Error: path contains a NUL byte, open '{{ws}}/a\0b'")
    };
    let mut rows = Vec::new();
    for (tool, what) in [("read_file", "read"), ("write_file", "write"), ("edit_file", "edit")] {
        for name in [&long, &path] {
            let arguments = json!({"path": name, "content": "x", "old_text": "a", "new_text": "b"});
            rows.push((tool, arguments.to_string(), fails(what, name)));
        }
        rows.push((tool, nul.to_owned(), of_nul(what)));
    }
    let rows: Vec<_> = rows.iter().map(|(tool, call, text)| (*tool, &**call, &**text)).collect();
    check_rows(&Bench::new(), &[], &rows, false);
}
