//! Source files: headers, sizes, parameters, and forbidden words.

use crate::Tree;

/// Maximum size of a file in lines, and of a file in a crate's `src` without its unit tests.
const MAX_LINES: usize = 800;
const MAX_SOURCE_LINES: usize = 500;

/// Crates that may use raw pointers.
const UNSAFE_ROOMS: &[&str] = &["crates/process/", "crates/sandbox/"];

/// Least limit of a time, in seconds, that an assertion may set.
const MIN_LIMIT: u64 = 20;

/// Parameters with a tuple pattern in product code.
const MAX_TUPLES: usize = 0;

/// Returns true if a line asserts that something took less than a few seconds, which a busy machine disproves. A
/// limit with a name is a hang detector, and a lower limit is no limit.
fn asserts_speed(code: &str) -> bool {
    let Some((_, assertion)) = code.split_once("assert!(") else { return false };
    let Some((left, right)) = assertion.split_once(" < ") else { return false };
    let is_time = ["elapsed()", "took", "duration", "median", "fastest", "slowest", "longest"]
        .iter()
        .any(|word| left.ends_with(word));
    let digits = |text: &str| -> Option<u64> {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let seconds = match right.split_once("from_secs(") {
        Some((_, seconds)) => digits(seconds),
        None if right.contains("from_millis(") => Some(0),
        None if right.contains("SECOND") => Some(digits(right).unwrap_or(1)),
        None => None,
    };
    is_time && seconds.is_some_and(|seconds| seconds < MIN_LIMIT)
}

/// A line without its quoted strings, and its comment. Does not handle strings over several lines,
/// which is sufficient for these words.
pub(crate) fn code_and_comment(line: &str) -> (String, &str) {
    let (mut code, mut in_string) = (String::new(), false);
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        match c {
            '\\' if in_string => drop(chars.next()),
            '\'' if !in_string && next == Some('"') => drop(chars.next()),
            '"' => in_string = !in_string,
            '/' if !in_string && next == Some('/') => {
                return (code, line.get(at..).unwrap_or_default());
            }
            _ if in_string => {}
            c => code.push(c),
        }
    }
    (code, "")
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// Rules for each source file by itself.
fn source_complaints(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |what: String| complaints.push(format!("{path}: {what}"));
    if !text.starts_with("//!") {
        complain("does not begin with `//!`".to_owned());
    }
    let n_lines = text.lines().count();
    let n_source = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
    let is_source = path.contains("src/") && !path.ends_with("/tests.rs");
    if MAX_LINES < n_lines {
        complain(format!("has {n_lines} lines, more than {MAX_LINES}"));
    } else if is_source && MAX_SOURCE_LINES < n_source {
        complain(format!("has {n_source} lines before its tests, more than {MAX_SOURCE_LINES}"));
    }
    let may_be_unsafe = UNSAFE_ROOMS.iter().any(|room| path.starts_with(room));
    for (number, line) in (1..).zip(text.lines()) {
        let (code, comment) = code_and_comment(line);
        if !may_be_unsafe && has_word(&code, "unsafe") {
            complain(format!("line {number}: unsafe code outside {UNSAFE_ROOMS:?}"));
        }
        let is_unfinished = ["todo!", "unimplemented!"].iter().any(|mark| code.contains(mark))
            || ["TODO", "FIXME", "XXX"].iter().any(|mark| has_word(comment, mark));
        if is_unfinished {
            complain(format!("line {number}: unfinished; an issue is the place for that"));
        }
        if asserts_speed(&code) {
            complain(format!(
                "line {number}: a busy machine fails it; assert a fact, or benchmark"
            ));
        }
        if is_black_box(path) && code.contains("sleep(") {
            complain(format!("line {number}: sleeps; wait for a fact with `wait_for`"));
        }
    }
    complaints
}

/// Returns the number of parameters with a tuple pattern of a function. `signature` is the text after the keyword.
fn n_tuples_of(signature: &str) -> usize {
    let head = signature.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    if !head.starts_with(['(', '<']) {
        return 0;
    }
    let (mut depth, mut n, mut last) = (0, 0, ' ');
    for c in head.chars().filter(|c| !c.is_whitespace() && *c != '&') {
        match c {
            '(' | '[' | '{' | '<' => {
                n += usize::from(depth == 1 && c == '(' && matches!(last, '(' | ','));
                depth += 1;
            }
            '>' if last == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 && c == ')' {
            break;
        }
        last = c;
    }
    n
}

/// Returns the number of parameters with a tuple pattern in a file, without those of its tests and of closures.
fn n_tuples(text: &str) -> usize {
    crate::modules::code(text).split("fn ").skip(1).map(n_tuples_of).sum()
}

/// A number of parameters with a tuple pattern that is not `max`. A pair hides two parameters from clippy's limit.
fn tuple_complaints(tree: &Tree, max: usize) -> Option<String> {
    let is_product =
        |path: &str| path.ends_with(".rs") && path.contains("/src/") && !path.contains("/tests");
    let files: Vec<(&str, usize)> = tree
        .iter()
        .filter(|(path, _)| is_product(path))
        .map(|(path, text)| (path.as_str(), n_tuples(text)))
        .filter(|(_, n)| *n != 0)
        .collect();
    let n: usize = files.iter().map(|(_, n)| n).sum();
    (n != max).then(|| {
        format!(
            "{n} parameters with a tuple pattern, not {max}; split them or use a struct: {files:?}"
        )
    })
}

/// The tests that drive the real program.
pub(crate) fn is_black_box(path: &str) -> bool {
    path.starts_with("tests/black_box/") || path.starts_with("tests/escapes/")
}

/// A file of the black-box tests without a `mod` line is a test that never runs.
fn forgotten_files(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for path in tree.keys().filter(|path| path.ends_with(".rs")) {
        let Some(name) = path.strip_prefix("tests/black_box/") else { continue };
        let (parent, module) = match name.trim_end_matches(".rs").rsplit_once('/') {
            None => ("main.rs".to_owned(), name.trim_end_matches(".rs")),
            Some((module, "mod")) => match module.rsplit_once('/') {
                None => ("main.rs".to_owned(), module),
                Some((above, module)) => (format!("{above}/mod.rs"), module),
            },
            Some((directory, module)) => (format!("{directory}/mod.rs"), module),
        };
        let line = format!("mod {module};");
        let parent_text = tree.get(&format!("tests/black_box/{parent}"));
        let is_named = parent_text
            .is_some_and(|text| text.lines().any(|l| l.trim_start_matches("pub(crate) ") == line));
        if !is_named && name != "main.rs" {
            complaints.push(format!("{path} is not a module of {parent}"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, read_tree, tree_of};

    #[test]
    fn source_files_are_in_order() {
        let lines = |n: usize| format!("//! Head.\n{}", "a\n".repeat(n - 1));
        let with_tests = format!("{}#[cfg(test)]\n{}", lines(500), "b\n".repeat(299));
        for (path, text, n_complaints) in [
            ("crates/a/src/lib.rs", "//! Head.\nlet unsafe_code = \"unsafe\"; // unsafe\n", 0),
            ("crates/a/src/lib.rs", "use std::io;\n", 1),
            ("crates/a/src/lib.rs", "//! Head.\nlet a = unsafe { b() };\n", 1),
            ("crates/process/src/lib.rs", "//! Head.\nlet a = unsafe { b() };\n", 0),
            ("crates/a/src/lib.rs", "//! Head.\n    todo!();\n// TODO: more\n//! XXX\n", 3),
            ("crates/a/src/lib.rs", "//! Head.\nlet url = \"http://TODO\"; // mktemp XXXXXX\n", 0),
            ("crates/a/src/lib.rs", "//! Head.\nlet q = '\"'; unimplemented!()\n", 1),
            ("crates/a/src/lib.rs", &lines(501), 1),
            ("crates/a/src/a/tests.rs", &lines(501), 0),
            ("crates/a/src/lib.rs", &with_tests, 0),
            ("tests/black_box/a.rs", &lines(801), 1),
            ("tests/black_box/a.rs", "//! Head.\nthread::sleep(SECOND); // \"sleep(\"\n", 1),
            ("tests/black_box/a.rs", "//! Head.\nbash(\"sleep(1)\");\n", 0),
            ("tests/a.rs", "//! Head.\nassert!(begun.elapsed() < Duration::from_secs(2));\n", 1),
            ("tests/a.rs", "//! Head.\nassert!(a <= took && took < 5 * SECOND);\n", 1),
            ("tests/a.rs", "//! Head.\nassert!(median < Duration::from_millis(99));\n", 1),
            ("tests/a.rs", "//! Head.\nassert!(begun.elapsed() < Duration::from_secs(60));\n", 0),
            ("tests/a.rs", "//! Head.\nassert!(SECOND < took); assert!(took < PATIENCE);\n", 0),
        ] {
            let found = source_complaints(path, text);
            assert_eq!(found.len(), n_complaints, "{path}: {text:.60}: {found:?}");
        }
        let tree = read_tree().unwrap();
        let sources = tree.iter().filter(|(path, _)| path.ends_with(".rs"));
        let found: Vec<String> = sources.flat_map(|(p, t)| source_complaints(p, t)).collect();
        assert_eq!(found, NOTHING);
    }

    #[test]
    fn parameters_are_not_hidden_in_tuples() {
        let tree = tree_of(&[
            ("crates/a/src/a.rs", "fn f(\n    a: (A, B),\n    (b, c): (B, C), // (d, e)\n) {}\n"),
            ("crates/a/src/b.rs", "fn f<T: Fn(A) -> B>(&(a, b): &(A, B), c: C) {}\n"),
            (
                "crates/a/src/c.rs",
                "// fn f((a, b): (A, B)) {}\nfn f(a: A) { |(a, b): (A, B)| a }\n",
            ),
            ("crates/a/src/d.rs", "fn f() {}\n#[cfg(test)]\nfn g((a, b): (A, B)) {}\n"),
            ("workers/a/src/a/tests.rs", "fn f((a, b): (A, B)) {}\n"),
            ("crates/a/src/e.rs", "#[cfg(test)]\nmod tests;\nfn f((a, b): (A, B)) {}\n"),
        ]);
        let expected = "3 parameters with a tuple pattern, not 1; split them or use a struct: \
            [(\"crates/a/src/a.rs\", 1), (\"crates/a/src/b.rs\", 1), (\"crates/a/src/e.rs\", 1)]";
        assert_eq!(tuple_complaints(&tree, 1).as_deref(), Some(expected));
        assert_eq!(tuple_complaints(&tree, 3), None);
        assert_eq!(tuple_complaints(&read_tree().unwrap(), MAX_TUPLES), None);
    }

    #[test]
    fn every_black_box_test_is_run() {
        let broken = tree_of(&[
            ("tests/black_box/main.rs", "mod harness;\nmod a;\n// mod b;\n"),
            ("tests/black_box/a.rs", ""),
            ("tests/black_box/b.rs", ""),
            ("tests/black_box/harness/mod.rs", "pub(crate) mod wire;\n"),
            ("tests/black_box/harness/wire.rs", ""),
            ("tests/black_box/harness/lost.rs", ""),
        ]);
        let expected = [
            "tests/black_box/b.rs is not a module of main.rs",
            "tests/black_box/harness/lost.rs is not a module of harness/mod.rs",
        ];
        assert_eq!(forgotten_files(&broken), expected);
        assert_eq!(forgotten_files(&read_tree().unwrap()), NOTHING);
    }
}
