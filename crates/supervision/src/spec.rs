//! What each kind of child is promised: the supervision tree as one table of data.
//!
//! [`crate::Worker`] interprets the rows of workers, `supervisor/src/child` does what it says, and
//! `quack doctor --tree` prints all of [`TREE`]. A number of supervision that stands anywhere else is a mistake.

use crate::{Backoff, CauseKind, HeartbeatSpec};
use std::time::Duration;

/// How one kind of child is started, watched, restarted and ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSpec {
    /// For logs, `doctor` and the wire.
    pub name: &'static str,
    /// What it is there for, in a few words.
    pub about: &'static str,
    /// What kind of thing it is.
    pub form: Form,
    /// Which ends are followed by another start.
    pub restart: Restart,
    /// Restarts allowed …
    pub intensity: u32,
    /// … in any stretch of this length. One more crash and the child has failed.
    pub period: Duration,
    /// How long a failed child stays failed, whoever calls: then all is forgiven.
    pub forgiveness: Duration,
    /// How long a restart waits.
    pub backoff: Backoff,
    /// Time from spawn to being ready, after which a starting child is killed. Of a child that runs once: the
    /// time for all that it does.
    pub start: Duration,
    /// How it is asked whether it is alive; `None` if it is not.
    pub heartbeat: Option<HeartbeatSpec>,
    /// Time between being asked to end and being killed, and between attempts to kill.
    pub shutdown: Duration,
    /// Causes after which another start cannot help: the child fails at once.
    pub terminal: &'static [CauseKind],
}

/// What a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A process below a monitor of its own, one for each session that needs one.
    Process,
    /// A process below a monitor of its own that does one thing and ends.
    Errand,
    /// A thread of the supervisor.
    Thread,
}

impl Form {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Errand => "errand",
            Self::Thread => "thread",
        }
    }
}

/// Which ends count as crashes, in OTP's words. In any case a child that nobody waits for is not started
/// before the next demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Every end that was not asked for.
    Permanent,
    /// Every end but exit code 0 with no work in hand.
    Transient,
    /// None: it is not started again for those who waited; who comes next has another one started.
    Temporary,
    /// None: its end is the end of the supervisor, which whoever started that starts again.
    Escalate,
}

impl Restart {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::Temporary => "temporary",
            Self::Escalate => "escalate",
        }
    }
}

const NO_DELAY: Backoff =
    Backoff { min: Duration::ZERO, max: Duration::ZERO, factor: 1, jitter_percent: 0 };

/// How workers that live on are asked whether they are alive.
pub const WORKER_HEARTBEAT: HeartbeatSpec = HeartbeatSpec {
    busy: Duration::from_secs(2),
    idle: Duration::from_secs(30),
    missed: 3,
    kill: Duration::from_secs(15),
};

/// The one process that serves one session.
pub const SESSION_WORKER: ChildSpec = ChildSpec {
    name: "session-worker",
    about: "runs the tools of one session",
    form: Form::Process,
    restart: Restart::Transient,
    intensity: 5,
    period: Duration::from_secs(60),
    forgiveness: Duration::from_secs(60),
    backoff: Backoff {
        min: Duration::from_millis(200),
        max: Duration::from_secs(30),
        factor: 2,
        jitter_percent: 10,
    },
    start: Duration::from_secs(10),
    heartbeat: Some(WORKER_HEARTBEAT),
    shutdown: Duration::from_secs(5),
    terminal: &[
        CauseKind::ExitTerminal,
        CauseKind::CannotExec,
        CauseKind::Refused,
        CauseKind::VersionMismatch,
        CauseKind::TooManyRestarts,
    ],
};

/// The one process that talks to one session's Pi, on the same terms.
pub const PI_WORKER: ChildSpec =
    ChildSpec { name: "pi-worker", about: "runs Pi for one session", ..SESSION_WORKER };

/// What runs once and is not tried again by itself.
const ERRAND: ChildSpec = ChildSpec {
    name: "",
    about: "",
    form: Form::Errand,
    restart: Restart::Temporary,
    intensity: 0,
    backoff: NO_DELAY,
    heartbeat: None,
    shutdown: Duration::from_secs(3),
    terminal: &[],
    ..SESSION_WORKER
};

/// The process that asks the user's login shell for its environment. Its time is the shell's 10 s, and some
/// to end the shell.
pub const ENVIRONMENT_WORKER: ChildSpec = ChildSpec {
    name: "login-environment",
    about: "asks the login shell for its environment",
    start: Duration::from_secs(12),
    ..ERRAND
};

/// The process that removes from repositories what a killed monitor could not. Repositories may be many and
/// disks slow; what it leaves is removed by the next one.
pub const REPOSITORY_CLEANER: ChildSpec = ChildSpec {
    name: "clean-repositories",
    about: "removes what workers made in repositories",
    start: Duration::from_secs(120),
    ..ERRAND
};

/// The process that finds out which layers of confinement work here. It takes some milliseconds.
pub const SYSTEM_PROBE: ChildSpec = ChildSpec {
    name: "probe",
    about: "finds out what confines here",
    start: Duration::from_secs(4),
    shutdown: Duration::from_secs(1),
    ..ERRAND
};

/// A thread of the supervisor: a panic on one of them aborts the process.
const THREAD: ChildSpec = ChildSpec {
    name: "",
    about: "",
    form: Form::Thread,
    restart: Restart::Escalate,
    start: Duration::ZERO,
    shutdown: Duration::from_millis(500),
    ..ERRAND
};

/// The thread of the actors: listener, connections, registry and one handle for each worker.
pub const ACTORS_THREAD: ChildSpec = ChildSpec {
    name: "actors",
    about: "serves clients and decides about workers",
    heartbeat: None,
    ..THREAD
};

/// The thread that writes the durable files.
pub const STORE_THREAD: ChildSpec =
    ChildSpec { name: "store", about: "writes the durable files", ..THREAD };

/// The thread of web searches.
pub const EGRESS_THREAD: ChildSpec =
    ChildSpec { name: "egress", about: "searches the web, with the key", ..THREAD };

/// The thread of remote control.
pub const REMOTE_THREAD: ChildSpec =
    ChildSpec { name: "remote", about: "serves clients of other machines", ..THREAD };

/// The thread of the endpoint that a Prometheus asks; only if one is configured.
pub const METRICS_THREAD: ChildSpec =
    ChildSpec { name: "metrics", about: "gives numbers to Prometheus", ..THREAD };

/// Every kind of child of the supervisor, in the order of its start; the stop is the other way round.
pub const TREE: [&ChildSpec; 10] = [
    &STORE_THREAD,
    &EGRESS_THREAD,
    &ACTORS_THREAD,
    &REMOTE_THREAD,
    &METRICS_THREAD,
    &SYSTEM_PROBE,
    &ENVIRONMENT_WORKER,
    &REPOSITORY_CLEANER,
    &SESSION_WORKER,
    &PI_WORKER,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_of_the_tree_keeps_its_own_promise() {
        let names: BTreeSet<_> = TREE.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), TREE.len(), "names are unique");
        for spec in TREE {
            assert!(!spec.name.is_empty() && !spec.about.is_empty(), "{spec:?}");
            assert!(!spec.shutdown.is_zero(), "{}: what ends is given time", spec.name);
            assert!(spec.backoff.min <= spec.backoff.max, "{}", spec.name);
            if let Some(beat) = spec.heartbeat {
                assert!(beat.busy * beat.missed < beat.kill, "{}: told before it dies", spec.name);
                assert!(beat.busy <= beat.idle, "{}", spec.name);
            }
            let restarts = matches!(spec.restart, Restart::Permanent | Restart::Transient);
            assert_eq!(restarts, 0 < spec.intensity, "{}", spec.name);
            let over_and_over = spec.terminal.contains(&CauseKind::TooManyRestarts);
            assert_eq!(restarts, over_and_over, "{}: a storm ends", spec.name);
        }
    }
}
