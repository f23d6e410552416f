//! Arguments of `quack log`.

use super::{REF, reference};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Show which tools were called, by whom, and how each call ended
///
/// Reads the journal of calls, which outlives the daemon; see `keep.journal_days`. Without a session it shows the calls
/// in all sessions of this directory's repository. With --json each call is one line.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack log\n  quack log api/claude-code --since 2h\n  \
    quack log --all --agent claude-code -n 100\n  quack log -f       until Ctrl-C, which ends it with exit code 0\n  \
    quack log show mi2k4x9q\n  quack log --json | jq -r 'select(.exitCode != 0).arguments.command'"
)]
pub(crate) struct LogArgs {
    /// Session, such as api or api/review, also a deleted one
    #[arg(value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// Session, as an option
    #[arg(id = "option", long = "session", value_name = REF, value_parser = reference, allow_hyphen_values = true, conflicts_with_all = ["session", "dir", "all"])]
    pub(crate) option: Option<String>,
    /// Show the calls in the sessions of this directory [default: the current one]
    #[arg(short = 'C', long = "dir", value_name = "DIR", conflicts_with_all = ["session", "all"])]
    pub(crate) dir: Option<PathBuf>,
    /// Show the calls of all sessions
    #[arg(long, conflicts_with = "session")]
    pub(crate) all: bool,
    /// Keep printing new calls until Ctrl-C
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Number of last calls to show [default: 50; all with --since]
    #[arg(long, short = 'n', value_name = "CALLS")]
    pub(crate) lines: Option<usize>,
    /// Show only calls since TIME, such as 10m, 2h or 2026-03-10T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Show only calls of clients whose name begins with NAME, such as claude-code
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: Option<LogVerb>,
}

/// Subcommands of `quack log`. Without one it lists calls.
#[derive(Debug, Subcommand)]
pub(crate) enum LogVerb {
    Show(LogShowArgs),
}

/// Show one call with its arguments and its output
///
/// A long output comes from its file while that exists (`keep.outputs_days`). The journal itself has both ends of it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack log show mi2k4x9q\n  quack log show mi2k4x9q --json\n\n\
    Exit codes: 0 shown, 1 there is no such call, 2 usage."
)]
pub(crate) struct LogShowArgs {
    /// Id of the call: the last column of `quack log`
    #[arg(value_name = "CALL")]
    pub(crate) call: String,
}
