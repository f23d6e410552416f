//! grep_search: matching lines as `path:line:text`.

use super::{Bench, Put, check, check_rows};

const NONE: &str = "No matches found";

const TREE: [Put; 18] = [
    Put::File("a.txt", b"one\ntwo\nneedle 1\n"),
    Put::File("a-b/x", b"needle dash\n"),
    Put::File("a/x", b"needle slash\n"),
    Put::File("src/b.rs", b"fn needle() {}\n\tlet x = 1;\nfoo(bar)\n"),
    Put::File("src/c.ts", b"needle // ts\r\nlast line"),
    Put::File("src/deep/d.tsx", b"--needle\nneedle needle\n"),
    Put::File(".hidden", b"needle hidden\n"),
    Put::File(".gitignore", b"src\n"),
    Put::File(".git/config", b"needle\n"),
    Put::File(".build/x", b"needle\n"),
    Put::File("src/node_modules/x.ts", b"needle\n"),
    Put::File("binary", b"needle\0\n"),
    Put::File("latin1", b"caf\xe9\n"),
    Put::File("empty", b""),
    Put::Link("link", "a.txt"),
    Put::Link("link-dir", "src"),
    Put::Link("dangling", "none"),
    Put::Fifo("fifo"),
];

const EVERYWHERE: &str = "\
.hidden:1:needle hidden
a-b/x:1:needle dash
a.txt:3:needle 1
a/x:1:needle slash
src/b.rs:1:fn needle() {}
src/c.ts:1:needle // ts\r
src/deep/d.tsx:1:--needle
src/deep/d.tsx:2:needle needle
";

#[test]
fn grep_search_reads_its_parameters() {
    let missing = "Error: Missing required parameter 'pattern'";
    let rows = [
        (r#"{"pattern":"two"}"#, "a.txt:2:two\n"),
        (r#"{"query":"two"}"#, "a.txt:2:two\n"),
        (r#"{"regex":"two"}"#, "a.txt:2:two\n"),
        (r#"{"pattern":1,"query":" ","regex":"two"}"#, "a.txt:2:two\n"),
        ("\"two\"", "a.txt:2:two\n"),
        ("{}", missing),
        (r#"{"pattern":"","path":"src"}"#, missing),
        // A missing path is reported before the check that it is inside the workspace.
        (r#"{"path":".."}"#, missing),
        (r#"{"pattern":"two","path":".."}"#, "Error: Path escapes workspace root"),
        // The path, by every alias. A blank path or a value that is not a string counts as absent.
        (r#"{"pattern":"one","path":"a.txt"}"#, "a.txt:1:one\n"),
        (r#"{"pattern":"one","directory":"a.txt"}"#, "a.txt:1:one\n"),
        (r#"{"pattern":"one","dir":"a.txt"}"#, "a.txt:1:one\n"),
        (r#"{"pattern":"one","path":5,"dir":"src"}"#, NONE),
        (r#"{"pattern":"two","path":" "}"#, "a.txt:2:two\n"),
        // White space in a pattern counts.
        (r#"{"pattern":" 1"}"#, "a.txt:3:needle 1\nsrc/b.rs:2:\tlet x = 1;\n"),
        (r#"{"pattern":"\tlet"}"#, "src/b.rs:2:\tlet x = 1;\n"),
        // The include: any string, and an empty one matches no file. A value that is not a string
        // counts as absent.
        (r#"{"pattern":"needle","include":"*.ts"}"#, "src/c.ts:1:needle // ts\r\n"),
        (
            r#"{"pattern":"needle","include":"*.{txt,ts}"}"#,
            "a.txt:3:needle 1\nsrc/c.ts:1:needle // ts\r\n",
        ),
        (
            r#"{"pattern":"needle","include":"[ac].t*"}"#,
            "a.txt:3:needle 1\nsrc/c.ts:1:needle // ts\r\n",
        ),
        (r#"{"pattern":"needle","include":"src/*.ts"}"#, "src/c.ts:1:needle // ts\r\n"),
        (r#"{"pattern":"needle","path":"src","include":"*.ts"}"#, "src/c.ts:1:needle // ts\r\n"),
        (r#"{"pattern":"needle","include":"*.TS"}"#, NONE),
        (r#"{"pattern":"needle","include":""}"#, NONE),
        (r#"{"pattern":"two","include":5}"#, "a.txt:2:two\n"),
        (r#"{"pattern":"two","include":null}"#, "a.txt:2:two\n"),
        // An include does not find excluded files.
        (r#"{"pattern":"needle","include":"config"}"#, NONE),
    ];
    check(&TREE, "grep_search", &rows);
}

#[test]
fn grep_search_looks_at_every_text_file_but_in_the_three_directories() {
    let rows = [
        // Relative paths in byte order, with hidden and ignored files. A carriage return is part of
        // its line. The last line always ends with a newline.
        (r#"{"pattern":"needle"}"#, EVERYWHERE),
        (r#"{"pattern":"needle","path":"."}"#, EVERYWHERE),
        (r#"{"pattern":"needle","path":"{ws}"}"#, EVERYWHERE),
        (r#"{"pattern":"last"}"#, "src/c.ts:2:last line\n"),
        // The name is printed even for a single file; the Node daemon omits it.
        (r#"{"pattern":"needle","path":"src/c.ts"}"#, "src/c.ts:1:needle // ts\r\n"),
        (r#"{"pattern":"needle","path":"{ws}/a.txt"}"#, "a.txt:3:needle 1\n"),
        // Links are not followed, except a named link.
        (r#"{"pattern":"needle","path":"link"}"#, "a.txt:3:needle 1\n"),
        (
            r#"{"pattern":"needle","path":"link-dir/deep"}"#,
            "src/deep/d.tsx:1:--needle\nsrc/deep/d.tsx:2:needle needle\n",
        ),
        // A named directory is searched, even one of the three excluded ones. The Node daemon
        // always searches two of them.
        (r#"{"pattern":"needle","path":".git"}"#, ".git/config:1:needle\n"),
        (r#"{"pattern":"needle","path":".build"}"#, ".build/x:1:needle\n"),
        (r#"{"pattern":"needle","path":"src/node_modules"}"#, "src/node_modules/x.ts:1:needle\n"),
        (r#"{"pattern":"needle","path":".git/config"}"#, ".git/config:1:needle\n"),
        // A binary file and an empty file.
        (r#"{"pattern":"needle","path":"binary"}"#, NONE),
        (r#"{"pattern":"caf"}"#, "latin1:1:caf\u{fffd}\n"),
        (r#"{"pattern":"x","path":"empty"}"#, NONE),
        (r#"{"pattern":"secret"}"#, NONE),
        // Missing files.
        (
            r#"{"pattern":"x","path":"no/such"}"#,
            "Error: grep failed with exit code 2: grep: no/such: No such file or directory",
        ),
        (
            r#"{"pattern":"x","path":"dangling"}"#,
            "Error: grep failed with exit code 2: grep: dangling: No such file or directory",
        ),
        (
            r#"{"pattern":"x","path":"fifo"}"#,
            "Error: grep failed with exit code 2: grep: fifo: not a regular file (fifo)",
        ),
    ];
    check(&TREE, "grep_search", &rows);
}

/// The syntax of Rust's regular expressions, which models use. The Node daemon treats a pattern as
/// a basic regular expression, and as an option if it begins with a dash.
#[test]
fn grep_search_reads_patterns_as_models_write_them() {
    let note = "[Note: read as a basic regular expression, because the pattern matches nothing in Rust syntax]";
    let basic = format!("a.txt:1:one\na.txt:2:two\n{note}");
    let group = format!("src/b.rs:1:fn needle() {{}}\n{note}");
    let rows = [
        (r#"{"pattern":"NEEDLE"}"#, NONE),
        (r#"{"pattern":"(?i)TWO"}"#, "a.txt:2:two\n"),
        (r#"{"pattern":"one|two"}"#, "a.txt:1:one\na.txt:2:two\n"),
        (r#"{"pattern":"^t\\w+$"}"#, "a.txt:2:two\n"),
        (r#"{"pattern":"\\bfoo\\b"}"#, "src/b.rs:3:foo(bar)\n"),
        (r#"{"pattern":"fo+\\(ba?r\\)"}"#, "src/b.rs:3:foo(bar)\n"),
        (r#"{"pattern":"o{2}"}"#, "src/b.rs:3:foo(bar)\n"),
        (r#"{"pattern":"line$"}"#, "src/c.ts:2:last line\n"),
        (r#"{"pattern":"ts\r$"}"#, "src/c.ts:1:needle // ts\r\n"),
        (r#"{"pattern":"--needle"}"#, "src/deep/d.tsx:1:--needle\n"),
        (r#"{"pattern":"-V"}"#, NONE),
        (r#"{"pattern":"--version"}"#, NONE),
        // Lines of a pattern are alternatives, as for grep.
        (r#"{"pattern":"one\ntwo"}"#, "a.txt:1:one\na.txt:2:two\n"),
        // If a pattern finds nothing and contains idioms of basic syntax, it is tried as a basic
        // expression. The answer states this.
        (r#"{"pattern":"one\\|two"}"#, &basic),
        (r#"{"pattern":"fn \\(needle\\)("}"#, &group),
        (r#"{"pattern":"none\\|nothing"}"#, NONE),
        // Invalid patterns.
        (r#"{"pattern":"foo("}"#, "Error: grep failed with exit code 2: unclosed group"),
        (r#"{"pattern":"[a"}"#, "Error: grep failed with exit code 2: unclosed character class"),
        (
            r#"{"pattern":"*"}"#,
            "Error: grep failed with exit code 2: repetition operator missing expression",
        ),
        (
            r#"{"pattern":"(?=a)"}"#,
            "Error: grep failed with exit code 2: look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            r#"{"pattern":"(a)\\1"}"#,
            "Error: grep failed with exit code 2: backreferences are not supported",
        ),
        (
            r#"{"pattern":"x","include":"["}"#,
            "Error: grep failed with exit code 2: invalid include pattern '[': unclosed character class; missing ']'",
        ),
    ];
    check(&TREE, "grep_search", &rows);
}

#[test]
fn a_long_result_is_cut_at_a_row_and_says_so() {
    let setup = [Put::Sized("a", 1023), Put::Sized("long", 200_000)];
    let cut = format!("long:1:{}\n[Output truncated at 100KB]", "x".repeat(102_400 - 7));
    check(&setup, "grep_search", &[(r#"{"pattern":"x","path":"long"}"#, &cut)]);

    let bench = Bench::new();
    let place = bench.place(&[]);
    let row = "y".repeat(1024 - "f:100:\n".len());
    let text = format!("{row}\n").repeat(999);
    std::fs::write(place.base.join("ws/f"), text).unwrap();
    let found = bench.voice(&place, "grep_search", "\"y\"", false);
    let rows = found.strip_suffix("\n[Output truncated at 100KB]").unwrap();
    // Lines 1 to 9 are two bytes shorter than the others, and 10 to 99 one.
    assert_eq!((rows.lines().count(), rows.len() + 1), (100, 102_400 - 9 - 99));
    assert!((1..).zip(rows.lines()).all(|(n, line)| line == format!("f:{n}:{row}")));
}

/// The Node daemon discards all matches if one file is unreadable.
#[test]
fn an_unreadable_file_does_not_void_the_result() {
    let setup = [
        Put::File("a", b"needle\n"),
        Put::File("closed", b"needle\n"),
        Put::Mode("closed", 0o000),
        Put::File("dir/f", b"needle\n"),
        Put::Mode("dir", 0o000),
    ];
    let rows = [
        (
            "grep_search",
            r#"{"pattern":"needle"}"#,
            "a:1:needle\n[Warning: Skipped 2 unreadable path(s)]",
        ),
        (
            "grep_search",
            r#"{"pattern":"none"}"#,
            "No matches found\n[Warning: Skipped 2 unreadable path(s)]",
        ),
        ("grep_search", r#"{"pattern":"needle","path":"a"}"#, "a:1:needle\n"),
    ];
    check_rows(&Bench::without_privilege(), &setup, &rows, false);
}
