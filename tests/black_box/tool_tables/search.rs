//! search: quackd's own tool for content. Rows, context, modes, pages, and the notes of empty
//! answers.

use super::{Bench, Put, check, check_rows};
use serde_json::{Value, json};

const TREE: [Put; 14] = [
    Put::File("a.txt", b"one\ntwo\nneedle 1\nfour\nfive\nsix\nneedle 2\n"),
    Put::File("src/b.rs", b"fn needle() {}\n\tlet x = 1;\nfoo(bar)\n"),
    Put::File("src/c.ts", b"needle // ts\r\nlast line"),
    Put::File("src/deep/d.py", b"Needle needle\n"),
    Put::File(".hidden/e", b"needle hidden\n"),
    Put::File(".ignore", b"ignored*\n"),
    Put::File("ignored.txt", b"needle ignored\n"),
    Put::File(".git/config", b"needle\n"),
    Put::File("binary", b"needle\0\n"),
    Put::File("latin1", b"caf\xe9\n"),
    Put::Link("link", "a.txt"),
    Put::Link("link-dir", "src"),
    Put::Link("out", "{base}/outside"),
    Put::Fifo("fifo"),
];

const NOTHING: &str = "No matches found";

const EVERYWHERE: &str = "\
a.txt:3:needle 1
a.txt:7:needle 2
src/b.rs:1:fn needle() {}
src/c.ts:1:needle // ts
src/deep/d.py:1:Needle needle";

#[test]
fn search_reads_its_parameters_by_every_name() {
    let missing = "Error: Missing required parameter 'pattern'";
    let number = "Error: Parameter 'limit' must be a whole number";
    let rows = [
        (r#"{"pattern":"two"}"#, "a.txt:2:two"),
        (r#"{"query":"two"}"#, "a.txt:2:two"),
        (r#"{"regex":"two"}"#, "a.txt:2:two"),
        ("\"two\"", "a.txt:2:two"),
        (r#"{"pattern":["two","four"]}"#, "a.txt:2:two\na.txt:4:four"),
        ("{}", missing),
        (r#"{"pattern":""}"#, missing),
        (r#"{"pattern":[]}"#, missing),
        (r#"{"pattern":null}"#, missing),
        (r#"{"patern":"two"}"#, "Error: Unknown parameter 'patern', did you mean 'pattern'?"),
        (r#"{"pattern":"two","nothing_like_it":1}"#, "Error: Unknown parameter 'nothing_like_it'"),
        // Numbers and flags as text, and null as absent.
        (r#"{"pattern":"two","limit":"7","invert":"false","context":null}"#, "a.txt:2:two"),
        (r#"{"pattern":"two","limit":-1}"#, number),
        (r#"{"pattern":"two","limit":1.5}"#, number),
        (r#"{"pattern":"two","limit":"many"}"#, number),
        (
            r#"{"pattern":"two","invert":"perhaps"}"#,
            "Error: Parameter 'invert' must be true or false",
        ),
        (r#"{"pattern":{"a":1}}"#, "Error: Parameter 'pattern' must be a text or a list of texts"),
        (
            r#"{"pattern":"two","case":"loud"}"#,
            "Error: Parameter 'case' must be one of sensitive, insensitive, smart",
        ),
        // Start directory.
        (r#"{"pattern":"needle","path":"src/b.rs"}"#, "src/b.rs:1:fn needle() {}"),
        (r#"{"pattern":"needle","path":"{ws}/src/b.rs"}"#, "src/b.rs:1:fn needle() {}"),
        (
            r#"{"pattern":"needle","paths":["src/c.ts","src/b.rs"]}"#,
            "src/b.rs:1:fn needle() {}\nsrc/c.ts:1:needle // ts",
        ),
        (r#"{"pattern":"two","path":"link"}"#, "a.txt:2:two"),
        (r#"{"pattern":"x","path":".."}"#, "Error: Path escapes workspace root"),
        (r#"{"pattern":"x","path":"/etc"}"#, "Error: Path escapes workspace root"),
        (r#"{"pattern":"x","path":"out"}"#, "Error: Path escapes workspace root"),
        (r#"{"pattern":"x","path":"out/secret"}"#, "Error: Path escapes workspace root"),
        (r#"{"pattern":"x","path":"none"}"#, "Error: Search path not found: 'none'"),
        (
            r#"{"pattern":"x","path":"fifo"}"#,
            "Error: Cannot search 'fifo': not a regular file (fifo)",
        ),
        // Selection of files.
        (r#"{"pattern":"needle","include":"*.rs"}"#, "src/b.rs:1:fn needle() {}"),
        (
            r#"{"pattern":"needle","glob":["*.ts","*.rs"],"exclude":"c.*"}"#,
            "src/b.rs:1:fn needle() {}",
        ),
        (r#"{"pattern":"needle","type":"python"}"#, "src/deep/d.py:1:Needle needle"),
        (r#"{"pattern":"needle","file_type":"rs"}"#, "src/b.rs:1:fn needle() {}"),
        (
            r#"{"pattern":"needle","path":"src","exclude_dirs":["deep"],"type_not":"ts"}"#,
            "src/b.rs:1:fn needle() {}",
        ),
        (
            r#"{"pattern":"needle","path":"src","max_depth":1,"type":"js"}"#,
            "No matches found\n[Note: no file was searched; filters left out 3]",
        ),
    ];
    check(&TREE, "search", &rows);
}

#[test]
fn search_leaves_out_what_is_ignored_or_hidden_unless_it_is_asked_for() {
    let with_ignored = format!(
        "a.txt:3:needle 1\na.txt:7:needle 2\nignored.txt:1:needle ignored\n{}",
        EVERYWHERE.split_once("2\n").unwrap().1
    );
    let rows = [
        (r#"{"pattern":"needle"}"#, EVERYWHERE),
        (r#"{"pattern":"needle","no_ignore":true}"#, &*with_ignored),
        (r#"{"pattern":"needle","ignore":"none"}"#, &*with_ignored),
        (r#"{"pattern":"needle","path":".hidden"}"#, ".hidden/e:1:needle hidden"),
        (r#"{"pattern":"hidden","hidden":true}"#, ".hidden/e:1:needle hidden"),
        (r#"{"pattern":"hidden","include":".hidden/*"}"#, ".hidden/e:1:needle hidden"),
        // A glob does not include ignored files.
        (r#"{"pattern":"needle i","include":"**/*","hidden":true}"#, NOTHING),
        // No option follows a link out of the workspace.
        (r#"{"pattern":"secret","follow":true,"hidden":true,"ignore":"none"}"#, NOTHING),
    ];
    let bench = Bench::new();
    let place = bench.place(&TREE);
    for (arguments, expected) in rows {
        // The notes of an empty answer are checked below.
        let text = bench.voice(&place, "search", arguments, false);
        let rows = if expected == NOTHING { text.lines().next().unwrap() } else { &text };
        assert_eq!(rows, expected, "{arguments}");
    }
}

#[test]
fn search_shows_context_and_what_it_leaves_out() {
    let rows = [
        (
            r#"{"pattern":"needle","path":"a.txt","context":1}"#,
            "a.txt-2-two\na.txt:3:needle 1\na.txt-4-four\n--\na.txt-6-six\na.txt:7:needle 2",
        ),
        (
            r#"{"pattern":"needle","path":"a.txt","-B":1}"#,
            "a.txt-2-two\na.txt:3:needle 1\n--\na.txt-6-six\na.txt:7:needle 2",
        ),
        (
            r#"{"pattern":"needle","path":"a.txt","after_context_lines":"1"}"#,
            "a.txt:3:needle 1\na.txt-4-four\n--\na.txt:7:needle 2",
        ),
        (
            r#"{"pattern":"needle","path":"src","after":1,"include":"*.{rs,ts}"}"#,
            "src/b.rs:1:fn needle() {}\nsrc/b.rs-2-\tlet x = 1;\n--\nsrc/c.ts:1:needle // ts\nsrc/c.ts-2-last line",
        ),
    ];
    check(&TREE, "search", &rows);
}

#[test]
fn search_has_modes() {
    let files = "a.txt\nsrc/b.rs\nsrc/c.ts\nsrc/deep/d.py";
    let rows = [
        (r#"{"pattern":"needle","output":"files"}"#, files),
        (r#"{"pattern":"needle","output_mode":"files_with_matches"}"#, files),
        (r#"{"pattern":"needle","names_only":true}"#, files),
        (r#"{"pattern":"needle","output":"files_without"}"#, "latin1"),
        (
            r#"{"pattern":"needle","-i":true,"output":"count"}"#,
            "a.txt:2\nsrc/b.rs:1\nsrc/c.ts:1\nsrc/deep/d.py:1",
        ),
        (
            r#"{"pattern":"needle","-i":true,"output":"count_matches"}"#,
            "a.txt:2\nsrc/b.rs:1\nsrc/c.ts:1\nsrc/deep/d.py:2",
        ),
        (r#"{"pattern":"n\\w+","-o":true,"path":"src/c.ts"}"#, "src/c.ts:1:needle\nsrc/c.ts:2:ne"),
        (
            r#"{"pattern":"e","invert":true,"path":"a.txt"}"#,
            "a.txt:2:two\na.txt:4:four\na.txt:6:six",
        ),
        (r#"{"pattern":"foo(","mode":"literal"}"#, "src/b.rs:3:foo(bar)"),
        // `foo` contains `fo`, but not as a word.
        (r#"{"pattern":"fo","mode":"word","path":"src/b.rs"}"#, NOTHING),
        (r#"{"pattern":"two","mode":"line"}"#, "a.txt:2:two"),
        (
            r#"{"pattern":"NEEDLE","case":"insensitive","path":"src/b.rs"}"#,
            "src/b.rs:1:fn needle() {}",
        ),
        (r#"{"pattern":"Needle","case":"smart"}"#, "src/deep/d.py:1:Needle needle"),
        (r#"{"pattern":"two","max_per_file":1,"path":"a.txt"}"#, "a.txt:2:two"),
        (
            r#"{"pattern":"two\\nneedle"}"#,
            "a.txt:2:two\na.txt:3:needle 1\n[Note: the pattern can match a line break, so matches may cross lines]",
        ),
        (r#"{"pattern":"caf"}"#, "latin1:1:caf\u{fffd}"),
        (r#"{"pattern":"café","encoding":"latin1"}"#, "latin1:1:café"),
        (
            r#"{"pattern":"needle","path":"binary","binary":"report"}"#,
            "binary: binary file matches",
        ),
        (r#"{"pattern":"needle","path":"binary","binary":"text"}"#, "binary:1:needle\0"),
        // Invalid patterns.
        (r#"{"pattern":"foo("}"#, "Error: Invalid pattern: unclosed group"),
        (
            r#"{"pattern":"(?=a)"}"#,
            "Error: Invalid pattern: look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            r#"{"pattern":"x","include":"["}"#,
            "Error: Invalid glob '[': unclosed character class; missing ']'",
        ),
        (r#"{"pattern":"x","include":"/etc/*"}"#, "Error: Glob '/etc/*' is outside the workspace"),
        (
            r#"{"pattern":"x","type":"pyton"}"#,
            "Error: Unknown file type 'pyton', did you mean 'python'?",
        ),
        (r#"{"pattern":"x","encoding":"utf-9"}"#, "Error: Unknown encoding 'utf-9'"),
        (r#"{"pattern":"x","cursor":"none"}"#, "Error: Cursor does not belong to this request"),
    ];
    check(&TREE, "search", &rows);
}

/// A pattern longer than 64 KiB, and rows longer than the answer.
#[test]
fn search_is_bounded() {
    let bench = Bench::new();
    let place = bench.place(&[Put::Sized("long", 200_000)]);
    let call = |arguments: Value| {
        let data = bench.quack_tool(&place, "search", &arguments.to_string(), false).unwrap();
        (data["text"].as_str().unwrap().to_owned(), data)
    };
    let (text, _) = call(json!({"pattern": "y".repeat(65_537)}));
    assert_eq!(text, "Error: Pattern is longer than 65536 bytes");
    let (text, data) = call(json!({"pattern": "x", "max_line": 0}));
    assert!(data["truncated"] == true && text.len() <= 102_400 + 100, "{}", text.len());
    let (text, _) = call(json!({"pattern": "x$"}));
    assert!(text.starts_with("long:1:[+") && text.len() < 2_000, "{text}");
    let (text, data) = call(json!({"pattern": "x+?", "max_bytes": 1024}));
    assert!(text.len() < 2_048, "{text}");
    let found = &data["data"]["matches"][0];
    assert!(found["submatches"].as_array().unwrap().len() <= 100, "{found}");
}

#[test]
fn search_pages_to_the_end_by_offset_and_by_cursor() {
    let bench = Bench::new();
    let place = bench.place(&[]);
    let lines: String = (0..250).map(|n| format!("row {n}\n")).collect();
    for name in ["a", "b"] {
        std::fs::write(place.base.join("ws").join(name), &lines).unwrap();
    }
    let call = |arguments: Value| {
        let data = bench.quack_tool(&place, "search", &arguments.to_string(), false).unwrap();
        (data["text"].as_str().unwrap().to_owned(), data["data"].clone())
    };
    let all: Vec<String> = ["a", "b"]
        .iter()
        .flat_map(|f| (0..250).map(move |n| format!("{f}:{}:row {n}", n + 1)))
        .collect();

    let (text, data) = call(json!({"pattern": "row"}));
    let expected = format!("{}\n[100 of 500 shown; go on with offset 100]", all[..100].join("\n"));
    assert_eq!(text, expected);
    assert_eq!(
        (&data["total"], &data["totalExact"], &data["nextOffset"]),
        (&json!(500), &json!(true), &json!(100))
    );

    // 100 and 101 rows, and the last pages.
    for (offset, n_rows) in [(0, 100), (100, 100), (400, 100), (401, 99), (499, 1)] {
        let (text, data) = call(json!({"pattern": "row", "offset": offset}));
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('[')).collect();
        assert_eq!(rows, all[offset..offset + n_rows], "{offset}");
        let is_last = offset + n_rows == 500;
        assert_eq!(text.contains("go on with"), !is_last, "{offset}");
        assert_eq!((data["truncated"] == true, data["cursor"].is_string()), (!is_last, !is_last));
    }
    for offset in [500, 501, 1_000_000] {
        let (text, data) = call(json!({"pattern": "row", "offset": offset}));
        assert_eq!(
            text,
            "No more results\n[Note: the offset is past the end; there are 500 results]"
        );
        assert_eq!(data["matches"], json!([]));
    }

    let (mut rows, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let (_, data) =
            call(json!({"pattern": "row", "limit": 77, "cursor": cursor, "total": false}));
        let matches = data["matches"].as_array().unwrap();
        rows.extend(matches.iter().map(|row| {
            format!(
                "{}:{}:{}",
                row["path"].as_str().unwrap(),
                row["line"],
                row["text"].as_str().unwrap()
            )
        }));
        cursor = data["cursor"].clone();
        if cursor.is_null() {
            break;
        }
        assert_eq!(matches.len(), 77);
    }
    assert_eq!(rows, all);
    // A cursor of another query is refused.
    let (_, data) = call(json!({"pattern": "row"}));
    let (text, _) = call(json!({"pattern": "other", "cursor": data["cursor"]}));
    assert_eq!(text, "Error: Cursor does not belong to this request");
}

#[test]
fn search_gives_every_number_as_data() {
    let bench = Bench::new();
    let place = bench.place(&TREE);
    let call = r#"{"pattern":"needle","path":"a.txt","context":1}"#;
    let mut data = bench.quack_tool(&place, "search", call, false).unwrap()["data"].clone();
    assert!(data["elapsedMs"].is_u64());
    data.as_object_mut().unwrap().remove("elapsedMs");
    let expected = json!({
        "matches": [
            {"path": "a.txt", "line": 3, "column": 1, "text": "needle 1", "submatches": [{"start": 0, "end": 6}],
             "before": [{"line": 2, "text": "two"}], "after": [{"line": 4, "text": "four"}]},
            {"path": "a.txt", "line": 7, "column": 1, "text": "needle 2", "submatches": [{"start": 0, "end": 6}],
             "before": [{"line": 6, "text": "six"}]},
        ],
        "shown": 2, "total": 2, "totalExact": true, "truncated": false, "nextOffset": null, "cursor": null,
        "filesSearched": 1, "filesMatched": 1,
        "skipped": {"ignored": 0, "hidden": 0, "binary": 0, "tooLarge": 0, "tooLong": 0, "unreadable": 0,
                    "notRegular": 0, "filtered": 0},
        "warnings": [], "timedOut": false, "tooManyFiles": false, "dialect": "rust", "multiline": false, "notes": [],
    });
    assert_eq!(data, expected);
}

#[test]
fn search_says_why_it_found_nothing() {
    let bench = Bench::new();
    let place = bench.place(&TREE);
    let text = |arguments: &str| bench.voice(&place, "search", arguments, false);
    assert!(
        text("\"absent\"").starts_with("No matches found\n[Note: 1 ignored and "),
        "{}",
        text("\"absent\"")
    );
    let found = text(r#"{"pattern":"foo(bar)","path":"src/b.rs"}"#);
    assert!(
        found.contains("taken as plain text it occurs in 1 lines; mode:\"literal\" finds them]"),
        "{found}"
    );
    let found = text(r#"{"pattern":"FOO","path":"src/b.rs"}"#);
    assert!(found.contains("[Note: 1 lines match if upper and lower case are the same; case:\"insensitive\" finds them]"), "{found}");
}

#[test]
fn search_goes_on_where_something_cannot_be_read() {
    let setup = [
        Put::File("a", b"needle\n"),
        Put::File("closed", b"needle\n"),
        Put::Mode("closed", 0o000),
        Put::File("dir/f", b"needle\n"),
        Put::Mode("dir", 0o000),
    ];
    let expected = "a:1:needle\n[Warning: Skipped 2 unreadable path(s)]\n[Warning] dir (Permission denied)\n\
                    [Warning] closed (Permission denied)";
    let rows = [("search", r#"{"pattern":"needle"}"#, expected)];
    check_rows(&Bench::without_privilege(), &setup, &rows, false);
}
