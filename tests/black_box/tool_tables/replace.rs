//! replace and undo: quackd's own tools for replacing, with previews, checks and undo.

use super::{Bench, Put, check_changes};
use serde_json::{Value, json};

const TREE: [Put; 7] = [
    Put::File("a.txt", b"one two\ntwo\r\nthree"),
    Put::File("src/b.rs", b"two\n"),
    Put::File(".hidden/c", b"two\n"),
    Put::File(".ignore", b"ignored\n"),
    Put::File("ignored", b"two\n"),
    Put::File("binary", b"two\0"),
    Put::Link("out", "{base}/outside"),
];

const OLD: (&str, Option<&str>) = ("a.txt", Some("one two\ntwo\r\nthree"));

#[test]
fn replace_reads_its_parameters_and_refuses_what_it_does_not_know() {
    let rows = [
        ("{}", "Error: Missing required parameter 'pattern'", OLD),
        (r#"{"pattern":"two"}"#, "Error: Missing required parameter 'replacement'", OLD),
        ("\"two\"", "Error: Tool arguments must be a JSON object", OLD),
        (
            r#"{"pattern":"two","replacment":"2"}"#,
            "Error: Unknown parameter 'replacment', did you mean 'replacement'?",
            OLD,
        ),
        (r#"{"pattern":"two","new":"2","path":".."}"#, "Error: Path escapes workspace root", OLD),
        (
            r#"{"pattern":"secret","new":"2","path":"out"}"#,
            "Error: Path escapes workspace root",
            OLD,
        ),
        (
            r#"{"pattern":"two","new":"2","path":"none"}"#,
            "Error: Search path not found: 'none'",
            OLD,
        ),
        (r#"{"pattern":"two(","new":"2"}"#, "Error: Invalid pattern: unclosed group", OLD),
        (r#"{"pattern":"none","new":"2"}"#, "No matches to replace\n[Skipped: 1 binary file]", OLD),
        (
            r#"{"pattern":"two","new":"2","max_files":"1"}"#,
            "Error: More than 1 file would be changed; nothing was",
            OLD,
        ),
        (
            r#"{"pattern":"two","new":"2","expect":{"replacements":2}}"#,
            "Error: Expected 2 replacements, but 3 would change; nothing was changed",
            OLD,
        ),
        (
            r#"{"pattern":"(t)wo","new":"$1_x"}"#,
            "Error: The replacement refers to group '1_x', which the pattern does not have; write ${1}_x for group 1 and then '_x'",
            OLD,
        ),
        (
            r#"{"plan_id":"p-1","dry_run":true}"#,
            "Error: Parameters 'plan_id' and 'dry_run' exclude each other",
            OLD,
        ),
        (
            r#"{"plan_id":"p-1"}"#,
            "Error: There is no plan 'p-1': a plan is kept for 15 minutes, and 16 of them; make a new dry run",
            OLD,
        ),
    ];
    check_changes(&TREE, "replace", &rows);
}

fn call(bench: &Bench, place: &super::Place, tool: &str, arguments: &Value) -> (String, Value) {
    let data = bench.quack_tool(place, tool, &arguments.to_string(), false).unwrap();
    (data["text"].as_str().unwrap().to_owned(), data)
}

/// The id at the end of the last line.
fn id(text: &str) -> &str {
    let line = text.lines().last().unwrap().strip_suffix(']').unwrap();
    line.rsplit_once(' ').unwrap().1
}

#[test]
fn what_is_replaced_is_told_and_can_be_taken_back_and_made_again() {
    let bench = Bench::new();
    let place = bench.place(&TREE);
    let (text, data) =
        call(&bench, &place, "replace", &json!({"pattern": "t(w)o", "with": "2${1}"}));
    let undo_id = id(&text).to_owned();
    assert_eq!(
        text,
        format!(
            "Replaced 3 matches in 3 lines of 2 files\na.txt: 2 matches in 2 lines\nsrc/b.rs: 1 match in 1 line\n\
             [Skipped: 1 binary file]\n[To take it back: undo with undo_id {undo_id}]"
        )
    );
    assert_eq!(place.get("a.txt").as_deref(), Some("one 2w\n2w\r\nthree"));
    assert_eq!(place.get("ignored").as_deref(), Some("two\n"));
    let mut data = data["data"].clone();
    let object = data.as_object_mut().unwrap();
    object.remove("elapsedMs");
    assert_eq!(
        data,
        json!({
            "files": [
                {"path": "a.txt", "linesChanged": 2, "replacements": 2, "eol": "mixed", "encoding": "utf-8", "written": true},
                {"path": "src/b.rs", "linesChanged": 1, "replacements": 1, "eol": "lf", "encoding": "utf-8", "written": true},
            ],
            "filesListed": 2,
            "totals": {"files": 2, "lines": 3, "replacements": 3},
            "planned": {"files": 2, "lines": 3, "replacements": 3},
            "skipped": [{"path": "binary", "reason": "binary file"}], "skippedCount": 1,
            "dryRun": false, "planId": null, "undoId": undo_id, "filesSearched": 3, "timedOut": false,
            "diffsCut": false, "notes": [],
        })
    );

    // Another program changes one of the files: that file stays unchanged.
    std::fs::write(place.base.join("ws/src/b.rs"), "mine\n").unwrap();
    let (text, data) = call(&bench, &place, "undo", &json!({"undo_id": undo_id}));
    let redo = id(&text).to_owned();
    assert_eq!(
        text,
        format!(
            "Undid {undo_id}: restored 1 file\n[Not restored: src/b.rs (changed since)]\n\
             [To make the changes again: undo with undo_id {redo}]"
        )
    );
    assert_eq!(data["data"]["restored"], 1);
    assert_eq!(place.get("a.txt").as_deref(), OLD.1);
    assert_eq!(place.get("src/b.rs").as_deref(), Some("mine\n"));
    let (text, _) = call(&bench, &place, "undo", &json!({"id": redo}));
    assert!(text.starts_with(&format!("Undid {redo}: restored 1 file")), "{text}");
    assert_eq!(place.get("a.txt").as_deref(), Some("one 2w\n2w\r\nthree"));
    let (text, data) = call(&bench, &place, "undo", &json!({"list": "true"}));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].contains(&format!("1 file, undoes {redo}")), "{text}");
    assert!(
        lines[1].starts_with(&format!("{redo}  1 file, undoes {undo_id}, undone by ")),
        "{text}"
    );
    assert_eq!(lines[2], format!("{undo_id}  2 files"), "one of them could not be restored");
    assert_eq!(data["data"]["entries"][2]["undoId"], json!(undo_id));
    let (text, _) = call(&bench, &place, "undo", &json!({"undo_id": "9-00000000"}));
    assert!(text.starts_with("Error: There is nothing to undo by the id '9-00000000'"), "{text}");
    let fresh = bench.place(&TREE);
    assert_eq!(call(&bench, &fresh, "undo", &json!({})).0, "Error: There is nothing to undo");
    assert_eq!(call(&bench, &fresh, "undo", &json!({"list": true})).0, "Nothing to undo");
}

#[test]
fn a_dry_run_shows_a_diff_and_its_plan_makes_exactly_that() {
    let bench = Bench::new();
    let place = bench.place(&TREE);
    let dry = json!({"pattern": "two", "replacement": "$1", "mode": "literal", "path": "src", "preview": "true"});
    let (text, data) = call(&bench, &place, "replace", &dry);
    let plan_id = id(&text).to_owned();
    assert_eq!(
        text,
        format!(
            "Would replace 1 match in 1 line of 1 file\nsrc/b.rs: 1 match in 1 line\n--- a/src/b.rs\n+++ b/src/b.rs\n\
             @@ -1 +1 @@\n-two\n+$1\n[Nothing was changed; to make exactly these changes: replace with plan_id {plan_id}]"
        )
    );
    assert_eq!(
        data["data"]["files"][0]["diff"],
        "--- a/src/b.rs\n+++ b/src/b.rs\n@@ -1 +1 @@\n-two\n+$1\n"
    );
    assert_eq!(place.get("src/b.rs").as_deref(), Some("two\n"));
    let (text, _) = call(&bench, &place, "replace", &json!({"plan_id": plan_id}));
    assert!(text.starts_with("Replaced 1 match in 1 line of 1 file\nsrc/b.rs: "), "{text}");
    assert_eq!(place.get("src/b.rs").as_deref(), Some("$1\n"));
    // The plan no longer matches the files.
    let (text, _) = call(&bench, &place, "replace", &json!({"plan_id": plan_id}));
    assert_eq!(text, "Error: 1 of the planned files changed since; nothing was changed\nsrc/b.rs");
}

#[test]
fn nothing_is_replaced_in_safe_mode_or_when_only_reading_is_allowed() {
    let bench = Bench::new();
    let place = bench.place(&TREE);
    for (tool, arguments) in [
        ("replace", r#"{"pattern":"two","replacement":"2"}"#),
        ("replace", r#"{"pattern":"two","replacement":"2","dry_run":true}"#),
        ("undo", "{}"),
        ("replace_content", r#"{"pattern":"two","replacement":"2","glob_pattern":"**/*"}"#),
    ] {
        let text = bench.voice(&place, tool, arguments, true);
        assert_eq!(text, format!("Error: {tool} is disabled in safe mode"));
    }
    for (tool, arguments) in
        [("search", r#"{"pattern":"one two"}"#), ("grep_search", r#"{"pattern":"one two"}"#)]
    {
        let text = bench.voice(&place, tool, arguments, true);
        assert_eq!(text.trim_end(), "a.txt:1:one two", "{tool}");
    }
    assert_eq!(place.get("a.txt").as_deref(), OLD.1);
}

#[test]
fn protected_files_are_left_as_they_are() {
    let bench = Bench::new();
    let place = bench.place(&[Put::File(".envrc", b"two\n"), Put::File("a", b"two\n")]);
    let arguments = json!({"pattern": "two", "replacement": "2", "hidden": true});
    let (text, data) = call(&bench, &place, "replace", &arguments);
    assert!(text.starts_with("Replaced 1 match in 1 line of 1 file\na: 1 match in 1 line\n[Not changed: .envrc (is protected: "), "{text}");
    assert!(text.contains("\n[Sandbox: "), "{text}");
    assert_eq!(data["denials"].as_array().unwrap().len(), 1);
    assert_eq!(place.get(".envrc").as_deref(), Some("two\n"));
    assert_eq!(place.get("a").as_deref(), Some("2\n"));
}

#[test]
fn what_cannot_be_undone_is_said_with_what_can() {
    let bench = Bench::new();
    let place = bench.place(&TREE);
    let (text, _) = call(&bench, &place, "replace", &json!({"pattern": "one", "with": "1"}));
    let first = id(&text).to_owned();
    for blank in ["", " "] {
        let (text, data) = call(&bench, &place, "undo", &json!({"undo_id": blank}));
        assert_eq!(
            (text.as_str(), &data["isError"]),
            ("Error: Parameter 'undo_id' is empty", &json!(true))
        );
    }
    let bare = json!({"pattern": "three", "with": "3", "backup": "none"});
    let (text, _) = call(&bench, &place, "replace", &bare);
    assert!(!text.contains("undo_id"), "{text}");
    let (text, data) = call(&bench, &place, "undo", &json!({"undo_id": null}));
    let end = format!(
        "', was made without a backup and cannot be undone; older ones can be undone by id: {first}"
    );
    assert!(text.starts_with("Error: The last change, '2-") && text.ends_with(&end), "{text}");
    assert_eq!(data["isError"], json!(true));
    assert_eq!(place.get("a.txt").as_deref(), Some("1 two\ntwo\r\n3"), "nothing was undone");
    let list = bench.voice(&place, "undo", r#"{"list":true}"#, true);
    assert!(list.contains("  1 file, no backup\n"), "a list changes nothing: {list}");

    let (text, _) = call(&bench, &place, "replace", &json!({"pattern": "3", "with": "4"}));
    let last = id(&text).to_owned();
    std::fs::write(place.base.join("ws/a.txt"), "mine\n").unwrap();
    let (text, data) = call(&bench, &place, "undo", &json!({}));
    assert_eq!(
        text,
        format!(
            "Error: None of the files of {last} could be restored\n[Not restored: a.txt (changed since)]\n\
             [Older ones can be undone by id: {first}]"
        )
    );
    assert_eq!(data["data"]["olderUndoIds"], json!([first]));
}

#[test]
fn other_names_that_keep_the_old_content_are_noted() {
    let bench = Bench::new();
    let place = bench.place(&TREE);
    std::fs::hard_link(place.base.join("ws/src/b.rs"), place.base.join("outside/b")).unwrap();
    let (text, data) = call(&bench, &place, "replace", &json!({"pattern": "two", "with": "2"}));
    let note = "src/b.rs had other names, which keep the old content";
    assert!(text.contains(&format!("\n[Note: {note}]")), "{text}");
    assert_eq!(data["data"]["notes"], json!([note]));
}

#[test]
fn a_diff_that_cannot_be_applied_says_so() {
    let bench = Bench::new();
    let place = bench.place(&[Put::File("a", b"two\n"), Put::File("b", b"two \xe9\n")]);
    let dry = json!({"pattern": "two", "with": "2", "dry_run": true});
    let (_, data) = call(&bench, &place, "replace", &dry);
    let exact = [0, 1].map(|at| data["data"]["files"][at].get("diffExact").cloned());
    assert_eq!(exact, [None, Some(json!(false))]);
}
