//! Reasons why a worker stopped or did not start, with the texts for clients, logs and `ps`.

use std::fmt;
use std::time::Duration;

/// Exit code of a worker that a restart cannot help: the workspace is gone, or the policy cannot be enforced.
pub const EXIT_TERMINAL: i32 = 100;

/// Exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
    /// SIGKILL, and the kernel killed processes for lack of memory at that time, probably also this one.
    OutOfMemory,
}

/// Reason why a worker stopped or did not start. Error texts for clients contain its `Display` text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// This signal killed the process.
    Signal(i32),
    /// The process exited with this code.
    ExitCode(i32),
    /// As [`Exit::OutOfMemory`].
    OutOfMemory,
    /// The supervisor killed the session for exceeding its memory limit.
    MemoryLimit {
        /// Memory usage in MiB.
        mb: u64,
        /// Memory limit in MiB.
        limit_mb: u64,
    },
    /// The worker did not answer heartbeats and was killed.
    NotResponding,
    /// The worker was not ready within this time and was killed.
    StartTimeout(Duration),
    /// The user killed the worker.
    KilledByPerson,
    /// The worker violated the frame protocol and was killed. One line; at most 200 characters are shown.
    Protocol(String),
    /// The process limit or the descriptor limit was reached. A retry may succeed soon.
    CannotStart(String),
    /// The executable cannot be run. A retry fails too.
    CannotExec(String),
    /// The worker reported that it cannot serve the session. A retry fails too. One line; at most 300
    /// characters are shown.
    Refused(String),
    /// The link to a worker on another machine was lost, or was not made. One line; at most 300 characters are shown.
    LinkLost {
        /// Name of the place.
        place: String,
        /// Last line of the engine's client, or another description.
        reason: String,
    },
    /// The worker uses another version of the frame protocol.
    VersionMismatch {
        /// The supervisor's version.
        ours: u32,
        /// The worker's version.
        theirs: u32,
    },
    /// The worker crashed again after the maximum number of restarts.
    TooManyRestarts {
        /// Maximum number of restarts in `period`.
        intensity: u32,
        /// Length of the restart window.
        period: Duration,
        /// The last crash.
        last: Box<Self>,
    },
}

/// Kind of a [`Cause`]. A [`crate::ChildSpec`] lists its terminal kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseKind {
    /// [`Cause::Signal`].
    Signal,
    /// [`Cause::ExitCode`] other than [`EXIT_TERMINAL`].
    ExitCode,
    /// [`Cause::ExitCode`] with [`EXIT_TERMINAL`].
    ExitTerminal,
    /// [`Cause::OutOfMemory`] and [`Cause::MemoryLimit`].
    OutOfMemory,
    /// [`Cause::NotResponding`].
    NotResponding,
    /// [`Cause::StartTimeout`].
    StartTimeout,
    /// [`Cause::KilledByPerson`].
    KilledByPerson,
    /// [`Cause::Protocol`].
    Protocol,
    /// [`Cause::CannotStart`].
    CannotStart,
    /// [`Cause::CannotExec`].
    CannotExec,
    /// [`Cause::Refused`].
    Refused,
    /// [`Cause::LinkLost`].
    LinkLost,
    /// [`Cause::VersionMismatch`].
    VersionMismatch,
    /// [`Cause::TooManyRestarts`].
    TooManyRestarts,
}

impl CauseKind {
    /// Returns the name in the protocol and in `doctor`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::ExitCode => "exit-code",
            Self::ExitTerminal => "exit-100",
            Self::OutOfMemory => "out-of-memory",
            Self::NotResponding => "not-responding",
            Self::StartTimeout => "start-timeout",
            Self::KilledByPerson => "killed-by-person",
            Self::Protocol => "protocol",
            Self::CannotStart => "cannot-start",
            Self::CannotExec => "cannot-exec",
            Self::Refused => "refused",
            Self::LinkLost => "link-lost",
            Self::VersionMismatch => "version-mismatch",
            Self::TooManyRestarts => "too-many-restarts",
        }
    }
}

impl Cause {
    /// Returns the kind, which a child's specification may list as terminal.
    #[must_use]
    pub const fn kind(&self) -> CauseKind {
        match self {
            Self::ExitCode(EXIT_TERMINAL) => CauseKind::ExitTerminal,
            Self::ExitCode(_) => CauseKind::ExitCode,
            Self::Signal(_) => CauseKind::Signal,
            Self::OutOfMemory | Self::MemoryLimit { .. } => CauseKind::OutOfMemory,
            Self::NotResponding => CauseKind::NotResponding,
            Self::StartTimeout(_) => CauseKind::StartTimeout,
            Self::KilledByPerson => CauseKind::KilledByPerson,
            Self::Protocol(_) => CauseKind::Protocol,
            Self::CannotStart(_) => CauseKind::CannotStart,
            Self::CannotExec(_) => CauseKind::CannotExec,
            Self::Refused(_) => CauseKind::Refused,
            Self::LinkLost { .. } => CauseKind::LinkLost,
            Self::VersionMismatch { .. } => CauseKind::VersionMismatch,
            Self::TooManyRestarts { .. } => CauseKind::TooManyRestarts,
        }
    }
}

impl From<Exit> for Cause {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::ExitCode(code),
            Exit::Signal(signal) => Self::Signal(signal),
            Exit::OutOfMemory => Self::OutOfMemory,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::ExitCode(code) => write!(f, "exit code {code}"),
            Self::OutOfMemory => write!(f, "signal 9, probably out of memory"),
            Self::MemoryLimit { mb, limit_mb } => write!(
                f,
                "out of memory: its session had {mb} MiB, and limits.session_memory_mb is {limit_mb}"
            ),
            Self::NotResponding => write!(f, "not responding"),
            Self::StartTimeout(limit) => write!(f, "did not start within {} s", limit.as_secs()),
            Self::KilledByPerson => write!(f, "killed by a person"),
            Self::Protocol(text) => write!(f, "protocol error: {text:.200}"),
            Self::CannotStart(text) | Self::CannotExec(text) => {
                write!(f, "cannot start process: {text:.200}")
            }
            Self::Refused(text) => write!(f, "cannot start: {text:.300}"),
            Self::LinkLost { place, reason } => write!(f, "link to {place} lost: {reason:.300}"),
            Self::VersionMismatch { ours, theirs } => {
                write!(f, "version mismatch: worker speaks protocol {theirs}, supervisor {ours}")
            }
            Self::TooManyRestarts { intensity, period, last } => {
                write!(f, "failed {intensity} times in {} s (last: {last})", period.as_secs())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_text_and_its_verdict() {
        let too_many = Cause::TooManyRestarts {
            intensity: 5,
            period: Duration::from_secs(60),
            last: Box::new(Cause::Signal(9)),
        };
        let table = [
            (Cause::Signal(9), "signal 9", false),
            (Cause::ExitCode(3), "exit code 3", false),
            (Cause::ExitCode(100), "exit code 100", true),
            (Cause::OutOfMemory, "signal 9, probably out of memory", false),
            (
                Cause::MemoryLimit { mb: 1300, limit_mb: 1024 },
                "out of memory: its session had 1300 MiB, and limits.session_memory_mb is 1024",
                false,
            ),
            (Cause::NotResponding, "not responding", false),
            (Cause::KilledByPerson, "killed by a person", false),
            (Cause::StartTimeout(Duration::from_secs(10)), "did not start within 10 s", false),
            (Cause::Protocol("no hello".to_owned()), "protocol error: no hello", false),
            (
                Cause::CannotStart("too many open files".to_owned()),
                "cannot start process: too many open files",
                false,
            ),
            (Cause::CannotExec("not found".to_owned()), "cannot start process: not found", true),
            (Cause::Refused("no namespaces".to_owned()), "cannot start: no namespaces", true),
            (
                Cause::VersionMismatch { ours: 1, theirs: 2 },
                "version mismatch: worker speaks protocol 2, supervisor 1",
                true,
            ),
            (too_many, "failed 5 times in 60 s (last: signal 9)", true),
        ];
        for (cause, text, terminal) in table {
            let is_terminal = crate::SESSION_WORKER.terminal.contains(&cause.kind());
            assert_eq!((cause.to_string().as_str(), is_terminal), (text, terminal));
        }
    }

    #[test]
    fn a_long_text_from_a_worker_is_cut() {
        let text = Cause::Protocol("ü".repeat(1_000_000)).to_string();
        assert_eq!(text, format!("protocol error: {}", "ü".repeat(200)));
    }
}
