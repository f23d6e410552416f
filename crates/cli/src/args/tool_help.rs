//! `quack tool NAME --help`: the arguments of one tool, from the table of the tools.

use clap::Command;
use quackd_protocol::tools::{self, Kind, Parameter, Tool};
use std::ffi::OsString;

/// Returns the help if a command line asks for that of a tool, as clap returns it.
pub(super) fn requested(line: &[OsString]) -> Option<clap::Error> {
    let words = line.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    let words: Vec<&str> = words.take_while(|word| *word != "--").collect();

    let at = words.iter().position(|word| !word.starts_with('-'))?;
    let (Some(&"tool"), Some(name)) = (words.get(at), words.get(at + 1)) else { return None };

    let is_asked = words.get(at + 2..)?.iter().any(|word| ["-h", "--help"].contains(word));
    let tool = tools::find(name).filter(|_| is_asked)?;
    let help = Command::new("quack").override_help(text(tool));
    help.try_get_matches_from(["quack", "--help"]).err()
}

fn text(tool: &Tool) -> String {
    let name = tool.name;
    let word = tool.main.map(|main| format!("\n       quack tool {name} {}", main.to_uppercase()));
    let mut text = format!(
        "{}\n\nUsage: quack tool {name} [OPTIONS] 'JSON'{}\n",
        tool.about,
        word.unwrap_or_default()
    );

    let listed: Vec<&Parameter> =
        tool.parameters.iter().filter(|parameter| !parameter.is_spelling).collect();
    if !listed.is_empty() {
        text.push_str("\nArguments:\n");
    }

    let width = listed.iter().map(|parameter| parameter.name.len()).max().unwrap_or_default();
    for parameter in &listed {
        let is_main = tool.main == Some(parameter.name);
        let facts = [
            Some(kind(parameter.kind)),
            parameter.default.map(|value| format!("default {value}")),
            parameter.is_required.then(|| "required".to_owned()),
            is_main.then(|| "a plain word is this one".to_owned()),
        ];

        let facts: Vec<String> = facts.into_iter().flatten().collect();
        let (name, about) = (parameter.name, parameter.about);
        text.push_str(&format!("  {name:width$}  {about} [{}]\n", facts.join("; ")));
        if !parameter.aliases.is_empty() {
            text.push_str(&format!("  {:width$}  also: {}\n", "", parameter.aliases.join(", ")));
        }
    }

    text.push_str(
        "\nCommands start in the current directory, and relative paths begin there, if it is in the workspace.\n",
    );
    text.push_str("`quack tool --help` has the options, docs/tools.md everything else.\n");
    text
}

/// Describes the values of a kind.
fn kind(kind: Kind) -> String {
    let words = |words: &[&str]| words.join(" | ");
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Texts => "text or list of texts".to_owned(),
        Kind::List => "list of texts".to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::FlagOrAuto => "true, false or \"auto\"".to_owned(),
        Kind::Whole(from, u64::MAX) => format!("number from {from}"),
        Kind::Whole(from, to) => format!("number from {from} to {to}"),
        Kind::TextOrWhole => "text or number".to_owned(),
        Kind::Choice(all) => words(all),
        Kind::Choices(all) => format!("{}, or a list of them", words(all)),
        Kind::ChoiceOrFlag(all, ..) => format!("{}, true or false", words(all)),
        Kind::Lines => "[first line, last line]".to_owned(),
        Kind::Counts(names) => format!("object with the numbers {}", names.join(", ")),
        Kind::Edits(names) => format!("list of objects with {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        let error = requested(&words)?;
        assert_eq!((error.exit_code(), error.use_stderr()), (0, false));
        Some(error.to_string())
    }

    #[test]
    fn the_help_of_every_tool_names_each_argument() {
        for tool in tools::all() {
            let text = help(&format!("quack tool {} --help", tool.name)).expect("help");
            for parameter in tool.parameters.iter().filter(|it| !it.is_spelling) {
                assert!(
                    text.contains(&format!("  {}  ", parameter.name))
                        || text.contains(parameter.name),
                    "{text}"
                );
            }
        }
        assert!(help("quack --json tool bash ls -h").expect("help").contains("command"));
        for line in [
            "quack tool --help",
            "quack tool bash",
            "quack tool bash -- --help",
            "quack tool nothing -h",
            "quack grep tool bash --help",
        ] {
            assert_eq!(help(line), None, "{line}");
        }
    }
}
