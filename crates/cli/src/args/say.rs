//! Arguments of `quack say`.

use super::tool::duration;
use super::{DisplayArgs, SessionArgs};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Minimum and maximum timeout.
const LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(24));

/// Send a prompt to a session's agent and show its turn
///
/// Uses your session of the current directory, and creates it if there is none.
/// Ctrl-C aborts the turn of this prompt, and no other turn. If that turn has not begun, the command briefly waits for
/// its beginning and then aborts it. On a terminal, the agent's questions are asked here. Elsewhere another client can answer
/// them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack say 'what does this repository do?'\n  \
    quack say fix the failing test -C ~/src/app\n  git diff | quack say 'review this' --session review\n  \
    quack say hello --json | jq -r 'select(.event==\"tool_execution_start\").data.toolName'\n  \
    quack say --steer 'leave the tests alone'    to the running turn\n  \
    quack say --result json 'fix the test' | jq .filesChanged\n\n\
    --json prints the events of the session from the beginning of the turn to its end, one per line as \
    sent by the daemon. Turns of other clients are not shown; `quack follow --json` prints all events.\n\n\
    Exit codes: 0 the turn succeeded, 1 it failed, or the agent refused it or exited, 2 usage, 3 no daemon, or it exited, \
    4 the agent is busy, or the timeout passed (the turn continues then), 5 the answer was cut, is empty, a refusal or none, 130 Ctrl-C, which has ended the turn; if \
    the agent may still begin it, a message reports that.")]
pub(crate) struct SayArgs {
    /// Prompt; `-` or nothing reads it from stdin, and a pipe or a file on stdin is added to it
    #[arg(value_name = "MESSAGE")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
    #[command(flatten)]
    pub(crate) look: DisplayArgs,
    /// If a turn runs, give it the message: the agent reads it before its next step
    #[arg(long, conflicts_with = "queue")]
    pub(crate) steer: bool,
    /// If a turn runs, give it the message: the agent reads it at the end of the turn
    #[arg(long)]
    pub(crate) queue: bool,
    /// Send an image (PNG, JPEG, GIF, WebP) with the message; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    /// Print one JSON object at the end: text, files changed, cost, reason of the end
    #[arg(long, value_name = "FORMAT", value_parser = ["json"], conflicts_with_all = ["steer", "queue"])]
    pub(crate) result: Option<String>,
    /// Hold the answer to the JSON schema in this file, where the provider can
    #[arg(long, value_name = "FILE", conflicts_with_all = ["steer", "queue"])]
    pub(crate) schema: Option<PathBuf>,
    /// Timeout for the turn, such as 90s or 1h [default: 10m]
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
