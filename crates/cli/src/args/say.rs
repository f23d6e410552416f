//! The command line of `quack say`.

use super::tool::duration;
use super::{LookArgs, WhichArgs};
use clap::Args;
use std::time::Duration;

/// Longest and shortest time that an answer is waited for.
const LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(24));

/// Says something to a session's Pi and shows what it does, until its turn is over.
///
/// Speaks to the session of the current directory, else to the active one. Without either, creates one for the
/// directory. Ctrl-C ends the turn, and no other: one that has not begun is ended when it does, for which it waits a moment.
/// Questions of Pi are asked on a terminal; elsewhere they are left to somebody else.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack say 'what does this repository do?'\n  \
    quack say fix the failing test -C ~/src/app\n  git diff | quack say --session review\n  \
    quack say hello --json | jq -r 'select(.event==\"tool_execution_start\").data.toolName'\n\n\
    --json prints the events of the session from the beginning of the turn to its end, each on a line as the daemon \
    sends it. Turns that others begin are not shown; `quack follow --json` has everything.\n\n\
    Exit codes: 0 the turn ended well, 1 it failed or Pi refused or died, 2 usage, 3 no daemon, or it went away, \
    4 Pi is at work already, or there was no time (the turn goes on then), 130 Ctrl-C, which has ended the turn; one \
    that Pi had not begun with may still come, and then that is said.")]
pub(crate) struct SayArgs {
    /// What to say; `-` or nothing: what stdin has
    #[arg(value_name = "MESSAGE")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// Longest wait for the end of the turn, such as 90s or 1h; 10 minutes if absent
    #[arg(long, value_name = "TIME", value_parser = limit)]
    pub(crate) timeout: Option<Duration>,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
}

fn limit(text: &str) -> Result<Duration, String> {
    duration(text)
        .filter(|time| (LIMITS.0..=LIMITS.1).contains(time))
        .ok_or_else(|| "give a time from 1s to 24h, such as 90s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};

    fn say(line: &[&str]) -> Result<SayArgs, clap::Error> {
        match Cli::read([&["quack", "say"], line].concat())?.verb {
            Some(Verb::Say(args)) => Ok(args),
            other => panic!("says nothing: {other:?}"),
        }
    }

    #[test]
    fn a_message_is_words_or_stdin() {
        assert_eq!(say(&["fix", "it", "--session", "a"]).unwrap().words, ["fix", "it"]);
        assert_eq!(say(&["-"]).unwrap().words, ["-"]);
        assert!(say(&[]).unwrap().words.is_empty());
        assert_eq!(say(&["--", "-v"]).unwrap().words, ["-v"]);
        assert!(say(&["x", "--session", "a", "-C", "."]).is_err());
    }

    #[test]
    fn a_turn_may_take_long_but_not_for_ever() {
        let timeout = |time: &str| say(&["x", "--timeout", time]).ok().and_then(|a| a.timeout);
        assert_eq!(timeout("90s"), Some(Duration::from_secs(90)));
        assert_eq!(timeout("10"), Some(Duration::from_secs(10)));
        assert_eq!(timeout("2h"), Some(Duration::from_secs(7200)));
        for wrong in ["0.5", "1ms", "inf", "NaN", "1e30", "25h", "-5s", "soon"] {
            assert_eq!(timeout(wrong), None, "{wrong}");
        }
    }
}
