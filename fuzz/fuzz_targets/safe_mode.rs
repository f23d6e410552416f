//! Command lines of safe mode. Words survive quoting, and an allowed program is a plain name from the list.

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

/// Returns true if `more` contains all of `words` in order.
fn is_within(words: &[String], more: &[String]) -> bool {
    let mut more = more.iter();
    words.iter().all(|word| more.any(|other| other == word))
}

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
        // An empty word must be quoted.
        |word| match word {
            "" => "''".to_owned(),
            word => word.chars().flat_map(|c| ['\\', c]).collect(),
        },
    ];
    for line in quotes.map(quoted) {
        assert_eq!(words(&line).as_ref(), Some(&found), "{line:?}");
    }
    let has_pipe = found.iter().any(|word| word == "|");
    match allowed(line) {
        // A shell runs the pipeline and gets every word quoted.
        Ok((program, arguments)) if has_pipe && program == "sh" => {
            assert!(matches!(&*arguments, [option, _] if option == "-c"), "{arguments:?}");
        }
        Ok((program, arguments)) => {
            assert!(PROGRAMS.contains(&program.as_str()), "{program:?}");
            let said = [&[program], &*arguments].concat();
            if found.first().is_some_and(|word| word == "git") {
                // The added options prevent git from running programs. No word is removed or moved.
                assert!(is_within(&found, &said), "{found:?} {said:?}");
            } else {
                assert_eq!(said, found);
            }
        }
        // A pipe without a command on one side.
        Err(told) if has_pipe && told == "Invalid command syntax in safe mode" => {}
        Err(told) => assert_eq!(told, "Command not allowed in safe mode"),
    }
});
