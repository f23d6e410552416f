//! The words of the worker's state machine: states, what happens, what to do. [`crate::Worker`] is the
//! grammar.

use crate::Cause;
use std::time::Instant;

/// Where a worker is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// No process, and nothing against starting one.
    Absent,
    /// A process is being started or has not said hello.
    Starting {
        /// When the process was spawned, or the decision was taken.
        since: Instant,
    },
    /// The process takes calls.
    Ready {
        /// When it said hello.
        since: Instant,
    },
    /// The process takes no more calls and must end.
    Draining {
        /// When it was asked to.
        since: Instant,
        /// When it is killed, for the first time or again.
        kill_at: Instant,
        /// Why it was killed; `None` if it was asked politely.
        cause: Option<Cause>,
    },
    /// No process; one may be started from a point in time on.
    Backoff {
        /// That point in time.
        until: Instant,
        /// Why the last process ended or did not start.
        cause: Cause,
    },
    /// No process, and none is started before somebody asks again.
    Failed {
        /// The answer until then.
        cause: Cause,
        /// Since when.
        at: Instant,
    },
}

impl State {
    /// The word for it in `ps`.
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

/// Who wants a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demander {
    /// A tool call.
    Call,
    /// A client that attaches: asking again, after a failure.
    Attach,
}

/// What to do with a demand.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Demand {
    /// The worker is there.
    Use,
    /// Wait: for `hello`, or for the exit of a worker that is on its way out.
    WaitForReady,
    /// Start a process now, then report [`on_spawned`](crate::Worker::on_spawned) or
    /// [`on_spawn_failed`](crate::Worker::on_spawn_failed).
    Start,
    /// Wait until then, and ask again.
    WaitUntil(Instant),
    /// Answer with this cause at once.
    Refuse(Cause),
}

/// What to do with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Order {
    /// Nothing.
    Nothing,
    /// Ask it to end.
    Shutdown,
    /// Kill it with everything below it.
    Kill,
}

/// What a `hello` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Hello {
    /// The worker is ready.
    Ready,
    /// It came too late: the worker is on its way out.
    Late,
    /// It was not due. If the worker sent it, that is a [`Cause::Protocol`].
    Unexpected,
}

/// What depends on a worker when its process ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Calls had been given to the process.
    pub in_flight: bool,
    /// Somebody waits for the next one: queued calls, followers.
    pub waiting: bool,
}

/// What to do after a process has ended or could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum AfterExit {
    /// Nothing before the next demand.
    Stay,
    /// At this point in time, make a demand in the name of those who wait.
    RestartAt(Instant),
    /// The worker has failed: answer those who wait with the state's cause.
    GaveUp,
}
