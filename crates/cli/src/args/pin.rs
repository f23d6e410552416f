//! Arguments of `quack pin` and `quack unpin`.

use super::{REF, reference};
use clap::Args;

/// Keeps a session's worker and Pi, however long nobody uses them.
///
/// They are not ended for being idle, for another session's sake or for want of memory, until
/// `quack unpin`. A pin is kept when the daemon is restarted.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack pin api\n  quack pin        the session of the directory you are in"
)]
pub(crate) struct PinArgs {
    /// Session, such as api or api/duck-1; that of the current directory if absent, else the active one
    #[arg(value_name = REF, value_parser = reference)]
    pub(crate) session: Option<String>,
}

/// Lets a session's worker and Pi be ended again when nobody uses them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack unpin api")]
pub(crate) struct UnpinArgs {
    /// Session, such as api or api/duck-1; that of the current directory if absent, else the active one
    #[arg(value_name = REF, value_parser = reference)]
    pub(crate) session: Option<String>,
}
