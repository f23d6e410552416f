//! Command lines of safe mode: words survive being quoted, and what is allowed is a plain name on the list.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_tools::fuzzing::{allowed, words};

const PROGRAMS: &[&str] = &[
    "git",
    "grep",
    "rg",
    "find",
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "swift",
    "xcodebuild",
    "npm",
    "pytest",
];

fuzz_target!(|line: &str| {
    let Some(found) = words(line) else {
        assert_eq!(allowed(line), Err("Invalid command syntax in safe mode".to_owned()));
        return;
    };
    assert!(!found.is_empty());
    let quoted = |quote: fn(&str) -> String| -> String {
        found.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" \t")
    };
    let quotes: [fn(&str) -> String; 3] = [
        |word| format!("'{}'", word.replace('\'', "'\\''")),
        |word| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
        // An empty word has to be quoted.
        |word| match word {
            "" => "''".to_owned(),
            word => word.chars().flat_map(|c| ['\\', c]).collect(),
        },
    ];
    for line in quotes.map(quoted) {
        assert_eq!(words(&line).as_ref(), Some(&found), "{line:?}");
    }
    match allowed(line) {
        Ok((program, arguments)) => {
            assert!(PROGRAMS.contains(&program.as_str()), "{program:?}");
            assert_eq!([&[program], &*arguments].concat(), found);
        }
        Err(told) => assert_eq!(told, "Command not allowed in safe mode"),
    }
});
