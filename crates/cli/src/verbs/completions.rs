//! `quack completions`: a script for a shell that completes verbs and options.

use crate::args::Cli;
use crate::args::program::{CompletionsArgs, Shell};
use crate::exit::Exit;
use crate::output::Output;
use clap::{Command, CommandFactory};
use clap_complete::Shell as Generator;
use serde_json::json;

/// Runs the verb.
pub(crate) fn run(args: &CompletionsArgs, output: Output) -> anyhow::Result<Exit> {
    let script = script(args.shell)?;
    if output.is_json() {
        output.document(&json!({"script": script}))?;
    } else {
        output.answer(&script)?;
    }
    Ok(Exit::Ok)
}

fn script(shell: Shell) -> anyhow::Result<String> {
    let generator = match shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
        Shell::Elvish => Generator::Elvish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut visible(&Cli::command()), "quack", &mut script);
    Ok(String::from_utf8(script)?)
}

/// The command with what help shows: the generators would offer hidden verbs and options too, and clap
/// lets nobody take them out.
fn visible(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(visible);
    let mut visible = Command::new(command.get_name().to_owned())
        .disable_help_subcommand(true)
        .args(arguments)
        .subcommands(verbs);
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        visible = visible.version(version.to_owned());
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(command: &Command) -> Vec<&str> {
        command.get_subcommands().map(Command::get_name).collect()
    }

    #[test]
    fn what_is_hidden_is_not_offered_and_everything_else_is() {
        let all = Cli::command();
        let (hidden, shown): (Vec<&Command>, _) =
            all.get_subcommands().partition(|verb| verb.is_hide_set());
        assert!(!hidden.is_empty());
        let visible = visible(&all);
        visible.clone().debug_assert();
        assert_eq!(names(&visible), shown.iter().map(|verb| verb.get_name()).collect::<Vec<_>>());
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish] {
            let script = script(shell).unwrap();
            for word in names(&visible).into_iter().chain(["origin", "timeout"]) {
                assert!(script.contains(word), "{shell:?}: {word}");
            }
            // An option of `daemon` that only verbs give.
            assert!(!script.contains("background"), "{shell:?}");
        }
    }
}
