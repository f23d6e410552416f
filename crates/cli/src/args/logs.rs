//! Arguments of `quack logs`.

use super::{REF, reference};
use clap::{Args, ValueEnum};

/// Shows the daemon's log. Works without a daemon.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack logs\n  quack logs -n 1000 | grep WARN\n  quack logs -f     \
    until Ctrl-C, which ends it with exit code 0\n  quack logs --session api --since 1h\n  \
    quack logs -f --level warn\n  quack logs --json | jq .message"
)]
pub(crate) struct LogsArgs {
    /// Show what is written from now on, too
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// How many of the last lines to show; 50 if absent, all with --since
    #[arg(long, short = 'n', value_name = "LINES")]
    pub(crate) lines: Option<usize>,
    /// Lines about this session only, by id or name; without a daemon by id
    #[arg(long, value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// Lines of this level and of worse ones only
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<LogLevel>,
    /// Lines since then only: 10m, 2h or 2026-03-10T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
}

/// The levels of log lines, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// The level as a log line writes it; what is none is the least.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "ERROR" => Self::Error,
            "WARN" => Self::Warn,
            "INFO" => Self::Info,
            "DEBUG" => Self::Debug,
            _ => Self::Trace,
        }
    }
}
