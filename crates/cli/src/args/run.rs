//! Arguments of `quack run`.

use super::{REF, reference};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, ValueEnum};
use quackd_protocol::policy::NetworkMode;
use quackd_protocol::terminal::Recording;
use std::path::PathBuf;

/// Run an agent, an editor or a shell on a terminal in a session
///
/// Creates a session for the directory, or uses that of --in, and attaches to the program. The program runs in the
/// session's sandbox and continues after you detach with Ctrl-\, or close the window; quack attach shows it again. The
/// session is deleted when you see the program end, unless it has a name, is isolated or has other work.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack run\n  quack run -- claude\n  \
    quack run --resume claude              continue its last conversation here\n  \
    quack run --isolated --allow @anthropic --allow @registries -- claude\n  \
    quack run --name web --env OPENAI_API_KEY --allow @openai -- codex\n  \
    quack run --in web -- htop             another terminal of that session\n  \
    quack run -d --record -- make watch    without attaching\n  \
    quack run --on ssh:build1 -C /home/me/app -- make     on another machine\n\n\
    Exit codes: that of the program, or 128 + the number of the signal that ended it; 0 after you detach; 1 it did not start, or \
    its worker died; 2 usage, or no terminal; 3 the daemon exited. --json works with -d only. \
    The keys that detach are run.detach_keys of the configuration.")]
pub(crate) struct RunArgs {
    /// Program and its arguments, after -- [default: your shell]
    #[arg(value_name = "CMD", last = true)]
    pub(crate) command: Vec<String>,
    /// Continue the last conversation of this agent: claude, codex and others of quack agents
    #[arg(long, value_name = "AGENT", conflicts_with = "command")]
    pub(crate) resume: Option<String>,
    /// Name of the new session [default: a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Directory of the session, in which the program starts [default: the current one]
    #[arg(short = 'C', long = "dir", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Run it elsewhere through this engine (ssh, …), in DIR there; see quack engines
    #[arg(
        long,
        value_name = "ENGINE[:TARGET]",
        requires = "dir",
        conflicts_with_all = ["isolated", "import_login", "resume"]
    )]
    pub(crate) on: Option<String>,
    /// Work in a private copy of the repository; see quack diff and quack apply
    #[arg(long)]
    pub(crate) isolated: bool,
    /// Network of the session: off, hosts (those that rules name) or on
    #[arg(long, value_name = "MODE")]
    pub(crate) network: Option<NetworkMode>,
    /// Allow this host, such as example.com, *.example.com:443 or @github; repeatable. Sets the network to hosts
    #[arg(long = "allow", value_name = "RULE")]
    pub(crate) hosts: Vec<String>,
    /// Pass this variable, with the value that this shell has; repeatable
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable)]
    pub(crate) env: Vec<EnvWord>,
    /// Copy your own login of the agent into sessions of this workspace first, unless theirs is newer
    #[arg(long, conflicts_with = "isolated")]
    pub(crate) import_login: bool,
    /// Record the output, or with =input also what is typed, passwords included
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "output"
    )]
    pub(crate) record: Option<RecordChoice>,
    /// Add a terminal to this session, such as api or api/review, instead of creating one
    #[arg(
        long = "in",
        value_name = REF,
        value_parser = reference,
        allow_hyphen_values = true,
        conflicts_with_all = ["name", "dir", "on", "isolated", "network", "hosts", "import_login"]
    )]
    pub(crate) session: Option<String>,
    /// Keep the session after the program ends
    #[arg(long)]
    pub(crate) keep: bool,
    /// Do not attach
    #[arg(short, long)]
    pub(crate) detach: bool,
}

/// Values of `--record`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordChoice {
    /// The output
    Output,
    /// The output and the input
    Input,
}

impl From<RecordChoice> for Recording {
    fn from(choice: RecordChoice) -> Self {
        match choice {
            RecordChoice::Output => Self::Output,
            RecordChoice::Input => Self::Input,
        }
    }
}

/// Value of `--env`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvWord {
    /// Name of the variable.
    pub(crate) name: String,
    /// `None` for the value of this process.
    pub(crate) value: Option<String>,
}

/// Adds a tip to the error for a program without `--` before it.
pub(super) fn with_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    if word.starts_with('-') {
        return error;
    }

    let tip = format!("the program comes after --: quack run -- {}", crate::display::name(word));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

fn variable(text: &str) -> Result<EnvWord, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };

    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if name.is_empty() || !is_name {
        return Err("give NAME or NAME=VALUE; a name has letters, digits and _".to_owned());
    }
    Ok(EnvWord { name: name.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};

    fn parse(words: &[&str]) -> Result<RunArgs, clap::Error> {
        let line = ["quack", "run"].iter().chain(words).copied();
        match Cli::read(line)?.verb {
            Some(Verb::Run(args)) => Ok(args),
            other => panic!("not a run: {other:?}"),
        }
    }

    #[test]
    fn words_after_two_hyphens_are_the_programs() {
        let args = parse(&["--isolated", "-d", "--", "claude", "-p", "--json", "x y"]).unwrap();
        assert_eq!(args.command, ["claude", "-p", "--json", "x y"]);
        assert!(args.isolated && args.detach);
        assert!(parse(&[]).unwrap().command.is_empty());
        let error = parse(&["--isolated", "claude", "-p"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownArgument);
        assert!(error.to_string().contains("quack run -- claude"), "{error}");
        let error = parse(&["--isolate"]).unwrap_err();
        assert!(!error.to_string().contains("the program comes after"), "{error}");
    }

    #[test]
    fn a_recording_is_of_the_output_unless_it_says_input() {
        assert_eq!(parse(&[]).unwrap().record, None);
        assert_eq!(parse(&["--record"]).unwrap().record, Some(RecordChoice::Output));
        assert_eq!(parse(&["--record=input"]).unwrap().record, Some(RecordChoice::Input));
        assert_eq!(parse(&["--record=x"]).unwrap_err().kind(), ErrorKind::InvalidValue);
    }

    #[test]
    fn a_variable_has_a_name_and_perhaps_a_value() {
        let args = parse(&["--env", "A", "--env", "B=", "--env=C=d=e"]).unwrap();
        let word = |name: &str, value: Option<&str>| EnvWord {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        assert_eq!(args.env, [word("A", None), word("B", Some("")), word("C", Some("d=e"))]);
        for bad in ["", "=x", "1A", "A-B=c", "ä"] {
            let error = parse(&["--env", bad]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{bad}");
        }
    }

    #[test]
    fn a_session_that_exists_has_its_own_settings() {
        assert_eq!(parse(&["--in", "web"]).unwrap().session.as_deref(), Some("web"));
        for option in [
            &["--name", "x"][..],
            &["--isolated"],
            &["--allow", "@github"],
            &["-C", "/tmp"],
            &["--import-login"],
        ] {
            let words = [&["--in", "web"][..], option].concat();
            assert_eq!(parse(&words).unwrap_err().kind(), ErrorKind::ArgumentConflict, "{words:?}");
        }
    }
}
