//! Why a method or a call did not do what was asked, and the one place that words it for clients.
//!
//! Texts that clients depend on stand in the protocol specification; the others are free.

pub(crate) mod pi;

use crate::errors::pi::PiError;
use crate::pool::command_slots::Fullness;
use crate::session::worker::RunningWork;
use crate::workspaces::NoPlace;
use quackd_home::WorkspaceError;
use quackd_protocol::client::VoiceState;
use quackd_protocol::limits::{MAX_CALLS_PER_SESSION, MAX_NAME_CHARS};
use quackd_protocol::policy::PolicyError;
use quackd_store::StoreError;
use quackd_supervision::Cause;

/// Why a request is answered with `ok:false`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MethodError {
    #[error("Session not found: {0}")]
    SessionNotFound(String),
    #[error("No active voice session for tool execution")]
    NoSessionForTool,
    #[error("No active session. Run `duck` first.")]
    NoSessionToFollow,
    #[error("Streaming client is not connected")]
    NoStream,
    #[error("Voice client is not connected")]
    NoVoiceClient,
    #[error("Voice client disconnected")]
    VoiceGone,
    #[error("Voice session is already owned by another client")]
    VoiceTaken,
    #[error("Voice session is owned by another client")]
    VoiceToolRefused,
    #[error("No active session for voice start")]
    NoSessionForVoiceStart,
    #[error("No active session for voice state update")]
    NoSessionForVoiceState,
    #[error("Unknown voice state: {0}; known are {states}", states = voice_states())]
    UnknownVoiceState(String),
    #[error("No active session")]
    NoSession,
    #[error("No active session for UI response")]
    NoSessionForAnswer,
    #[error("UI response is missing request id")]
    NoDialogId,
    #[error("Message is required")]
    NoMessage,
    #[error("Message must be a string")]
    MessageNotText,
    #[error("{0}")]
    Pi(#[from] PiError),
    #[error("Session reference is required")]
    NoReference,
    #[error("The path is empty")]
    EmptyPath,
    #[error("Workspace for session \"{0}\" was not found")]
    WorkspaceOfSay(String),
    #[error("Workspace not found for session: {0}")]
    WorkspaceNotFound(String),
    #[error("Session is busy: {}; end with force", running(*.0))]
    SessionBusy(RunningWork),
    #[error("Session name must be 1 to {MAX_NAME_CHARS} printable characters")]
    BadName,
    #[error("A session of this name exists already in the workspace: {0}")]
    NameTaken(String),
    #[error("No active session to abort")]
    NoSessionToAbort,
    #[error("No running operation to abort")]
    NothingToAbort,
    #[error("No worker to kill")]
    NothingToKill,
    #[error("Active workspace not found for voice session")]
    WorkspaceUnknown,
    #[error("Voice tool call workspace does not match the active session")]
    WorkspaceMismatch,
    #[error("{}", sentence(.0))]
    Workspace(#[from] WorkspaceError),
    #[error("Not a workspace: {0}")]
    NoPlace(#[from] NoPlace),
    #[error("Not to be made writable: {0}")]
    NotWritable(NoPlace),
    #[error("Workspace did not answer within {0} s: {1}")]
    WorkspaceHangs(u64, String),
    #[error("The \"path\" argument must be of type string")]
    PathNotText,
    #[error("Invalid parameters for {method}: {why}")]
    Params { method: &'static str, why: serde_json::Error },
    #[error("{}", sentence(.0))]
    Policy(PolicyError),
    #[error("Path is too long")]
    LongTarget,
    #[error("Unknown action of quack.sandbox: {0}")]
    SandboxAction(String),
    #[error("Too many sessions: {0} are known; delete some first")]
    TooManySessions(usize),
    #[error("{}", sentence(.0))]
    NotSaved(StoreError),
    #[error("Sessions cannot be changed: {0}")]
    ReadOnly(String),
    #[error("No random numbers: {0}")]
    NoRandom(std::io::Error),
    #[error("Remote configuration is only available to local clients")]
    LocalOnly,
    #[error("Only local clients are shown the configuration")]
    LocalConfig,
    #[error("Only local clients may change what a session may do")]
    LocalPolicy,
    #[error("Only local clients may stop the daemon")]
    LocalStop,
    #[error("Only local clients may delete files")]
    LocalGc,
    #[error("The configuration is not valid, the daemon was not restarted: {0}")]
    BadConfig(String),
    #[error("Only local clients may restart a daemon that no service manager starts again")]
    LocalRestart,
    #[error(transparent)]
    Clean(#[from] crate::retention::CleanError),
    #[error(transparent)]
    Remote(#[from] crate::clients::remote::Refused),
    #[error("Daemon is shutting down")]
    ShuttingDown,
    #[error("Daemon or its disk is overloaded, try again")]
    Overloaded,
}

fn voice_states() -> String {
    VoiceState::ALL.map(VoiceState::as_str).join(", ")
}

fn running(work: RunningWork) -> String {
    let count = |n: usize, what: &str| match n {
        0 => None,
        1 => Some(format!("1 {what}")),
        n => Some(format!("{n} {what}s")),
    };
    let parts = [count(work.calls, "call"), count(work.jobs, "background job")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let verb = if work.calls + work.jobs == 1 { "is" } else { "are" };
    format!("{} {verb} running", parts.join(" and "))
}

/// A library's error as a client reads it: with its causes, and a capital.
fn sentence(error: &dyn std::error::Error) -> String {
    let text = chain(error);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// An error with its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

impl From<actix::MailboxError> for MethodError {
    /// The actor ended (the daemon stops) or did not take the message in time.
    fn from(error: actix::MailboxError) -> Self {
        match error {
            actix::MailboxError::Closed => Self::ShuttingDown,
            actix::MailboxError::Timeout => Self::Overloaded,
        }
    }
}

/// Why a tool call has no result of its own. On the wire each is a successful reply whose text begins
/// with `Error: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The worker ended while the call was in flight.
    Died(Cause),
    /// No worker was ready in time; why.
    NotReady(String),
    /// There will be no worker until somebody asks again.
    Failed(Cause),
    /// The worker does not answer heartbeats.
    NotResponding,
    /// The worker is alive and did not answer by the call's deadline.
    NoAnswer { after_s: u64 },
    /// The call ran into its deadline, what it ran does not end, and its caller would give up.
    NotEnded { after_s: u64 },
    /// The session has as many calls as it may have.
    TooManyCalls,
    /// No place for the command became free in time.
    TooManyCommands(Fullness),
    /// All sessions together have as many background jobs as they may have.
    TooManyJobs { max: usize },
    /// The call does not fit into a frame.
    TooLong,
    /// The workspace cannot be entered: no worker was started.
    NoWorkspace(String),
    /// The workspace is refused: no worker was started.
    NoPlace(NoPlace),
    /// The tool has no such parameter.
    UnknownParameter { name: String, nearest: Option<&'static str> },
    /// No tool has a name as long as this.
    UnknownTool,
    /// A client ended it before it was sent.
    Aborted,
    /// The daemon stops.
    ShuttingDown,
    /// The daemon stopped before the call had ended.
    CutShort,
    /// The session was deleted before the call had ended.
    Deleted,
    /// The session was deleted; the call was not sent.
    SessionGone,
}

impl CallError {
    /// The text of the reply.
    pub(crate) fn text(&self, tool: &str) -> String {
        match self {
            Self::Died(cause) => format!(
                "Error: Worker died during {tool} ({cause}). It may have run; it was not retried."
            ),
            Self::NotReady(cause) => format!("Error: Session worker is restarting ({cause})"),
            Self::Failed(cause) => format!("Error: Session worker {cause}"),
            Self::NotResponding => "Error: Worker not responding".to_owned(),
            Self::NoAnswer { after_s } => format!(
                "Error: Worker gave no answer during {tool} within {after_s}s and was ended. \
                 It may have run; it was not retried."
            ),
            Self::NotEnded { after_s } => format!(
                "Error: {tool} did not end within {after_s}s and is being killed. \
                 It may have run; it was not retried."
            ),
            Self::TooManyCalls => {
                format!(
                    "Error: Session is busy: {MAX_CALLS_PER_SESSION} calls are running, and it may have \
                     no more; try again when one has ended"
                )
            }
            Self::TooManyCommands(Fullness { running, own, max }) => format!(
                "Error: Too many commands are running: {running} in all, {own} of them in this \
                 session (limits.commands is {max}). It was not run, try again"
            ),
            Self::TooManyJobs { max } => format!(
                "Error: {max} background jobs are running in all sessions, and there may be no \
                 more (limits.jobs). It was not run; end one first"
            ),
            Self::NoWorkspace(path) => format!("Error: Workspace not accessible: '{path}'"),
            Self::NoPlace(why) => format!("Error: Not a workspace: {why}"),
            Self::UnknownParameter { name, nearest: None } => {
                format!("Error: Unknown parameter '{name}'")
            }
            Self::UnknownParameter { name, nearest: Some(near) } => {
                format!("Error: Unknown parameter '{name}', did you mean '{near}'?")
            }
            Self::UnknownTool => format!("Error: Unknown tool '{tool}'"),
            Self::TooLong => "Error: Tool arguments are too long".to_owned(),
            Self::Aborted => format!("Error: {tool} was aborted"),
            Self::ShuttingDown => "Error: Daemon is shutting down".to_owned(),
            Self::SessionGone => "Error: Session was deleted".to_owned(),
            Self::Deleted => {
                format!(
                    "Error: Session was deleted during {tool}. It may have run; it was not retried."
                )
            }
            Self::CutShort => format!(
                "Error: Worker died during {tool} (daemon is shutting down). \
                 It may have run; it was not retried."
            ),
        }
    }

    /// True if the call had been given to a worker that is gone.
    pub(crate) fn worker_died(&self) -> bool {
        matches!(self, Self::Died(_) | Self::NoAnswer { .. } | Self::CutShort | Self::Deleted)
    }

    /// True if the same call may succeed a little later.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::NotReady(_)
                | Self::NotResponding
                | Self::TooManyCalls
                | Self::TooManyCommands(_)
                | Self::TooManyJobs { .. }
        )
    }
}
