//! Arguments of `quack attach`, `quack detach` and `quack play`.

use super::{REF, SessionArgs};
use crate::exit::CliError;
use clap::Args;
use quackd_egress::RemoteAddress;
use std::path::PathBuf;

/// Show a terminal of a session, and type into it
///
/// Without a terminal: the last started one that runs. Without a session: the last started one of this directory. The keys
/// of run.detach_keys, Ctrl-\ by default, leave it; the program continues. Several clients can be attached. The terminal
/// has the size of the client that typed last; a smaller window shows a part.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack attach\n  quack attach web\n  quack attach web/term-2 --read-only\n  \
    quack attach term-2 -C ~/src/app\n  \
    quack attach --remote https://desk.example.net web    asks for the token\n\n\
    With --remote, the token is that of QUACKD_REMOTE_TOKEN, or asked for. Exit codes: those of quack run. --json does not work: a window is shown."
)]
pub(crate) struct TermAttachArgs {
    #[command(flatten)]
    pub(crate) terminal: TerminalArgs,
    /// Show a terminal of another machine, at this address of its remote control
    #[arg(long, value_name = "URL", value_parser = RemoteAddress::parse, conflicts_with = "dir")]
    pub(crate) remote: Option<RemoteAddress>,
    /// Type nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Give the terminal the size of this window now, not with the first key
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) size: bool,
}

/// Detach all clients from the terminals of a session
///
/// The programs continue. Without a session: that of the last started terminal of this directory.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack detach\n  quack detach web\n  quack detach web/term-2 --json"
)]
pub(crate) struct DetachArgs {
    #[command(flatten)]
    pub(crate) terminal: TerminalArgs,
}

/// Play a recording of a terminal
///
/// For files that quack run --record made, and others in the format asciicast v2. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack play demo.cast\n  quack play demo.cast --speed 4\n\n\
    --json does not work: a window is shown.")]
pub(crate) struct PlayArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Play N times as fast, from 0.1 to 1000
    #[arg(long, value_name = "N", default_value = "1", value_parser = speed)]
    pub(crate) speed: f64,
}

fn speed(text: &str) -> Result<f64, &'static str> {
    let speed = text.parse::<f64>().ok().filter(|speed| (0.1..=1000.0).contains(speed));
    speed.ok_or("give a number from 0.1 to 1000")
}

/// Terminal of a subcommand.
#[derive(Debug, Args)]
pub(crate) struct TerminalArgs {
    /// Session, such as api or api/review, and optionally its terminal, as in api/term-2 or term-2
    /// [default: the last started terminal of the current directory]
    #[arg(value_name = REF, value_parser = terminal_reference, allow_hyphen_values = true)]
    reference: Option<TerminalReference>,
    #[command(flatten)]
    which: SessionArgs,
}

impl TerminalArgs {
    /// Returns the session, and the terminal if one was named.
    ///
    /// # Errors
    /// A usage error if the session is given twice.
    pub(crate) fn take(self) -> Result<(SessionArgs, Option<String>), CliError> {
        let SessionArgs { session, dir } = self.which;
        let TerminalReference { session: word, terminal } = self.reference.unwrap_or_default();

        if word.is_some() && (session.is_some() || dir.is_some()) {
            return Err(CliError::usage("the session is given twice"));
        }
        Ok((SessionArgs { session: word.or(session), dir }, terminal))
    }
}

/// A word that names a session, a terminal, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TerminalReference {
    session: Option<String>,
    terminal: Option<String>,
}

/// Splits `api/review/term-2` into session and terminal.
fn terminal_reference(text: &str) -> Result<TerminalReference, &'static str> {
    const EMPTY: &str = "the reference is empty: give a session, or a terminal such as term-1";
    let text = text.trim();
    let is_number = |digits: &str| {
        (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let is_terminal = |word: &str| word.strip_prefix("term-").is_some_and(is_number);

    let (session, terminal) = match text.rsplit_once('/') {
        Some((session, word)) if is_terminal(word) => (Some(session), Some(word)),
        _ if is_terminal(text) => (None, Some(text)),
        _ => (Some(text), None),
    };
    if session.is_some_and(|session| session.trim().is_empty()) {
        return Err(EMPTY);
    }
    Ok(TerminalReference {
        session: session.map(str::to_owned),
        terminal: terminal.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::error::ErrorKind;

    #[test]
    fn the_last_part_of_a_reference_may_be_a_terminal() {
        for (text, session, terminal) in [
            ("web", Some("web"), None),
            ("api/review", Some("api/review"), None),
            ("web/term-2", Some("web"), Some("term-2")),
            ("api/review/term-10", Some("api/review"), Some("term-10")),
            ("term-2", None, Some("term-2")),
            ("term-", Some("term-"), None),
            ("term-x", Some("term-x"), None),
            ("api/term-2x", Some("api/term-2x"), None),
            ("term-1234567890", Some("term-1234567890"), None),
        ] {
            let split = terminal_reference(text).unwrap();
            let split = (split.session.as_deref(), split.terminal.as_deref());
            assert_eq!(split, (session, terminal), "{text}");
        }
        for empty in ["", " ", "/term-1", " /term-1"] {
            assert!(terminal_reference(empty).is_err(), "{empty:?}");
        }
    }

    fn attach(line: &str) -> Result<TermAttachArgs, clap::Error> {
        match Cli::read(std::iter::once("quack").chain(line.split(' ')))?.verb {
            Some(Verb::Attach(args)) => Ok(args),
            other => panic!("not an attach: {other:?}"),
        }
    }

    #[test]
    fn a_terminal_goes_with_a_session_of_an_option_and_a_session_does_not() {
        for (line, session, terminal) in [
            ("attach", None, None),
            ("attach web/term-2", Some("web"), Some("term-2")),
            ("attach term-2 --session web", Some("web"), Some("term-2")),
            ("attach --session web --read-only", Some("web"), None),
        ] {
            let (which, found) = attach(line).unwrap().terminal.take().unwrap();
            let found = (which.session.as_deref(), found.as_deref());
            assert_eq!(found, (session, terminal), "{line}");
        }
        let (which, terminal) = attach("attach term-2 -C /src").unwrap().terminal.take().unwrap();
        assert_eq!((which.dir, terminal.as_deref()), (Some("/src".into()), Some("term-2")));

        for line in ["attach web --session api", "attach web/term-1 -C /src"] {
            assert!(attach(line).unwrap().terminal.take().is_err(), "{line}");
        }
        for line in ["attach web --size --read-only", "attach --remote http://a:1 -C /src"] {
            assert_eq!(attach(line).unwrap_err().kind(), ErrorKind::ArgumentConflict, "{line}");
        }
        let error = attach("attach --remote desk:1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueValidation);
    }

    #[test]
    fn a_speed_is_a_number_within_bounds() {
        assert_eq!((speed("1"), speed("0.5")), (Ok(1.0), Ok(0.5)));
        for bad in ["0", "-1", "nan", "inf", "1001", "fast", ""] {
            assert!(speed(bad).is_err(), "{bad}");
        }
    }
}
