//! Arguments of `quack pin` and `quack unpin`.

use super::{REF, reference};
use clap::Args;

/// Exempt a session's worker and agent from idle eviction
///
/// Pinned processes are not evicted for idleness, for another session or under memory pressure until `quack unpin`. A
/// pin survives a restart of the daemon.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack pin api\n  quack pin        the session of the directory you are in"
)]
pub(crate) struct PinArgs {
    /// Session, such as api or api/duck-1 [default: that of the current directory, else the active one]
    #[arg(value_name = REF, value_parser = reference)]
    pub(crate) session: Option<String>,
}

/// Allow idle eviction of a session's worker and agent again
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack unpin api")]
pub(crate) struct UnpinArgs {
    /// Session, such as api or api/duck-1 [default: that of the current directory, else the active one]
    #[arg(value_name = REF, value_parser = reference)]
    pub(crate) session: Option<String>,
}
