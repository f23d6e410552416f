//! Arguments of `quack pin` and `quack unpin`.

use super::AnySessionArgs;
use clap::Args;

/// Exempt a session's worker and agent from idle eviction
///
/// Pinned processes are not evicted for idleness, for another session or under memory pressure until `quack unpin`. A
/// pin survives a restart of the daemon.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack pin api\n  quack pin        your session of the directory you are in"
)]
pub(crate) struct PinArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

/// Allow idle eviction of a session's worker and agent again
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack unpin api")]
pub(crate) struct UnpinArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}
