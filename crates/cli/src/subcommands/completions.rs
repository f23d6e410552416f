//! `quack completions`: prints a shell script that completes subcommands, options and values with [`crate::complete`].

use crate::args::program::{CompletionsArgs, Shell};
use crate::complete::VAR;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use anyhow::Context;
use clap_complete::env::Shells;
use serde_json::json;

/// zsh runs the whole file at the first TAB if it found the file in `fpath`. Without this line, the first TAB does
/// nothing.
const ZSH_FIRST_TAB: &str =
    "if [[ ${funcstack[1]} == _quack ]]; then _clap_dynamic_completer_quack \"$@\"; fi\n";

/// Runs the subcommand.
pub(crate) fn run(args: &CompletionsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let script = script(args.shell)?;
    if output.is_json() {
        output.document(&json!({"script": script}))?;
    } else {
        output.answer(&script)?;
    }
    Ok(ExitCode::Ok)
}

fn script(shell: Shell) -> anyhow::Result<String> {
    let (name, more) = match shell {
        Shell::Bash => ("bash", ""),
        Shell::Zsh => ("zsh", ZSH_FIRST_TAB),
        Shell::Fish => ("fish", ""),
        Shell::Elvish => ("elvish", ""),
    };

    let shells = Shells::builtins();
    let generator = shells.completer(name).context("no script for this shell")?;
    let mut script = Vec::new();
    generator.write_registration(VAR, "quack", "quack", "quack", &mut script)?;
    Ok(String::from_utf8(script)? + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_runs_this_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish] {
            let script = script(shell).unwrap();
            assert!(script.contains(VAR) && script.contains("quack"), "{shell:?}: {script}");
        }
    }
}
