//! Arguments of the subcommands about sessions.

use super::{AnySessionArgs, DisplayArgs, NamedSessionArgs, SessionArgs};
use crate::time_format::moment;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use std::path::PathBuf;

/// Show a session's events until Ctrl-C
///
/// Ctrl-C ends it with exit code 0. Survives a daemon restart of up to 5 s. With --json each event is one line, as sent
/// by the daemon: {"event","sessionId","data","seq","turn"}.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack follow\n  quack follow api --show-thinking\n  \
    quack follow -C ~/src/app --since 1h\n  quack follow --json | jq .data")]
pub(crate) struct FollowArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
    /// Begin with the calls since TIME, such as 10m, from the journal; or after the event with this number
    #[arg(long, value_name = "TIME|SEQ", value_parser = follow_since)]
    pub(crate) since: Option<FollowSince>,
    #[command(flatten)]
    pub(crate) look: DisplayArgs,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
}

/// First events of `quack follow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowSince {
    /// After the event with this number, if the daemon still has it.
    Event(u64),
    /// With the calls in the journal since this time.
    Time(Timestamp),
}

fn follow_since(text: &str) -> Result<FollowSince, String> {
    match text.parse() {
        Ok(seq) => Ok(FollowSince::Event(seq)),
        Err(_) => moment(text, Timestamp::now()).map(FollowSince::Time),
    }
}

/// Show the conversation of a session
///
/// Reads the session file of the agent. On a terminal the conversation looks as at the prompt of `quack`; otherwise it
/// is a list with one line for each message. With --json one document: the session, its counts, and the messages in the
/// shapes of the session file.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack history\n  quack history api/review\n  quack history --json | jq .stats"
)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

/// Write a session's conversation as Markdown or HTML
///
/// The document has the current branch of the conversation with all tool calls and their results. It contains no
/// control characters. An HTML page has no scripts and loads nothing from other hosts.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack export\n  quack export api/review -o review.md\n  \
    quack export --html -o review.html")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
    /// Write HTML instead of Markdown
    #[arg(long)]
    pub(crate) html: bool,
    /// Write to this file, with access for you only [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// List the sessions with their directories
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack sessions\n  quack sessions --json\n  quack sessions prune -n"
)]
pub(crate) struct SessionsArgs {
    /// No effect: all sessions are listed; kept for scripts
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

/// Forget the sessions whose directory does not exist
///
/// Keeps busy sessions, and without --force pinned sessions. A directory on an unmounted disk counts as missing: run it
/// with -n first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack sessions prune -n\n  quack sessions prune\n\n\
    Exit codes: 0 done, also if there was none, 1 it could not be saved, 3 no daemon, 4 it does not answer in time.")]
pub(crate) struct PruneArgs {
    /// List the sessions without forgetting them
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Forget pinned sessions too
    #[arg(long)]
    pub(crate) force: bool,
    /// No effect: nothing is asked; accepted as by other commands
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

/// List the directories that have sessions
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack workspaces\n  quack workspaces --json")]
pub(crate) struct WorkspacesArgs {}

/// Create another session for a directory's repository
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack new\n  quack new ~/src/app --name review --safe\n  quack new --isolated --name feature\n  \
    quack new --activate --json\n  quack new --on ssh:build1 /home/me/app     a directory on another machine\n  \
    quack new --on ssh:build1 --send           a private copy of this directory there"
)]
pub(crate) struct NewArgs {
    /// Directory [default: the current one]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Name of the session [default: a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Activate the session
    #[arg(long)]
    pub(crate) activate: bool,
    /// Allow only read-only tools and commands
    #[arg(long)]
    pub(crate) safe: bool,
    /// Work in a private copy of the repository; see quack diff and quack apply
    #[arg(long)]
    pub(crate) isolated: bool,
    /// Run its worker elsewhere through this engine (ssh, …), in DIR there; see quack engines
    #[arg(long, value_name = "ENGINE[:TARGET]", conflicts_with = "isolated")]
    pub(crate) on: Option<String>,
    /// With --on: send a private copy of DIR of this machine there; see quack diff and quack apply
    #[arg(long, requires = "on")]
    pub(crate) send: bool,
    /// Agent of the session: native, pi or auto [default: agent.engine of the configuration]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Model of quackd's own agent, as provider/model; `quack models` lists them
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
}

/// Activate a session
///
/// The active session is the one that clients without a directory use. Options also set the session's agent.
#[derive(Debug, Args)]
#[command(
    visible_alias = "use",
    after_help = "Examples:\n  quack activate api/review\n  quack use api/review --model anthropic/claude-sonnet-4-5\n  \
    quack activate api/review --json"
)]
pub(crate) struct ActivateArgs {
    #[command(flatten)]
    pub(crate) which: NamedSessionArgs,
    /// Set the agent of the session: native, pi or auto
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Set the model of quackd's own agent, as provider/model; empty for the default
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
}

/// Continue a conversation in another session
///
/// The new session has the conversation before one of your messages, or all of it. The old session stays as it is.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack fork --list                 your messages, with their ids\n  \
    quack fork 3bb73544               the conversation before that message\n  \
    quack fork --name second-try --activate"
)]
pub(crate) struct ForkArgs {
    /// Id of the message [default: the whole conversation]
    #[arg(value_name = "ID")]
    pub(crate) entry: Option<String>,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
    /// Name of the new session [default: a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Activate the new session
    #[arg(long)]
    pub(crate) activate: bool,
    /// List your messages with their ids
    #[arg(long, conflicts_with_all = ["entry", "name", "activate"])]
    pub(crate) list: bool,
}

/// Show one session and its worker process
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack state\n  quack state api\n  quack state -C ~/src/app --json"
)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

/// Cancel all running calls of a session
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack abort\n  quack abort api")]
pub(crate) struct AbortArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

/// Delete a session; your files stay
///
/// Asks for confirmation. Requires --yes without a terminal.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack delete api/review\n  quack delete api/review --yes --json\n  \
    quack delete api/review --force     also if calls are running"
)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) which: NamedSessionArgs,
    /// Delete without asking
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Cancel its running calls without asking
    #[arg(long)]
    pub(crate) force: bool,
}
