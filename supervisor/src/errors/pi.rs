//! Why a Pi did not do what was asked, in the words that clients see. Upstream's words where it has them.

use crate::workspaces::NoPlace;
use quackd_protocol::limits::{MAX_PI_PROMPTS, PI_COMMAND_LIMIT};
use quackd_supervision::Cause;
use std::path::PathBuf;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PiError {
    /// There is none.
    #[error(
        "Pi not found. Install it with `npm install -g @earendil-works/pi-coding-agent` and say it again; \
         or put `binary = \"/path/to/pi\"` under `[pi]` in {config}, or set RUBBER_DUCK_PI_BINARY, \
         then run `quack stop` and say it again."
    )]
    NotFound { config: String },
    /// What is configured cannot be run.
    #[error(
        "Pi cannot be started: {origin} names {path}, {why}. Change it, then run `quack stop` and say it again."
    )]
    Unusable { origin: String, path: String, why: String },
    /// Pi's own settings lead into a directory that commands write.
    #[error(
        "Pi cannot be started: it would load {}, and commands write {}; keep Pi's settings and extensions outside \
         of workspaces", path.display(), held.display()
    )]
    Held { path: PathBuf, held: PathBuf },
    /// Pi's own settings have more entries than the daemon looks through.
    #[error(
        "Pi cannot be started: its settings have more than {max} entries, so that links in them cannot be checked; \
         move what Pi does not need out of {}", path.display()
    )]
    ManySettings { path: PathBuf, max: usize },
    /// A client attached, and `.pi` may contain what a command left. Pi ignores it, but waits for the user.
    #[error("Pi is not started before the next message: {0} exists")]
    Unasked(String),
    /// It did not answer in time.
    #[error("Pi command \"{command}\" timed out after {}ms", PI_COMMAND_LIMIT.as_millis())]
    TimedOut { command: &'static str },
    /// It ended before it answered.
    #[error("Pi process exited with code {}", code.map_or_else(|| "null".to_owned(), |code| code.to_string()))]
    Exited { code: Option<i32> },
    /// It lives, but takes no commands.
    #[error("Failed to write to Pi process stdin")]
    Stdin,
    /// The process between ended, or must.
    #[error("Pi process ended ({0})")]
    Ended(Cause),
    /// There will be none until somebody asks again.
    #[error("Pi {0}")]
    Failed(Cause),
    /// A process could not be started.
    #[error("Pi cannot be started: {0}")]
    NotStarted(String),
    /// The directory is gone.
    #[error("Workspace not accessible: '{0}'")]
    NoWorkspace(String),
    /// The directory is of the system.
    #[error("Not a workspace: {0}")]
    NoPlace(#[from] NoPlace),
    /// Too much waits already.
    #[error(
        "Pi has {MAX_PI_PROMPTS} messages waiting in this session and takes no more; try again later"
    )]
    TooMany,
    /// All Pis that may live are at work.
    #[error("{max} Pis are at work (pi.max_live); try again later, or end one with `quack abort`")]
    TooManyPis { max: usize },
    /// It does not fit into a frame.
    #[error("Message is too long")]
    TooLong,
    /// A client ended it before it was sent.
    #[error("Aborted before Pi had started")]
    Aborted,
    /// The daemon stops.
    #[error("Daemon is shutting down")]
    ShuttingDown,
    /// The session was deleted.
    #[error("Session was deleted")]
    Deleted,
    /// Nobody runs.
    #[error("Pi process for session \"{0}\" is not running")]
    NotRunning(String),
    /// Somebody else was first, or it is too late.
    #[error("UI request {id} {how}")]
    DialogClosed { id: String, how: &'static str },
}
