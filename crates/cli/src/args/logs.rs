//! Arguments of `quack logs`.

use super::{REF, reference};
use clap::{Args, ValueEnum};

/// Show the daemon's log, also without a running daemon
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack logs\n  quack logs -n 1000 | grep WARN\n  quack logs -f     \
    until Ctrl-C, which ends it with exit code 0\n  quack logs --session api --since 1h\n  \
    quack logs -f --level warn\n  quack logs --json | jq .message"
)]
pub(crate) struct LogsArgs {
    /// Keep printing new lines until Ctrl-C
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Number of last lines to show [default: 50; all with --since]
    #[arg(long, short = 'n', value_name = "LINES")]
    pub(crate) lines: Option<usize>,
    /// Show only lines about this session: id or name, without a daemon the id
    #[arg(long, value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// Show only lines of this level and of more severe ones
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<LogLevel>,
    /// Show only lines since TIME, such as 10m, 2h or 2026-03-10T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
}

/// Levels of log lines, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// Parses a level as written in a log line. Unknown text counts as `Trace`.
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
