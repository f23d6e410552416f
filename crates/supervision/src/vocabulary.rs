//! States, events and decisions of the state machine of a child process, [`crate::Lifecycle`].

use crate::Cause;
use std::time::Instant;

/// State of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// No process; one may be started at any time.
    Absent,
    /// A process is being spawned or has not sent its hello.
    Starting {
        /// Time of the spawn, or of the decision to spawn.
        since: Instant,
    },
    /// The process accepts calls.
    Ready {
        /// Time of the hello.
        since: Instant,
    },
    /// The process accepts no new calls and must exit.
    Draining {
        /// Time of the shutdown request.
        since: Instant,
        /// Time of the next kill.
        kill_at: Instant,
        /// Reason for killing it; `None` after a normal shutdown request.
        cause: Option<Cause>,
    },
    /// No process. One may be started after a delay.
    Backoff {
        /// End of the delay.
        until: Instant,
        /// Reason why the last process stopped or did not start.
        cause: Cause,
    },
    /// No process. Calls fail until an attach, or until the `forgiveness` time has passed.
    Failed {
        /// Error for calls until then.
        cause: Cause,
        /// Time of the failure.
        at: Instant,
    },
}

impl State {
    /// Returns the name in `ps`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Starting { .. } => "starting",
            Self::Ready { .. } => "ready",
            Self::Draining { .. } => "draining",
            Self::Backoff { .. } => "backoff",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Source of a demand for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demander {
    /// A tool call.
    Call,
    /// A client attaches. Allows another start after a failure.
    Attach,
}

/// Decision about a demand.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Demand {
    /// The worker is ready.
    Use,
    /// Wait for the hello, or for the exit of a draining worker.
    WaitForReady,
    /// Start a process now, then call [`on_spawned`](crate::Lifecycle::on_spawned) or
    /// [`on_spawn_failed`](crate::Lifecycle::on_spawn_failed).
    Start,
    /// Wait until then, and demand again.
    WaitUntil(Instant),
    /// Fail the call with this cause at once.
    Refuse(Cause),
}

/// Command for the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Order {
    /// No action.
    Nothing,
    /// Request a shutdown.
    Shutdown,
    /// Kill the process and its descendants.
    Kill,
}

/// Decision about a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Hello {
    /// The worker is ready.
    Ready,
    /// Too late: the worker is already draining.
    Late,
    /// Not expected. If the worker sent it, this is a [`Cause::Protocol`].
    Unexpected,
}

/// Calls that depend on a worker when its process exits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// True if calls were sent to the process.
    pub in_flight: bool,
    /// True if queued calls or followers wait for the next process.
    pub waiting: bool,
}

/// Decision after a process exited or could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum AfterExit {
    /// Nothing until the next demand.
    Stay,
    /// Demand a worker at this time, for the waiting callers.
    RestartAt(Instant),
    /// The worker has failed: fail the waiting calls with the state's cause.
    GaveUp,
}
