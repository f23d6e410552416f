//! The command lines of the verbs about sessions: which there are, making, choosing, following, deleting them.

use super::{LookArgs, REF, WhichArgs, reference};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Shows what happens in a session until Ctrl-C, which ends it with exit code 0.
///
/// Survives a restart of the daemon of up to 5 s. With --json every event is one line, as the daemon
/// sends it: {"event","sessionId","data","seq"}.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack follow\n  quack follow --session api --show-thinking\n  \
    quack follow -C ~/src/app --since 0\n  quack follow --json | jq .data"
)]
pub(crate) struct FollowArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Begin after this event, as far as it is still kept; with what is new if absent
    #[arg(long, value_name = "SEQ")]
    pub(crate) since: Option<u64>,
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
}

/// Lists the sessions with their directories.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack sessions\n  quack sessions --json\n  quack sessions prune -n"
)]
pub(crate) struct SessionsArgs {
    /// Has no effect: all sessions are listed; kept for scripts
    #[arg(long)]
    pub(crate) all: bool,
    #[command(subcommand)]
    pub(crate) verb: Option<SessionsVerb>,
}

/// Subcommands of `quack sessions`. Without one it lists the sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsVerb {
    Prune(PruneArgs),
}

/// Forgets the sessions whose directory does not exist.
///
/// Sessions that are at work stay, and pinned ones without --force. A directory on a disk that is not mounted does not
/// exist either: look with -n first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack sessions prune -n\n  quack sessions prune\n\n\
    Exit codes: 0 done, also if there was none, 1 it could not be saved, 3 no daemon, 4 it does not answer in time.")]
pub(crate) struct PruneArgs {
    /// Forget nothing, and name the sessions
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Forget pinned sessions too
    #[arg(long)]
    pub(crate) force: bool,
}

/// Lists the directories that have sessions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack workspaces\n  quack workspaces --json")]
pub(crate) struct WorkspacesArgs {}

/// Makes one more session for a directory's repository.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack new\n  quack new ~/src/app --name review --safe\n  \
    quack new --activate --json")]
pub(crate) struct NewArgs {
    /// Directory; the current one if absent
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Its name; `duck-` and a number if absent
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Make it the active session
    #[arg(long)]
    pub(crate) activate: bool,
    /// Only allow what changes nothing
    #[arg(long)]
    pub(crate) safe: bool,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
}

/// Makes a session the active one.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack activate api/review\n  quack activate api/review --json"
)]
pub(crate) struct ActivateArgs {
    /// Session, such as api or api/duck-1
    #[arg(value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    pub(crate) session: String,
}

/// Shows one session and its worker process.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack state\n  quack state --session api\n  quack state -C ~/src/app --json"
)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

/// Ends every call in flight of a session.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack abort\n  quack abort --session api")]
pub(crate) struct AbortArgs {
    /// Session, such as api or api/duck-1; that of the current directory if absent, else the active one
    #[arg(long, value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
}

/// Deletes a session: the daemon forgets it, your files stay.
///
/// Asks first. Where nobody can be asked, --yes is needed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack delete api/review\n  quack delete api/review --yes --json\n  \
    quack delete api/review --force     also if calls are running"
)]
pub(crate) struct DeleteArgs {
    /// Session, such as api or api/duck-1
    #[arg(value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    pub(crate) session: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// End its running calls; do not ask
    #[arg(long)]
    pub(crate) force: bool,
}
