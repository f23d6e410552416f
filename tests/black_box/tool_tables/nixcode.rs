//! search_content, replace_content and search_glob_files: the exact texts of Nixcode's
//! documentation.

use super::{Bench, Put, check, check_changes};
use serde_json::{Value, json};

const TREE: [Put; 13] = [
    Put::File("top.rs", b"fn main() {\n"),
    Put::File("src/a.rs", b"  fn main() {  \n\tother\n"),
    Put::File("src/b.ts", b"fn main\r\n"),
    Put::File("src/deep/c.rs", b"fn main\nfn mainly"),
    Put::File(".github/ci.yml", b"fn main\n"),
    Put::File(".gitignore", b"ignored.rs\n"),
    Put::File("src/ignored.rs", b"fn main ignored\n"),
    Put::File(".ignore", b"b.ts\n"),
    Put::File(".git/config", b"fn main\n"),
    Put::File("binary", b"fn main\0\n"),
    Put::Link("src/up", ".."),
    Put::Link("out", "{base}/outside"),
    Put::Fifo("fifo"),
];

#[test]
fn search_content_keeps_its_texts() {
    let rows = [
        // Rows are trimmed at both ends. A glob without `**` does not match subdirectories.
        (
            r#"{"pattern":"fn main","glob_pattern":"src/**/*.rs"}"#,
            "Found 3 matches for pattern 'fn main' in files matching 'src/**/*.rs':\n\n\
             src/a.rs:1: fn main() {\nsrc/deep/c.rs:1: fn main\nsrc/deep/c.rs:2: fn mainly\n",
        ),
        (
            r#"{"pattern":"fn main\\(\\)","glob_pattern":"*.rs"}"#,
            "Found 1 matches for pattern 'fn main\\(\\)' in files matching '*.rs':\n\ntop.rs:1: fn main() {\n",
        ),
        // Only git's ignore files count.
        (
            r#"{"pattern":"fn","glob_pattern":"src/*.{ts,js}"}"#,
            "Found 1 matches for pattern 'fn' in files matching 'src/*.{ts,js}':\n\nsrc/b.ts:1: fn main\n",
        ),
        (r#"{"pattern":"ignored","glob_pattern":"**/*"}"#, NOTHING),
        (
            r#"{"pattern":"ignored","glob_pattern":"**/*","include_gitignored":true}"#,
            "Found 1 matches for pattern 'ignored' in files matching '**/*':\n\nsrc/ignored.rs:1: fn main ignored\n",
        ),
        (
            r#"{"pattern":"fn","glob_pattern":"**/*.yml","include_hidden":true}"#,
            "Found 1 matches for pattern 'fn' in files matching '**/*.yml':\n\n.github/ci.yml:1: fn main\n",
        ),
        (
            r#"{"pattern":"fn","glob_pattern":"**/*.yml","include_hidden":null,"offset":null}"#,
            NOTHING,
        ),
        (
            r#"{"pattern":"fn","glob_pattern":".github/**"}"#,
            "Found 1 matches for pattern 'fn' in files matching '.github/**':\n\n.github/ci.yml:1: fn main\n",
        ),
        (r#"{"pattern":"fn","glob_pattern":".github/**","include_hidden":false}"#, NOTHING),
        // git's own directory is searched only if the glob names it and `include_gitignored` is
        // set.
        (r#"{"pattern":"fn","glob_pattern":".git/*","include_hidden":true}"#, NOTHING),
        (
            r#"{"pattern":"fn","glob_pattern":".git/*","include_gitignored":true}"#,
            "Found 1 matches for pattern 'fn' in files matching '.git/*':\n\n.git/config:1: fn main\n",
        ),
        (r#"{"pattern":"fn","glob_pattern":"fifo"}"#, NOTHING),
        (r#"{"pattern":"fn","glob_pattern":"binary"}"#, NOTHING),
        (r#"{"pattern":"secret","glob_pattern":"out/*"}"#, NOTHING),
        (r#"{"pattern":"fn main() ","glob_pattern":"none/**/*"}"#, NOTHING),
        // `a/..` is resolved.
        (
            r#"{"pattern":"fn","glob_pattern":"./src/../top.rs"}"#,
            "Found 1 matches for pattern 'fn' in files matching './src/../top.rs':\n\ntop.rs:1: fn main() {\n",
        ),
        // An offset as text, and an offset past the end.
        (
            r#"{"pattern":"fn main","glob_pattern":"src/deep/*","offset":"1"}"#,
            "Found 2 matches for pattern 'fn main' in files matching 'src/deep/*':\n\nsrc/deep/c.rs:2: fn mainly\n",
        ),
        (r#"{"pattern":"fn main","glob_pattern":"src/deep/*","offset":2}"#, NOTHING),
        // Unknown names are ignored.
        (r#"{"pattern":"zebra","glob_pattern":"*","path":"src","x":1}"#, NOTHING),
        // The checks in their order.
        (r#"{"pattern":"","glob_pattern":""}"#, "Search pattern is empty"),
        (
            r#"{"pattern":"a(","glob_pattern":""}"#,
            "Invalid regex pattern: regex parse error:\n    a(\n     ^\nerror: unclosed group",
        ),
        (
            r#"{"pattern":"(?=a)","glob_pattern":"*"}"#,
            "Invalid regex pattern: regex parse error:\n    (?=a)\n    ^^^\nerror: look-around, including look-ahead and look-behind, is not supported",
        ),
        (r#"{"pattern":"a","glob_pattern":""}"#, "Glob pattern is empty"),
        (r#"{"pattern":"a","glob_pattern":"/etc/*"}"#, "Glob pattern must be relative"),
        (r#"{"pattern":"a","glob_pattern":"../ws2/*"}"#, "Path exceeds base directory"),
        (r#"{"pattern":"a","glob_pattern":"src/../../outside/*"}"#, "Path exceeds base directory"),
        (
            r#"{"pattern":"a","glob_pattern":"src/["}"#,
            "Invalid glob pattern: unclosed character class; missing ']'",
        ),
        // This replaces Nixcode's `Error executing tool`.
        ("{}", "Error: Missing required parameter 'pattern'"),
        (r#"{"pattern":"a"}"#, "Error: Missing required parameter 'glob_pattern'"),
        (r#"{"pattern":["a"],"glob_pattern":"*"}"#, "Error: Parameter 'pattern' must be a text"),
        (
            r#"{"pattern":"a","glob_pattern":"*","offset":-1}"#,
            "Error: Parameter 'offset' must be a whole number",
        ),
        (
            r#"{"pattern":"a","glob_pattern":"*","include_hidden":"perhaps"}"#,
            "Error: Parameter 'include_hidden' must be true or false",
        ),
    ];
    check(&TREE, "search_content", &rows);
}

const NOTHING: &str = "No matches found";

/// A page has a hundred rows, the total is exact, and the line after the rows gives the number of
/// remaining rows.
#[test]
fn search_content_tells_how_many_more_there_are() {
    let bench = Bench::new();
    let place = bench.place(&[]);
    let page = |n_lines: usize, offset: usize| {
        let lines: String = (0..n_lines).map(|n| format!("row {n}\n")).collect();
        std::fs::write(place.base.join("ws/f"), lines).unwrap();
        let call = json!({"pattern": "row", "glob_pattern": "f", "offset": offset}).to_string();
        let data = bench.quack_tool(&place, "search_content", &call, false).unwrap();
        data["text"].as_str().unwrap().to_owned()
    };
    let expected = |total: usize, rows: std::ops::Range<usize>, trailer: &str| {
        let rows: String = rows.map(|n| format!("f:{}: row {n}\n", n + 1)).collect();
        format!("Found {total} matches for pattern 'row' in files matching 'f':\n\n{rows}{trailer}")
    };
    assert_eq!(page(100, 0), expected(100, 0..100, ""));
    let one_more = "\n... and 1 more matches, reuse tool with offset parameter";
    assert_eq!(page(101, 0), expected(101, 0..100, one_more));
    let more = "\n... and 150 more matches (current offset: 100), reuse tool with offset parameter";
    assert_eq!(page(350, 100), expected(350, 100..200, more));
    assert_eq!(page(350, 349), expected(350, 349..350, ""));
    assert_eq!(page(350, 350), NOTHING);
    assert_eq!(page(350, 351), NOTHING);
}

#[test]
fn search_glob_files_keeps_its_texts() {
    let rows = [
        (r#"{"pattern":"*.rs"}"#, "Glob results:\ntop.rs\n"),
        (r#"{"pattern":"src/*"}"#, "Glob results:\nsrc/a.rs\nsrc/b.ts\nsrc/deep\nsrc/up\n"),
        (r#"{"pattern":"**/*.rs"}"#, "Glob results:\nsrc/a.rs\nsrc/deep/c.rs\ntop.rs\n"),
        (
            r#"{"pattern":"**/*.rs","include_gitignored":true,"offset":3}"#,
            "Glob results:\ntop.rs\n",
        ),
        (r#"{"pattern":"**/*.yml"}"#, "No files found"),
        (r#"{"pattern":".github/*"}"#, "Glob results:\n.github/ci.yml\n"),
        (r#"{"pattern":"**/*.yml","include_hidden":true}"#, "Glob results:\n.github/ci.yml\n"),
        (r#"{"pattern":"**/config","include_hidden":true}"#, "No files found"),
        (r#"{"pattern":"*.rs","offset":1}"#, "No files found"),
        (r#"{"pattern":""}"#, "Pattern is empty"),
        (r#"{"pattern":"/etc"}"#, "Pattern must be relative path"),
        (r#"{"pattern":"../*"}"#, "Path exceeds base directory"),
        ("{}", "Error: Missing required parameter 'pattern'"),
        (r#"{"pattern":"a","offset":"x"}"#, "Error: Parameter 'offset' must be a whole number"),
    ];
    check(&TREE, "search_glob_files", &rows);

    let bench = Bench::new();
    let place = bench.place(&[]);
    let names: Vec<String> = (0..201).map(|n| format!("{n:03}")).collect();
    for name in &names {
        std::fs::write(place.base.join("ws").join(name), "").unwrap();
    }
    let page = |arguments: &str| bench.voice(&place, "search_glob_files", arguments, false);
    assert_eq!(
        page(r#"{"pattern":"*"}"#),
        format!(
            "Glob results:\n{}\n... and 101 more files, reuse tool with offset parameter",
            names[..100].join("\n")
        )
    );
    assert_eq!(
        page(r#"{"pattern":"*","offset":100}"#),
        format!(
            "Glob results:\n{}\n... and 1 more files (current offset: 100), reuse tool with offset parameter",
            names[100..200].join("\n")
        )
    );
    assert_eq!(
        page(r#"{"pattern":"*","offset":101}"#),
        format!("Glob results:\n{}\n", names[101..].join("\n"))
    );
}

const OLD: &str = "fn main() {\r\n}\r\nfn main() {";

const SOURCES: [Put; 6] = [
    Put::File("src/a.rs", OLD.as_bytes()),
    Put::File("src/b.rs", b"\xef\xbb\xbfab-cd ab-cd\nlast"),
    Put::File("top.rs", b"fn main() {}\n"),
    Put::File("binary", b"ab-cd\0"),
    Put::Link("src/link.rs", "../top.rs"),
    Put::Link("out", "{base}/outside"),
];

#[test]
fn replace_content_keeps_its_texts_and_every_other_byte() {
    let nothing = "No matches found for replacement";
    let rows = [
        // Line ends are unchanged, including those of the replacement text and a missing one at the
        // end.
        (
            r#"{"pattern":"fn main\\(\\) \\{","replacement":"fn main() {\n    // Added comment","glob_pattern":"src/a.rs"}"#,
            "Replaced 2 occurrences in 1 files for pattern 'fn main\\(\\) \\{' with 'fn main() {\n    // Added comment' in files matching 'src/a.rs':\n\nsrc/a.rs: 2 replacements\n",
            (
                "src/a.rs",
                Some(
                    "fn main() {\r\n    // Added comment\r\n}\r\nfn main() {\r\n    // Added comment",
                ),
            ),
        ),
        // Lines are counted, groups are expanded, and the byte order mark stays.
        (
            r#"{"pattern":"(\\w\\w)-(\\w\\w)","replacement":"${2}_$1$$","glob_pattern":"src/**/*.rs"}"#,
            "Replaced 1 occurrences in 1 files for pattern '(\\w\\w)-(\\w\\w)' with '${2}_$1$$' in files matching 'src/**/*.rs':\n\nsrc/b.rs: 1 replacements\n",
            ("src/b.rs", Some("\u{feff}cd_ab$ cd_ab$\nlast")),
        ),
        (
            r#"{"pattern":"main","replacement":"start","glob_pattern":"**/*.rs"}"#,
            "Replaced 3 occurrences in 2 files for pattern 'main' with 'start' in files matching '**/*.rs':\n\nsrc/a.rs: 2 replacements\ntop.rs: 1 replacements\n",
            ("top.rs", Some("fn start() {}\n")),
        ),
        (
            r#"{"pattern":"main","replacement":"","glob_pattern":"*.rs"}"#,
            "Replaced 1 occurrences in 1 files for pattern 'main' with '' in files matching '*.rs':\n\ntop.rs: 1 replacements\n",
            ("top.rs", Some("fn () {}\n")),
        ),
        (
            r#"{"pattern":"main","replacement":"x","glob_pattern":"*.rs","dry_run":true}"#,
            "Would replace 1 occurrences in 1 files for pattern 'main' with 'x' in files matching '*.rs':\n\ntop.rs: 1 replacements\n",
            ("top.rs", Some("fn main() {}\n")),
        ),
        (
            r#"{"pattern":"main","replacement":"x","glob_pattern":"**/*.rs","max_files":1}"#,
            "Error: More than 1 file would be changed; nothing was",
            ("top.rs", Some("fn main() {}\n")),
        ),
        (
            r#"{"pattern":"main","replacement":"x","glob_pattern":"**/*.rs","expect":{"files":1}}"#,
            "Error: Expected 1 files, but 2 would change; nothing was changed",
            ("top.rs", Some("fn main() {}\n")),
        ),
        // No change, even if the replacement equals the match.
        (
            r#"{"pattern":"none","replacement":"x","glob_pattern":"**/*"}"#,
            nothing,
            ("src/a.rs", Some(OLD)),
        ),
        (
            r#"{"pattern":"main","replacement":"main","glob_pattern":"**/*"}"#,
            nothing,
            ("src/a.rs", Some(OLD)),
        ),
        (
            r#"{"pattern":"ab-cd","replacement":"x","glob_pattern":"binary"}"#,
            nothing,
            ("binary", Some("ab-cd\0")),
        ),
        (
            r#"{"pattern":"secret","replacement":"x","glob_pattern":"out/*"}"#,
            nothing,
            ("src/a.rs", Some(OLD)),
        ),
        // A replacement that would silently delete text is refused, with a suggestion.
        (
            r#"{"pattern":"(m)ain","replacement":"$1_x","glob_pattern":"*.rs"}"#,
            "Error: The replacement refers to group '1_x', which the pattern does not have; write ${1}_x for group 1 and then '_x'",
            ("top.rs", Some("fn main() {}\n")),
        ),
        (
            r#"{"pattern":"","replacement":"x","glob_pattern":"*"}"#,
            "Search pattern is empty",
            ("src/a.rs", Some(OLD)),
        ),
        (
            r#"{"pattern":"a(","replacement":"x","glob_pattern":"/"}"#,
            "Invalid regex pattern: regex parse error:\n    a(\n     ^\nerror: unclosed group",
            ("src/a.rs", Some(OLD)),
        ),
        (
            r#"{"pattern":"a","replacement":"x","glob_pattern":""}"#,
            "Glob pattern is empty",
            ("src/a.rs", Some(OLD)),
        ),
        (
            r#"{"pattern":"a","replacement":"x","glob_pattern":"{ws}/*"}"#,
            "Glob pattern must be relative",
            ("src/a.rs", Some(OLD)),
        ),
        (
            r#"{"pattern":"a","replacement":"x","glob_pattern":"../*"}"#,
            "Path exceeds base directory",
            ("src/a.rs", Some(OLD)),
        ),
        (
            r#"{"pattern":"a","glob_pattern":"*"}"#,
            "Error: Missing required parameter 'replacement'",
            ("src/a.rs", Some(OLD)),
        ),
    ];
    check_changes(&SOURCES, "replace_content", &rows);
}

#[test]
fn what_replace_content_did_can_be_taken_back() {
    let bench = Bench::new();
    let place = bench.place(&SOURCES);
    let call = r#"{"pattern":"main","replacement":"x","glob_pattern":"**/*.rs"}"#;
    let data = bench.quack_tool(&place, "replace_content", call, false).unwrap();
    let id = data["data"]["undoId"].as_str().unwrap().to_owned();
    assert_eq!(data["data"]["totals"], json!({"files": 2, "lines": 3, "replacements": 3}));
    assert_eq!(place.get("top.rs").as_deref(), Some("fn x() {}\n"));
    let text = bench.voice(&place, "undo", &Value::from(id.clone()).to_string(), false);
    assert!(text.starts_with(&format!("Undid {id}: restored 2 files\n")), "{text}");
    assert_eq!(place.get("top.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!(place.get("src/a.rs").as_deref(), Some(OLD));
}

/// Nixcode compiles the pattern with Rust's regex crate and searches each line without its end: `\s` is the Unicode
/// property White_Space, `$` matches at the end of the line only, and U+2028 does not end a line.
#[test]
fn unicode_line_separators_are_white_space_and_end_no_line() {
    let content = "a \u{2028}\nb\u{2028}c\nd\u{2028}\r\ne\u{85}\u{2029}\u{3000}\nf\u{feff}\n\u{2028}\ng\u{2028}";
    let tree = [Put::File("t.txt", content.as_bytes())];
    let answer = |n_lines: u64, pattern: &str| {
        format!(
            "Replaced {n_lines} occurrences in 1 files for pattern '{pattern}' with '$0;' in files matching '*.txt':\n\n\
             t.txt: {n_lines} replacements\n"
        )
    };
    let after = "a \u{2028};\nb\u{2028}c\nd\u{2028};\r\ne\u{85}\u{2029}\u{3000};\nf\u{feff}\n\u{2028};\ng\u{2028};";
    for pattern in [r"\s+$", r"(?m)\s+$", r"\s+\z"] {
        let call = json!({"pattern": pattern, "replacement": "$0;", "glob_pattern": "*.txt"});
        let expected = (call.to_string(), answer(5, pattern));
        let rows = [(expected.0.as_str(), expected.1.as_str(), ("t.txt", Some(after)))];
        check_changes(&tree, "replace_content", &rows);
    }
    let rows = [(
        r#"{"pattern":"\\s+$","glob_pattern":"*.txt"}"#,
        "Found 5 matches for pattern '\\s+$' in files matching '*.txt':\n\n\
         t.txt:1: a\nt.txt:3: d\nt.txt:4: e\nt.txt:6: \nt.txt:7: g\n",
    )];
    check(&tree, "search_content", &rows);
}
