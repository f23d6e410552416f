//! Errors of agents with their texts for clients. Upstream's texts are used where they exist.

use crate::workspaces::NoPlace;
use quackd_protocol::agent::Engine;
use quackd_protocol::limits::MAX_AGENT_PROMPTS;
use quackd_supervision::Cause;
use std::path::PathBuf;
use std::time::Duration;

/// The reason why a request to an agent failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AgentError {
    /// No Pi is installed.
    #[error(
        "Pi not found. Install it with `npm install -g @earendil-works/pi-coding-agent` and say it again; \
         or put `binary = \"/path/to/pi\"` under `[pi]` in {config}, or set RUBBER_DUCK_PI_BINARY, \
         then run `quack stop` and say it again."
    )]
    NotFound { config: String },
    /// Pi is not confined and would work in the workspace itself.
    #[error(
        "An isolated session cannot use Pi, which works in the workspace itself. Configure a model for quackd's own agent \
         (`quack models`)."
    )]
    IsolatedPi,
    /// Pi works on this machine.
    #[error(
        "A session on another machine cannot use Pi, which works on this one. Configure a model for quackd's own agent \
         (`quack models`)."
    )]
    FarPi,
    /// The configured program cannot be run.
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
    /// Pi's own settings have more entries than the daemon checks.
    #[error(
        "Pi cannot be started: its settings have more than {max} entries, so that links in them cannot be checked; \
         move what Pi does not need out of {}", path.display()
    )]
    ManySettings { path: PathBuf, max: usize },
    /// A client attached, and `.pi` may contain what a command left. Pi ignores it, but waits for the user.
    #[error("Pi is not started before the next message: {0} exists")]
    Unasked(String),
    /// The agent did not respond in time.
    #[error("{}", not_answered(*engine, command, *limit))]
    TimedOut { engine: Engine, command: String, limit: Duration },
    /// Pi exited before it responded.
    #[error("Pi process exited with code {}", code.map_or_else(|| "null".to_owned(), |code| code.to_string()))]
    Exited { code: Option<i32> },
    /// Pi runs, but does not read commands.
    #[error("Failed to write to Pi process stdin")]
    Stdin,
    /// The Pi worker exited, or must be killed.
    #[error("Pi process ended ({0})")]
    Ended(Cause),
    /// The process of quackd's own agent exited, or must be killed. The next message starts another one.
    #[error("The agent's process ended: {0}")]
    NativeEnded(String),
    /// The agent has failed. It starts again only on demand.
    #[error("{engine} {cause}")]
    Failed { engine: Engine, cause: Cause },
    /// A process could not be started.
    #[error("{engine} cannot be started: {why}")]
    NotStarted { engine: Engine, why: String },
    /// The workspace does not exist.
    #[error("Workspace not accessible: '{0}'")]
    NoWorkspace(String),
    /// Sessions may not work in this directory.
    #[error("Not a workspace: {0}")]
    NoPlace(#[from] NoPlace),
    /// No model is configured, and no Pi is installed. The text says what to do.
    #[error("{0}")]
    NoModel(String),
    /// Another process writes the conversation.
    #[error("The session file is in use by another program: {0}; `quack fork` continues in a copy")]
    InUse(String),
    /// The agent of quackd starts with the first request only.
    #[error("The agent is not started before the next message")]
    OnDemand,
    /// Too many prompts are waiting.
    #[error(
        "The agent has {MAX_AGENT_PROMPTS} messages waiting in this session and takes no more; try again later"
    )]
    TooMany,
    /// The limit on live agents is reached, and all are busy.
    #[error("{max} agents are busy (pi.max_live); try again later, or end one with `quack abort`")]
    TooManyAgents { max: usize },
    /// It does not fit into a frame.
    #[error("Message is too long")]
    TooLong,
    /// A client canceled the prompt before it was sent.
    #[error("Aborted before the agent had started")]
    Aborted,
    /// The daemon is shutting down.
    #[error("Daemon is shutting down")]
    ShuttingDown,
    /// The session was deleted.
    #[error("Session was deleted")]
    Deleted,
    /// No Pi runs.
    #[error("Pi process for session \"{0}\" is not running")]
    NotRunning(String),
    /// Another client answered first, or the dialog was closed.
    #[error("UI request {id} {how}")]
    DialogClosed { id: String, how: &'static str },
}

fn not_answered(engine: Engine, command: &str, limit: Duration) -> String {
    match engine {
        Engine::Native => {
            format!("The agent did not answer \"{command}\" within {} s", limit.as_secs())
        }
        Engine::Pi => format!("Pi command \"{command}\" timed out after {}ms", limit.as_millis()),
    }
}
