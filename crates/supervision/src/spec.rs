//! What a kind of child is promised: the rule between the supervisor and its children as data.
//!
//! [`crate::Worker`] interprets it; `doctor` prints it.

use crate::Backoff;
use std::time::Duration;

/// How one kind of child is started, restarted and ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSpec {
    /// For logs and `doctor`.
    pub name: &'static str,
    /// Which ends count as crashes.
    pub restart: Restart,
    /// Restarts allowed …
    pub intensity: u32,
    /// … in any stretch of this length. One more crash and the child has failed.
    pub period: Duration,
    /// How long a restart waits.
    pub backoff: Backoff,
    /// Time from spawn to being ready, after which a starting child is killed.
    pub start: Duration,
    /// Time between being asked to end and being killed, and between attempts to kill.
    pub shutdown: Duration,
}

/// Which ends count as crashes, in OTP's words. Either way a worker that nobody waits for is not
/// started before the next demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Every end that was not asked for.
    Permanent,
    /// Every end but exit code 0 with no work in hand.
    Transient,
}

/// The one process that serves one session.
pub const SESSION_WORKER: ChildSpec = ChildSpec {
    name: "session-worker",
    restart: Restart::Transient,
    intensity: 5,
    period: Duration::from_secs(60),
    backoff: Backoff {
        min: Duration::from_millis(200),
        max: Duration::from_secs(30),
        factor: 2,
        jitter_percent: 10,
    },
    start: Duration::from_secs(10),
    shutdown: Duration::from_secs(5),
};

/// The one process that talks to one session's Pi, on the same terms.
pub const PI_WORKER: ChildSpec = ChildSpec { name: "pi-worker", ..SESSION_WORKER };
