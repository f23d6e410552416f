//! Safe mode of a call: read-only tools and commands are allowed. A command is split into words and
//! does not run in a shell.

use super::{Bench, Put, check_rows};
use serde_json::json;

const SETUP: [Put; 5] = [
    Put::File("f", b"one\ntwo\n"),
    Put::File("a b", b"space\n"),
    Put::File("it's", b"quote\n"),
    Put::File("back\\slash", b"backslash\n"),
    Put::File("d/g", b"deep\n"),
];

const NOT_ALLOWED: &str = "Error: Command not allowed in safe mode";
const SYNTAX: &str = "Error: Invalid command syntax in safe mode";

/// Calls bash with command lines.
#[track_caller]
fn check_bash(rows: &[(&str, &str)]) {
    let calls: Vec<String> =
        rows.iter().map(|(line, _)| json!({"command": line}).to_string()).collect();
    let rows = calls.iter().zip(rows).map(|(call, (_, text))| ("bash", call.as_str(), *text));
    check_rows(&Bench::new(), &SETUP, &rows.collect::<Vec<_>>(), true);
}

#[test]
fn tools_that_write_are_refused_first_and_others_are_not() {
    let write = "Error: write_file is disabled in safe mode";
    let edit = "Error: edit_file is disabled in safe mode";
    let rows = [
        ("write_file", r#"{"path":"f","content":"x"}"#, write),
        ("write_file", "{}", write),
        ("write_file", r#"{"path":"../f"}"#, write),
        ("edit_file", r#"{"path":"f","old_text":"one","new_text":"1"}"#, edit),
        ("edit_file", "{}", edit),
        // The checks before any tool keep their order.
        ("write_file", "[]", "Error: Tool arguments must be a JSON object"),
        ("nonsense", "{}", "Error: Unknown tool 'nonsense'"),
        ("bash", "{}", "Error: Missing required parameter 'command'"),
        // web_search behaves as usual: see tests/black_box/web_search.rs.
        ("read_file", "\"f\"", "one\ntwo\n"),
        ("grep_search", "\"two\"", "f:2:two\n"),
        ("find_files", "\"g\"", "d/g"),
        ("web_search", "{}", "Error: Missing required parameter 'query'"),
    ];
    check_rows(&Bench::new(), &SETUP, &rows, true);
}

#[test]
fn a_line_is_split_into_words_and_run_without_a_shell() {
    check_bash(&[
        // Spaces and tabs separate.
        ("cat f", "one\ntwo\n\n[Exit code: 0]"),
        (" \tcat\t  f ", "one\ntwo\n\n[Exit code: 0]"),
        // Both quotes quote, also in the middle of a word, and an empty pair is a word.
        ("cat 'a b'", "space\n\n[Exit code: 0]"),
        ("cat \"a b\"", "space\n\n[Exit code: 0]"),
        ("cat a' 'b", "space\n\n[Exit code: 0]"),
        ("'cat' \"f\"", "one\ntwo\n\n[Exit code: 0]"),
        ("cat \"it's\"", "quote\n\n[Exit code: 0]"),
        ("grep -c '' f", "2\n\n[Exit code: 0]"),
        // A backslash quotes the next character, except between single quotes.
        ("cat a\\ b", "space\n\n[Exit code: 0]"),
        ("cat it\\'s", "quote\n\n[Exit code: 0]"),
        ("cat \"back\\\\slash\"", "backslash\n\n[Exit code: 0]"),
        ("cat 'back\\slash'", "backslash\n\n[Exit code: 0]"),
        ("\\cat f", "one\ntwo\n\n[Exit code: 0]"),
        ("\"c\"a't' f", "one\ntwo\n\n[Exit code: 0]"),
        ("cat \"a\\ b\"", "space\n\n[Exit code: 0]"),
        ("cat \"\\\"\"", "cat: '\"': No such file or directory\n\n[Exit code: 1]"),
        ("cat ''", "cat: '': No such file or directory\n\n[Exit code: 1]"),
        // A newline is an ordinary character.
        ("cat\nf", NOT_ALLOWED),
        ("cat 'f\n'", "cat: 'f'$'\\n': No such file or directory\n\n[Exit code: 1]"),
        // Incomplete syntax.
        ("cat 'f", SYNTAX),
        ("cat \"f", SYNTAX),
        ("cat \"f'", SYNTAX),
        ("cat f\\", SYNTAX),
        ("rm 'f", SYNTAX),
        ("''", NOT_ALLOWED),
        // Shell syntax has no meaning here.
        (
            "cat f && id",
            "one\ntwo\n\ncat: '&&': No such file or directory\ncat: id: No such file or directory\n\n[Exit code: 1]",
        ),
        ("cat '|'", "cat: '|': No such file or directory\n\n[Exit code: 1]"),
        // A pipe between listed commands; each command is checked.
        ("cat f | grep two", "two\n\n[Exit code: 0]"),
        ("cat f 'a b' | grep -v \"$HOME\" | wc -l", "3\n\n[Exit code: 0]"),
        ("cat f | id", NOT_ALLOWED),
        ("cat f |", SYNTAX),
        (
            "cat f > new",
            "one\ntwo\n\ncat: '>': No such file or directory\ncat: new: No such file or directory\n\n[Exit code: 1]",
        ),
        ("cat $(id)", "cat: '$(id)': No such file or directory\n\n[Exit code: 1]"),
        ("cat `id`", "cat: '`id`': No such file or directory\n\n[Exit code: 1]"),
        (
            "cat $HOME *",
            "cat: '$HOME': No such file or directory\ncat: '*': No such file or directory\n\n[Exit code: 1]",
        ),
        ("cat ~", "cat: '~': No such file or directory\n\n[Exit code: 1]"),
        ("cat # f", "one\ntwo\n\ncat: '#': No such file or directory\n\n[Exit code: 1]"),
        ("ls;", NOT_ALLOWED),
        ("ls;id", NOT_ALLOWED),
    ]);
}

#[test]
fn only_what_the_list_names_is_run() {
    check_bash(&[
        ("grep -n two f", "2:two\n\n[Exit code: 0]"),
        ("find . -name g", "./d/g\n\n[Exit code: 0]"),
        ("ls d", "g\n\n[Exit code: 0]"),
        ("head -n 1 f", "one\n\n[Exit code: 0]"),
        ("tail -n 1 f", "two\n\n[Exit code: 0]"),
        ("wc -l f", "2 f\n\n[Exit code: 0]"),
        ("cat none", "cat: none: No such file or directory\n\n[Exit code: 1]"),
        // The first word must match completely, and a path is a different word.
        ("rm f", NOT_ALLOWED),
        ("/bin/cat f", NOT_ALLOWED),
        ("./cat f", NOT_ALLOWED),
        ("CAT f", NOT_ALLOWED),
        ("catf", NOT_ALLOWED),
        ("'cat f'", NOT_ALLOWED),
        ("env cat f", NOT_ALLOWED),
        ("sh -c ls", NOT_ALLOWED),
        ("bash -c ls", NOT_ALLOWED),
        ("sudo ls", NOT_ALLOWED),
        ("x=1 ls", NOT_ALLOWED),
        // Both words of a two-word entry are required.
        ("swift", NOT_ALLOWED),
        ("swift build", NOT_ALLOWED),
        ("xcodebuild build", NOT_ALLOWED),
        ("npm", NOT_ALLOWED),
        ("npm install", NOT_ALLOWED),
        ("npm run test", NOT_ALLOWED),
        ("npm 'test x'", NOT_ALLOWED),
        // Listed programs with arguments that run other programs or write files.
        ("find . -delete", NOT_ALLOWED),
        ("find . -exec id ;", NOT_ALLOWED),
        ("find . -execdir id ;", NOT_ALLOWED),
        ("find . -ok id ;", NOT_ALLOWED),
        ("find . -fprint new", NOT_ALLOWED),
        ("git --exec-path=. x", NOT_ALLOWED),
        ("git fetch --upload-pack=id .", NOT_ALLOWED),
        ("git grep --open-files-in-pager=id x", NOT_ALLOWED),
        ("git grep --open-f=id x", NOT_ALLOWED),
        ("git grep -Oid x", NOT_ALLOWED),
        ("git grep -nOid x", NOT_ALLOWED),
        ("git diff --ext-diff", NOT_ALLOWED),
        ("git log -p --textconv", NOT_ALLOWED),
        ("git log --outp=new", NOT_ALLOWED),
        ("git push --receive-pack=id .", NOT_ALLOWED),
        ("git ls-remote --exec=id .", NOT_ALLOWED),
        ("git difftool", NOT_ALLOWED),
        ("git submodule foreach id", NOT_ALLOWED),
        ("git bisect run id", NOT_ALLOWED),
        ("rg --hostname-bin=id x", NOT_ALLOWED),
        ("npm\ntest", NOT_ALLOWED),
        ("swift 'te st'", NOT_ALLOWED),
        ("git -c alias.x=!id x", NOT_ALLOWED),
        ("git --config-env=alias.x=HOME x", NOT_ALLOWED),
        ("git log --output=new", NOT_ALLOWED),
        ("rg --pre id x", NOT_ALLOWED),
        ("rg --pre=id x", NOT_ALLOWED),
        // Listed programs that are missing.
        ("xcodebuild test", "Error: Failed to launch process: spawn xcodebuild ENOENT"),
    ]);
}

/// The programs may be missing and may print anything, but the list must not refuse them.
#[test]
fn everything_on_the_list_is_started() {
    let bench = Bench::new();
    let place = bench.place(&SETUP);
    for line in [
        "git --version",
        "rg --version",
        "swift test --help",
        "npm test --help",
        "pytest --version",
    ] {
        let call = json!({"command": line}).to_string();
        let text = bench.voice(&place, "bash", &call, true);
        let is_started = text.contains("\n[Exit code: ");
        let is_missing = text.starts_with("Error: Failed to launch process: spawn ");
        assert!((is_started || is_missing) && !text.contains("safe mode"), "{line}: {text}");
    }
    place.check_around();
}
