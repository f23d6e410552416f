//! The supervision tree as a table: start, monitoring, restart and shutdown of each kind of child.
//!
//! [`crate::Lifecycle`] interprets the rows of processes, `supervisor/src/children` executes its decisions, and
//! `quack doctor --tree` prints [`TREE`]. All timeouts and limits of supervision must be in this table.

use crate::{Backoff, CauseKind, HeartbeatSpec};
use std::time::Duration;

/// Start, monitoring, restart and shutdown of one kind of child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSpec {
    /// Name in logs, `doctor` and the protocol.
    pub name: &'static str,
    /// Purpose of the child, in a few words.
    pub about: &'static str,
    /// Process, one-shot process or thread.
    pub form: Form,
    /// Exits that cause a restart.
    pub restart: Restart,
    /// Maximum number of restarts in `period`.
    pub intensity: u32,
    /// Length of the restart window. The child fails at the next crash above `intensity`.
    pub period: Duration,
    /// Time in the failed state before a call may start the child again.
    pub forgiveness: Duration,
    /// Delays of restarts.
    pub backoff: Backoff,
    /// Timeout from spawn to ready, after which the child is killed. For a one-shot process, the timeout of
    /// the whole run.
    pub start: Duration,
    /// Heartbeat; `None` without one.
    pub heartbeat: Option<HeartbeatSpec>,
    /// Time from the shutdown request to the kill, and between repeated kills.
    pub shutdown: Duration,
    /// Causes that a restart cannot fix: the child fails at once.
    pub terminal: &'static [CauseKind],
}

/// Form of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A long-running process under its own monitor, one per session that needs it.
    Process,
    /// A process under its own monitor that does one task and exits.
    Errand,
    /// A thread of the supervisor.
    Thread,
}

impl Form {
    /// Returns the name in the protocol and in `doctor`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Errand => "errand",
            Self::Thread => "thread",
        }
    }
}

/// Exits that count as crashes, with OTP's names. A child without waiting callers is started only at the next
/// demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Every exit that was not requested.
    Permanent,
    /// Every exit except code 0 without calls in flight.
    Transient,
    /// No exit: waiting callers get an error, and the next demand starts the child again.
    Temporary,
    /// No exit: the supervisor exits with the child and is restarted by the service manager or the user.
    Escalate,
}

impl Restart {
    /// Returns the name in the protocol and in `doctor`.
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

/// Heartbeat of long-running workers.
pub const WORKER_HEARTBEAT: HeartbeatSpec = HeartbeatSpec {
    busy: Duration::from_secs(2),
    idle: Duration::from_secs(30),
    missed: 3,
    kill: Duration::from_secs(15),
};

/// The process that serves one session.
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

/// The process of one session's agent, with the same limits. It has this name for quackd's own agent too.
pub const AGENT: ChildSpec =
    ChildSpec { name: "pi-worker", about: "runs the agent of one session", ..SESSION_WORKER };

/// The process that forwards what one session's commands send to allowed hosts.
pub const NETWORK_PROXY: ChildSpec = ChildSpec {
    name: "proxy",
    about: "forwards one session's connections to allowed hosts",
    shutdown: Duration::from_secs(1),
    ..SESSION_WORKER
};

/// The process that leads requests for `PORT.NAME.localhost` to sessions.
pub const ROUTER: ChildSpec = ChildSpec {
    name: "router",
    about: "leads requests by name to servers of sessions",
    ..NETWORK_PROXY
};

/// Common values of one-shot processes, which are not restarted automatically.
const ONE_SHOT: ChildSpec = ChildSpec {
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

/// The process that reads the environment of the user's login shell. Its timeout is the shell's 10 s plus
/// time to kill the shell.
pub const ENVIRONMENT_WORKER: ChildSpec = ChildSpec {
    name: "login-environment",
    about: "asks the login shell for its environment",
    start: Duration::from_secs(12),
    ..ONE_SHOT
};

/// The process that asks the user's tools for the hosts of their registries. Its timeout is the tools' 10 s plus time
/// to kill them.
pub const TOOL_REGISTRIES: ChildSpec = ChildSpec {
    name: "tool-registries",
    about: "asks the user's tools for their registries",
    start: Duration::from_secs(14),
    ..ONE_SHOT
};

/// The process that uses one credential of the user. Its timeout has 30 s for the user's answer and 20 s for git or the ssh
/// agent.
pub const CREDENTIALS_WORKER: ChildSpec = ChildSpec {
    name: "credentials",
    about: "uses a credential of the user for a session",
    start: Duration::from_secs(65),
    shutdown: Duration::from_secs(1),
    ..ONE_SHOT
};

/// The process that makes, compares and applies the private copies of isolated sessions. It reads whole workspaces on
/// slow disks.
pub const ISOLATE_WORKER: ChildSpec = ChildSpec {
    name: "isolate",
    about: "works on the copies of isolated sessions",
    start: Duration::from_secs(120),
    shutdown: Duration::from_secs(1),
    ..ONE_SHOT
};

/// The process that records and restores states of a session's files.
pub const STATE_RECORDER: ChildSpec = ChildSpec {
    name: "record-states",
    about: "records the states of sessions' files",
    ..ISOLATE_WORKER
};

/// The process of one piece of work with an engine. Its timeout is the longest one of an errand, with time to kill the
/// engine's client.
pub const FAR_ERRAND: ChildSpec = ChildSpec {
    name: "far-errand",
    about: "does one piece of work with an engine",
    start: Duration::from_secs(615),
    ..ONE_SHOT
};

/// The process that removes files from repositories if a killed monitor could not. There may be many
/// repositories on slow disks. The next run removes the rest.
pub const REPOSITORY_CLEANER: ChildSpec = ChildSpec {
    name: "clean-repositories",
    about: "removes what workers made in repositories",
    start: Duration::from_secs(120),
    ..ONE_SHOT
};

/// The process that probes the available sandbox layers. It takes a few milliseconds.
pub const SYSTEM_PROBE: ChildSpec = ChildSpec {
    name: "probe",
    about: "probes the available sandbox layers",
    start: Duration::from_secs(4),
    shutdown: Duration::from_secs(1),
    ..ONE_SHOT
};

/// A thread of the supervisor. A panic on a thread aborts the process.
const THREAD: ChildSpec = ChildSpec {
    name: "",
    about: "",
    form: Form::Thread,
    restart: Restart::Escalate,
    start: Duration::ZERO,
    shutdown: Duration::from_millis(500),
    ..ONE_SHOT
};

/// The thread of the actors: listener, connections, registry and the actors of sessions.
pub const ACTORS_THREAD: ChildSpec = ChildSpec {
    name: "actors",
    about: "serves clients and decides about workers",
    heartbeat: None,
    ..THREAD
};

/// The thread that writes the durable files.
pub const STORE_THREAD: ChildSpec =
    ChildSpec { name: "store", about: "writes the durable files", ..THREAD };

/// The thread of web searches and model requests.
pub const EGRESS_THREAD: ChildSpec = ChildSpec {
    name: "egress",
    about: "searches the web and asks models, with the keys",
    ..THREAD
};

/// The thread of remote control.
pub const REMOTE_THREAD: ChildSpec =
    ChildSpec { name: "remote", about: "serves clients of other machines", ..THREAD };

/// The thread of the Prometheus endpoint. Exists only if configured.
pub const METRICS_THREAD: ChildSpec =
    ChildSpec { name: "metrics", about: "serves metrics to Prometheus", ..THREAD };

/// All kinds of children, in start order. They stop in reverse order.
pub const TREE: [&ChildSpec; 17] = [
    &STORE_THREAD,
    &EGRESS_THREAD,
    &ACTORS_THREAD,
    &REMOTE_THREAD,
    &METRICS_THREAD,
    &SYSTEM_PROBE,
    &ENVIRONMENT_WORKER,
    &TOOL_REGISTRIES,
    &CREDENTIALS_WORKER,
    &ISOLATE_WORKER,
    &STATE_RECORDER,
    &FAR_ERRAND,
    &REPOSITORY_CLEANER,
    &SESSION_WORKER,
    &NETWORK_PROXY,
    &ROUTER,
    &AGENT,
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
                assert!(
                    beat.busy * beat.missed < beat.kill,
                    "{}: unresponsive before the kill",
                    spec.name
                );
                assert!(beat.busy <= beat.idle, "{}", spec.name);
            }
            let restarts = matches!(spec.restart, Restart::Permanent | Restart::Transient);
            assert_eq!(restarts, 0 < spec.intensity, "{}", spec.name);
            let over_and_over = spec.terminal.contains(&CauseKind::TooManyRestarts);
            assert_eq!(restarts, over_and_over, "{}: a storm ends", spec.name);
        }
    }
}
