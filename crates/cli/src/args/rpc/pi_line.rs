//! Reads the options of `quack rpc` as Pi reads its own: short names of several letters, values that begin with a
//! hyphen, the last of several equal options, and options that it does not know. Programs that start `pi --mode rpc` pass
//! all of these.

use std::ffi::OsString;

/// Pi's options with a value that exist here, with their short names.
const VALUES: &[(&str, &str)] = &[
    ("--provider", ""),
    ("--model", ""),
    ("--api-key", ""),
    ("--system-prompt", ""),
    ("--append-system-prompt", ""),
    ("--mode", ""),
    ("--name", "-n"),
    ("--session", ""),
    ("--session-id", ""),
    ("--fork", ""),
    ("--models", ""),
    ("--tools", "-t"),
    ("--exclude-tools", "-xt"),
    ("--thinking", ""),
    ("--dir", "-C"),
    ("--engine", ""),
    ("--dialect", ""),
    ("--color", ""),
];

/// Pi's options without a value that exist here.
const FLAGS: &[(&str, &str)] = &[
    ("--help", "-h"),
    ("--version", "-v"),
    ("--continue", "-c"),
    ("--resume", "-r"),
    ("--no-session", ""),
    ("--no-tools", "-nt"),
    ("--no-builtin-tools", "-nbt"),
    ("--no-mcp", ""),
    ("--no-context-files", "-nc"),
    ("--json", ""),
];

/// Pi's options with a value that have no meaning here.
const IGNORED_VALUES: &[(&str, &str)] = &[
    ("--session-dir", ""),
    ("--export", ""),
    ("--extension", "-e"),
    ("--skill", ""),
    ("--prompt-template", ""),
    ("--theme", ""),
    ("--use-theme", ""),
    ("--tui-mode", ""),
];

/// Pi's options without a value that have no meaning here.
const IGNORED_FLAGS: &[(&str, &str)] = &[
    ("--print", "-p"),
    ("--no-extensions", "-ne"),
    ("--no-skills", "-ns"),
    ("--no-prompt-templates", "-np"),
    ("--no-themes", ""),
    ("--verbose", ""),
    ("--approve", "-a"),
    ("--no-approve", "-na"),
    ("--offline", ""),
];

/// Option that names an ignored word, for the note.
const IGNORED: &str = "--ignored=";

/// Longest name in the note, in characters.
const MAX_NAME: usize = 60;

/// Most words in the note.
const MAX_IGNORED: usize = 20;

/// Rewrites a command line of `quack rpc` for clap. Other command lines stay as they are.
pub(crate) fn rewritten(line: Vec<OsString>) -> Vec<OsString> {
    let is_rpc = |word: &OsString| word == "rpc";
    // Options of every subcommand may precede it.
    let verb = line.iter().skip(1).position(|word| !is_general(word));
    let Some(at) = verb.map(|at| at + 1).filter(|at| line.get(*at).is_some_and(is_rpc)) else {
        return line;
    };

    let (begin, words) = line.split_at(at + 1);
    let mut rest = words.iter().peekable();
    let (mut known, mut ignored) = (Vec::new(), Vec::new());

    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        let named = |table: &[(&'static str, &str)]| {
            let has_name = |(long, short): &&(&str, &str)| *long == text || *short == text;
            table.iter().find(has_name).map(|(long, _)| *long)
        };

        let next = rest.peek().map(|next| next.to_string_lossy().into_owned());
        // A value of an unknown option looks like a word.
        let has_word = next.is_some_and(|next| !next.starts_with(['-', '@']));

        if text == "--" {
            ignored.extend(rest.by_ref().map(|word| word.to_string_lossy().into_owned()));
        } else if let Some(name) = named(VALUES) {
            match rest.next() {
                Some(value) => {
                    let mut joined = OsString::from(name);
                    joined.push("=");
                    joined.push(value);
                    known.push(joined);
                }
                None => ignored.push(format!("{name} without a value")),
            }
        } else if let Some(name) = named(FLAGS) {
            known.push(name.into());
        } else if is_joined(&text) {
            known.push(word.clone());
        } else if let Some(name) = named(IGNORED_VALUES) {
            ignored.push(name.to_owned());
            rest.next();
        } else if named(IGNORED_FLAGS).is_some() || !text.starts_with("--") {
            ignored.push(text.into_owned());
        } else {
            // An option of an extension may have a value.
            let is_alone = text.contains('=') || !has_word;
            ignored.push(text.split('=').next().unwrap_or_default().to_owned());
            if !is_alone {
                rest.next();
            }
        }
    }

    // A long list would fill the screen.
    let more = ignored.len().saturating_sub(MAX_IGNORED);
    let mut ignored: Vec<String> = ignored.into_iter().take(MAX_IGNORED).collect();
    if more != 0 {
        ignored.push(format!("{more} more"));
    }

    let named = ignored.into_iter().map(|name| {
        let name: String = name.chars().take(MAX_NAME).collect();
        OsString::from(format!("{IGNORED}{name}"))
    });

    begin.iter().cloned().chain(known).chain(named).collect()
}

/// Whether a word before the subcommand is an option of every subcommand.
fn is_general(word: &OsString) -> bool {
    word.to_str().is_some_and(|word| word == "--json" || word.starts_with("--color="))
}

/// Whether the word is an option of this subcommand with its value.
fn is_joined(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    VALUES.iter().any(|(long, _)| *long == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::CommandFactory;

    fn words(line: &[&str]) -> Vec<String> {
        let line = ["quack", "rpc"].iter().chain(line).map(OsString::from).collect();
        rewritten(line).into_iter().skip(2).map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn every_option_of_pi_is_read_as_pi_reads_it() {
        for (line, expected) in [
            (&["--mode", "rpc", "--no-themes"][..], &["--mode=rpc", "--ignored=--no-themes"][..]),
            (
                &["-xt", "bash", "-nc", "-n", "-x"],
                &["--exclude-tools=bash", "--no-context-files", "--name=-x"],
            ),
            (
                &["--system-prompt", "--", "--model"],
                &["--system-prompt=--", "--ignored=--model without a value"],
            ),
            (
                &["-e", "./x.ts", "--plan", "deep", "--flag", "-c"],
                &["--continue", "--ignored=-e", "--ignored=--plan", "--ignored=--flag"],
            ),
            (
                &["--secret=k", "@file", "word", "--", "--model"],
                &["--ignored=--secret", "--ignored=@file", "--ignored=word", "--ignored=--model"],
            ),
            (&["--model=a/b", "-z"], &["--model=a/b", "--ignored=-z"]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|it| it.replace("=-e", "=--extension")).collect();
            assert_eq!(words(line), expected, "{line:?}");
        }
        let other = ["quack", "say", "-xt"].map(OsString::from).to_vec();
        assert_eq!(rewritten(other.clone()), other);
        let read = |words: &[&str]| Cli::read(["quack", "rpc"].iter().chain(words)).unwrap().verb;
        let Some(Verb::Rpc(args)) = read(&["--model", "a", "--model", "b", "--offline"]) else {
            panic!()
        };
        assert_eq!(
            (args.model.as_deref(), &*args.ignored),
            (Some("b"), &["--offline".to_owned()][..])
        );
        assert_eq!(words(&["--x"; 30]).len(), MAX_IGNORED + 1);
    }

    #[test]
    fn the_tables_have_every_option_of_the_subcommand() {
        let command = Cli::command();
        let rpc = command.find_subcommand("rpc").unwrap();
        let all = rpc.get_arguments().filter(|it| it.get_long() != Some("ignored"));
        for (name, takes) in all.map(|it| (it.get_long(), it.get_action().takes_values())) {
            let name = format!("--{}", name.unwrap());
            let table = if takes { VALUES } else { FLAGS };
            assert!(table.iter().any(|(long, _)| *long == name), "{name}");
        }
    }
}
