//! ripgrep_search: an object of three members as compact JSON, with ripgrep's terminal output.

use super::{Bench, Put, check};
use serde_json::{Value, json};

const TREE: [Put; 13] = [
    Put::File("a.py", b"one\nneedle 1\nthree\nfour\nfive\nneedle 2\n"),
    Put::File("src/b.rs", b"fn needle() {}\r\n"),
    Put::File("src/c.scss", b"needle: Needle\n"),
    Put::File("src/build/d.h", b"needle\n"),
    Put::File("src/env", b"a file and no directory: needle\n"),
    Put::File(".hidden", b"needle\n"),
    Put::File(".ignore", b"*.log\n"),
    Put::File("x.log", b"needle\n"),
    Put::File("vendor/v", b"needle\n"),
    Put::File("skipped/s", b"needle\n"),
    Put::File(".git/config", b"needle\n"),
    Put::Link("out", "{base}/outside"),
    Put::Fifo("fifo"),
];

/// The text of an answer without a note.
fn found(output: &str, matches: u64) -> String {
    let output = Value::from(output);
    format!(r#"{{"output":{output},"return_code":0,"success":true,"matches":{matches}}}"#)
}

fn failed(output: &str) -> String {
    let output = Value::from(output);
    format!(r#"{{"output":{output},"return_code":2,"success":false,"matches":0}}"#)
}

#[test]
fn ripgrep_search_keeps_its_result() {
    let a = "a.py\n2:needle 1\n6:needle 2\n";
    let rows = [
        (
            r#"{"pattern":"needle"}"#,
            found(
                "a.py\n2:needle 1\n6:needle 2\nskipped/s\n1:needle\nsrc/b.rs\n1:fn needle() {}\nsrc/c.scss\n1:needle: Needle\nsrc/env\n1:a file and no directory: needle\n",
                6,
            ),
        ),
        ("\"needle 1\"", found("a.py\n2:needle 1\n", 1)),
        // Context, with a separator between lines that are not adjacent.
        (
            r#"{"pattern":"needle","include_paths":["a.py"],"before_context_lines":1,"after_context_lines":"1"}"#,
            found("a.py\n1-one\n2:needle 1\n3-three\n--\n5-five\n6:needle 2\n", 2),
        ),
        // Every known alias of a file type, including aliases that ripgrep lacks.
        (r#"{"pattern":"needle","file_type":"py"}"#, found(a, 2)),
        (r#"{"pattern":"needle","file_type":"python"}"#, found(a, 2)),
        (r#"{"pattern":"needle","file_type":"rs"}"#, found("src/b.rs\n1:fn needle() {}\n", 1)),
        (r#"{"pattern":"needle","file_type":"scss"}"#, found("src/c.scss\n1:needle: Needle\n", 1)),
        (
            r#"{"pattern":"needle","file_type":"c-header","include_paths":["src/build"]}"#,
            found("src/build/d.h\n1:needle\n", 1),
        ),
        (
            r#"{"pattern":"needle","file_type":"hpp","include_paths":["src/build"]}"#,
            found("src/build/d.h\n1:needle\n", 1),
        ),
        (r#"{"pattern":"NEEDLE 1","case_sensitive":false}"#, found("a.py\n2:needle 1\n", 1)),
        (r#"{"pattern":"needle()","fixed_string":true}"#, found("src/b.rs\n1:fn needle() {}\n", 1)),
        (
            r#"{"pattern":"needle","exclude_dirs":["skipped","src"]}"#,
            found("a.py\n2:needle 1\n6:needle 2\n", 2),
        ),
        (r#"{"pattern":"needle","include_paths":["vendor"]}"#, found("vendor/v\n1:needle\n", 1)),
        (r#"{"pattern":"needle","include_paths":[".hidden"]}"#, found(".hidden\n1:needle\n", 1)),
        // Null counts as absent, and unknown names are ignored.
        (
            r#"{"pattern":"needle 1","file_type":null,"exclude_dirs":null,"include_paths":null,"before_context_lines":null,"x":1}"#,
            found("a.py\n2:needle 1\n", 1),
        ),
    ];
    all_answer(&rows);
}

/// Checked with ripgrep 13. A link to a directory above the start path is walked, and one to a directory of the walk is
/// not.
#[test]
fn ripgrep_search_walks_a_link_to_the_parent_of_a_start() {
    let tree = [
        Put::File("real/a", b"needle\n"),
        Put::File("real/sub/b", b"needle\n"),
        Put::Link("link", "real/sub"),
        Put::Link("real/sub/up", ".."),
    ];
    let note = |first: &str| {
        format!(
            "[Warning: Skipped 1 unreadable path(s)]\n[Warning] {first} (Symlink leads back to a directory around it)"
        )
    };
    let said = |start: &str| {
        let output =
            format!("{start}/b\n1:needle\n{start}/up/a\n1:needle\n{start}/up/sub/b\n1:needle\n");
        let (output, note) = (Value::from(output), Value::from(note("real/sub/up/sub/up")));
        format!(r#"{{"output":{output},"return_code":0,"success":true,"matches":3,"note":{note}}}"#)
    };
    let call = |start: &str| {
        format!(r#"{{"pattern":"needle","follow_links":true,"include_paths":["{start}"]}}"#)
    };
    let rows = ["link", "real/sub"].map(|start| (call(start), said(start)));
    let rows: Vec<_> = rows.iter().map(|(call, text)| (call.as_str(), text.as_str())).collect();
    check(&tree, "ripgrep_search", &rows);
}

/// Checked with ripgrep 13. A named link is followed, and its files are listed under the link's
/// name. A missing path does not stop the search, and the exit code is 2. Unlike in ripgrep, files
/// in both a link and a named directory are listed once.
#[test]
fn ripgrep_search_follows_a_named_link_and_goes_on_after_a_missing_path() {
    let tree = [
        Put::File("real/a", b"needle\n"),
        Put::File("real/sub/b", b"needle\n"),
        Put::File("build/x", b"needle\n"),
        Put::File("other/x", b"-\n"),
        Put::Link("link", "real"),
        Put::Link("file", "real/a"),
        Put::Link("other/in", "../real/sub"),
        Put::Link("real/sub/loop", ".."),
        Put::Link("node_modules", "build"),
        Put::Link("dangling", "nowhere"),
    ];
    let missing = |name: &str| format!("rg: {name}: No such file or directory (os error 2)\n");
    let real = "real/a\n1:needle\nreal/sub/b\n1:needle\n";
    let link = "link/a\n1:needle\nlink/sub/b\n1:needle\n";
    let partly = |output: &str, matches: u64| {
        let output = Value::from(output);
        format!(r#"{{"output":{output},"return_code":2,"success":false,"matches":{matches}}}"#)
    };
    let rows = [
        (r#"["link"]"#, found(link, 2)),
        (r#"["./link/"]"#, found(link, 2)),
        (r#"["link/sub"]"#, found("link/sub/b\n1:needle\n", 1)),
        (r#"["file"]"#, found("file\n1:needle\n", 1)),
        (r#"["link/a"]"#, found("link/a\n1:needle\n", 1)),
        (r#"["other/in"]"#, found("other/in/b\n1:needle\n", 1)),
        (r#"["node_modules"]"#, found("node_modules/x\n1:needle\n", 1)),
        (r#"["link/../real"]"#, found(real, 2)),
        (r#"["link","real"]"#, found(real, 2)),
        (r#"["."]"#, found(real, 2)),
        (r#"["none","real"]"#, partly(&format!("{real}{}", missing("none")), 2)),
        (r#"["link","dangling"]"#, partly(&format!("{link}{}", missing("dangling")), 2)),
        (r#"["dangling"]"#, failed(missing("dangling").trim_end())),
        (r#"["none","nor-this"]"#, failed((missing("none") + &missing("nor-this")).trim_end())),
    ];
    let calls: Vec<String> = rows
        .iter()
        .map(|(paths, _)| format!(r#"{{"pattern":"needle","include_paths":{paths}}}"#))
        .collect();
    let rows: Vec<(&str, &str)> =
        calls.iter().zip(&rows).map(|(call, (_, text))| (call.as_str(), text.as_str())).collect();
    check(&tree, "ripgrep_search", &rows);
}

#[test]
fn ripgrep_search_refuses_what_is_no_pattern_no_type_and_no_place() {
    let rows = [
        (
            r#"{"pattern":"a("}"#,
            failed("regex parse error:\n    a(\n     ^\nerror: unclosed group"),
        ),
        (
            r#"{"pattern":"a","file_type":"nosuchtype"}"#,
            failed("unrecognized file type: nosuchtype"),
        ),
        (
            r#"{"pattern":"a","include_paths":["none"]}"#,
            failed("rg: none: No such file or directory (os error 2)"),
        ),
        (
            r#"{"pattern":"a","include_paths":["../ws2"]}"#,
            failed("Error: Path escapes workspace root"),
        ),
        (
            r#"{"pattern":"a","include_paths":["out"]}"#,
            failed("Error: Path escapes workspace root"),
        ),
        (
            r#"{"pattern":"a","include_paths":["fifo"]}"#,
            failed("rg: fifo: not a regular file (fifo)"),
        ),
        ("{}", failed("Error: Missing required parameter 'pattern'")),
        (
            r#"{"pattern":"a","before_context_lines":-1}"#,
            failed("Error: Parameter 'before_context_lines' must be a whole number"),
        ),
        (
            r#"{"pattern":"a","case_sensitive":"perhaps"}"#,
            failed("Error: Parameter 'case_sensitive' must be true or false"),
        ),
        // A pattern that begins with a dash is not an option.
        (
            r#"{"pattern":"--pre=id","include_paths":["a.py"]}"#,
            r#"{"output":"","return_code":1,"success":false,"matches":0}"#.to_owned(),
        ),
    ];
    all_answer(&rows);
}

/// Calls with each of the arguments and compares the whole text.
fn all_answer(rows: &[(&str, String)]) {
    let rows: Vec<(&str, &str)> =
        rows.iter().map(|(arguments, text)| (*arguments, text.as_str())).collect();
    check(&TREE, "ripgrep_search", &rows);
}

#[test]
fn nothing_is_no_success_and_says_why() {
    let bench = Bench::new();
    let place = bench.place(&TREE);
    let data = bench.quack_tool(&place, "ripgrep_search", "\"absent\"", false).unwrap();
    let result = &data["data"];
    assert_eq!((&result["output"], &result["return_code"]), (&json!(""), &json!(1)));
    assert_eq!((&result["success"], &result["matches"]), (&json!(false), &json!(0)));
    assert!(result["note"].as_str().unwrap().contains("ignored and"), "{result}");
    assert_eq!(data["isError"], false);
    let text: Value = serde_json::from_str(data["text"].as_str().unwrap()).unwrap();
    assert_eq!(&text, result);
}

/// The last 5,000 lines of a long output are kept, and the answer gives the number of omitted
/// lines.
#[test]
fn of_a_long_output_the_end_is_kept() {
    let bench = Bench::new();
    let place = bench.place(&[]);
    let output = |n_lines: usize| {
        let lines: String = (1..=n_lines).map(|_| "needle\n").collect();
        std::fs::write(place.base.join("ws/f"), lines).unwrap();
        let data = bench.quack_tool(&place, "ripgrep_search", "\"needle\"", false).unwrap();
        assert_eq!(data["data"]["matches"], n_lines);
        assert_eq!(data["truncated"], 4_999 < n_lines);
        data["data"]["output"].as_str().unwrap().to_owned()
    };
    let rows =
        |from: usize, to: usize| (from..=to).map(|n| format!("{n}:needle\n")).collect::<String>();
    assert_eq!(output(4_999), format!("f\n{}", rows(1, 4_999)));
    assert_eq!(output(5_000), format!("[1 lines of output truncated]\n{}", rows(1, 5_000)));
    // More than one page of rows.
    assert_eq!(
        output(25_000),
        format!("[20001 lines of output truncated]\n{}", rows(20_001, 25_000))
    );
}

/// The byte limit falls inside a character, before it and after it.
#[test]
fn a_single_long_line_keeps_its_end() {
    let bench = Bench::new();
    let place = bench.place(&[]);
    for n in [102_396, 102_397, 102_398, 102_399, 102_400] {
        let line = format!("é{}", "x".repeat(n - 2));
        std::fs::write(place.base.join("ws/f"), &line).unwrap();
        let data = bench.quack_tool(&place, "ripgrep_search", "\"x$\"", false).unwrap();
        let output = data["data"]["output"].as_str().unwrap();
        assert!(output.len() <= 102_400 + 40 && output.ends_with("xxx\n"), "{n}");
    }
}
