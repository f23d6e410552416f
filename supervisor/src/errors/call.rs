//! Errors of tool calls. On the wire each is a successful reply whose text begins with `Error: `.

use crate::workspaces::NoPlace;
use quackd_protocol::limits::{MAX_CALLS_PER_SESSION, MAX_TERMINALS};
use quackd_supervision::Cause;

/// Usage of the command slots, for the error text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotUsage {
    /// Running commands of all sessions.
    pub(crate) running: usize,
    /// Running commands of the calling session.
    pub(crate) own: usize,
    /// Number of command slots.
    pub(crate) max: usize,
}

/// Excess of a limit for the disk space of private copies. Sizes are in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyExcess {
    /// The copy of the session is above `isolated.max_mb`.
    Own { size: u64, max: u64 },
    /// Parts of the copy of the session do not count, so its size is unknown.
    Unmeasured,
    /// The copies of all sessions together are above `isolated.total_mb`.
    All { size: u64, max: u64 },
}

/// Reason of [`CopyExcess::Unmeasured`].
const UNMEASURED: &str = "it has directories that are not readable or too deep, or too many files";

impl CopyExcess {
    /// Whether commands of agents are refused too. Up to a quarter above the limit of a copy, and at least 1 MiB, they may
    /// run, so that they can delete files.
    pub(crate) fn refuses_commands(self) -> bool {
        match self {
            Self::Own { size, max } => max.saturating_add((max / 4).max(1)) < size,
            Self::Unmeasured | Self::All { .. } => true,
        }
    }

    /// Describes a refused call.
    fn refusal(self) -> String {
        match self {
            Self::Own { max, .. } => format!(
                "the session's copy is full: {max} MiB (isolated.max_mb). It was not run; delete files or raise the limit"
            ),
            Self::Unmeasured => format!(
                "the session's copy cannot be measured: {UNMEASURED}. It was not run; the user can remove them with a \
                 command"
            ),
            Self::All { max, .. } => format!(
                "the copies of all isolated sessions are full: {max} MiB (isolated.total_mb). It was not run; delete \
                 files, discard copies or raise the limit"
            ),
        }
    }

    /// Returns the line for the end of a command's answer.
    pub(crate) fn line(self) -> String {
        match self {
            Self::Own { size, max } => format!(
                "[Disk: the session's copy has {size} MiB, more than isolated.max_mb ({max}): delete files, or raise the \
                 limit]"
            ),
            Self::Unmeasured => {
                format!("[Disk: the session's copy cannot be measured: {UNMEASURED}; remove them]")
            }
            Self::All { size, max } => format!(
                "[Disk: the copies of all isolated sessions have {size} MiB, more than isolated.total_mb ({max}): delete \
                 files, discard copies, or raise the limit]"
            ),
        }
    }
}

/// The reason why a tool call has no result. On the wire each is a successful reply whose text begins with `Error: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The worker ended while the call was in flight.
    Died(Cause),
    /// No worker was ready in time, for this reason.
    NotReady(String),
    /// The worker has failed. It starts again only on demand.
    Failed(Cause),
    /// The worker does not answer heartbeats.
    NotResponding,
    /// The worker runs but did not reply by the call's deadline.
    NoAnswer { after_s: u64 },
    /// The call reached its deadline, and its process tree did not exit before the caller's own timeout.
    NotEnded { after_s: u64 },
    /// The session has reached its limit of calls.
    TooManyCalls,
    /// No command slot became free in time.
    TooManyCommands(SlotUsage),
    /// The limit on background jobs of all sessions is reached.
    TooManyJobs { max: usize },
    /// The limit on terminals of all sessions is reached.
    TooManyTerminals,
    /// The disk space for private copies is exhausted.
    CopyFull(CopyExcess),
    /// The call does not fit into a frame.
    TooLong,
    /// The workspace cannot be entered: no worker was started.
    NoWorkspace(String),
    /// The workspace is refused: no worker was started.
    NoPlace(NoPlace),
    /// No engine reaches the far workspace, for this reason: no worker was started.
    NoEngine(String),
    /// The copy at this place is older than the one here: no worker was started.
    StaleCopy(String),
    /// The tool has no such parameter.
    UnknownParameter { name: String, nearest: Option<&'static str> },
    /// The name is longer than that of any tool.
    UnknownTool,
    /// A client canceled it before it was sent.
    Aborted,
    /// The daemon is shutting down.
    ShuttingDown,
    /// The daemon stopped before the call was done.
    CutShort,
    /// The session was deleted before the call was done.
    Deleted,
    /// The session was deleted; the call was not sent.
    SessionGone,
}

impl CallError {
    /// Text of the reply.
    pub(crate) fn text(&self, tool: &str) -> String {
        match self {
            Self::Died(Cause::LinkLost { place, reason }) => format!(
                "Error: link to {place} lost during {tool} ({reason}). The call may have had an effect there; it was not \
                 retried."
            ),
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
            Self::TooManyCommands(SlotUsage { running, own, max }) => format!(
                "Error: Too many commands are running: {running} in all, {own} of them in this \
                 session (limits.commands is {max}). It was not run, try again"
            ),
            Self::TooManyJobs { max } => format!(
                "Error: {max} background jobs are running in all sessions, and there may be no \
                 more (limits.jobs). It was not run; end one first"
            ),
            Self::TooManyTerminals => format!(
                "Error: {MAX_TERMINALS} terminals are running in all sessions, and there may be no \
                 more. It was not run; end one first"
            ),
            Self::CopyFull(excess) => format!("Error: {}", excess.refusal()),
            Self::NoWorkspace(path) => format!("Error: Workspace not accessible: '{path}'"),
            Self::NoPlace(why) => format!("Error: Not a workspace: {why}"),
            Self::NoEngine(why) => format!("Error: The workspace cannot be reached: {why}"),
            Self::StaleCopy(place) => format!(
                "Error: The copy on {place} is older than the one here, which is being sent, or was not: quack refresh \
                 sends it. The call was not run."
            ),
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

    /// True if the call was sent to a worker that no longer runs.
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
                | Self::TooManyTerminals
        )
    }
}
