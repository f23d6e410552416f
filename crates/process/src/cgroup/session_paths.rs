//! Control group of a session as data: for the supervisor and the monitor, which kill its commands, and for its worker.

use super::CgroupKind;
use super::directory::Directory;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between two attempts to remove a group that still contains a monitor.
const REMOVE_INTERVAL: Duration = Duration::from_millis(5);

/// Control group of one session as plain data, for its worker and for the processes that kill its commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPaths {
    /// Kind of the hierarchy.
    pub kind: CgroupKind,
    /// Path of the session's directory, outside of the worker's mount namespace.
    pub directory: PathBuf,
    /// Name of the group in `/proc/PID/cgroup`.
    pub cgroup: String,
    /// Path of the group in which the worker runs.
    pub home: PathBuf,
    /// Name of the group in which the worker runs.
    pub home_cgroup: String,
    /// Maximum number of processes and threads. `None` if they are not counted.
    pub processes: Option<u32>,
    /// Group that limits the memory of the session: around this one with the worker (version 2), or in the hierarchy of
    /// the `memory` controller (version 1). `None` if the kernel limits no memory.
    pub memory: Option<Box<Self>>,
    /// Reason if the kernel limits the memory of other sessions, but not of this one. For the log of the supervisor.
    #[serde(skip)]
    pub no_memory_limit: Option<String>,
}

/// Result of killing a session's control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupKillReport {
    /// Number of running processes that were killed.
    pub killed: u32,
    /// Number of threads left when the time limit passed. They hang in the kernel, or may not be killed.
    pub survivors: u32,
    /// True if the directories are removed. Then certainly no process is left.
    pub removed: bool,
}

impl SessionPaths {
    /// Kills all processes in the session's group and removes the group. Returns after at most `limit` plus one
    /// check, and the time in which the kernel drops cached files (version 1). May be called again, and by several
    /// callers at once. The worker and its monitor are not in the group.
    ///
    /// # Errors
    /// The directory cannot be opened or read. A missing directory is not an error.
    pub fn end_blocking(&self, limit: Duration) -> io::Result<CgroupKillReport> {
        let until = Instant::now() + limit;
        let ended = self.end_commands_blocking(until);
        let is_removed = self.memory.as_ref().is_none_or(|memory| memory.remove_blocking(until));
        ended.map(|end| CgroupKillReport { removed: end.removed && is_removed, ..end })
    }

    /// Removes the group that limits the memory. Its commands were killed before. Returns false if it is still there,
    /// and true without an attempt if this process is in it: the monitor leaves that to the supervisor.
    fn remove_blocking(&self, until: Instant) -> bool {
        let Ok(group) = Directory::open(self.kind, &self.directory, self.cgroup.clone()) else {
            return !self.directory.exists();
        };
        if group.contains(std::process::id()) {
            return true;
        }
        if self.kind == CgroupKind::Memory {
            // A removed group exists in the kernel until its last cached file is dropped.
            group.write("memory.force_empty", "0").ok();
        }
        loop {
            // The result is checked on the next line: another process may have removed the directory.
            std::fs::remove_dir(&self.directory).ok();
            let is_removed = !self.directory.exists();
            if is_removed || until <= Instant::now() {
                return is_removed;
            }
            // In version 2 the monitor is in the group until it exits.
            #[expect(clippy::disallowed_methods, reason = "a blocking function, and it says so")]
            std::thread::sleep(REMOVE_INTERVAL);
        }
    }

    fn end_commands_blocking(&self, until: Instant) -> io::Result<CgroupKillReport> {
        let end = CgroupKillReport { killed: 0, survivors: 0, removed: true };
        let session = match Directory::open(self.kind, &self.directory, self.cgroup.clone()) {
            Ok(session) => session,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(end),
            Err(error) => return Err(error),
        };
        let ended = match session.end_blocking(until) {
            Ok(ended) => ended,
            // Another process has removed the directory.
            Err(_) if !self.directory.exists() => return Ok(end),
            Err(error) => return Err(error),
        };

        // The result is checked on the next line: another process may have removed the directory.
        std::fs::remove_dir(&self.directory).ok();
        let removed = !self.directory.exists();
        Ok(CgroupKillReport { killed: ended.killed, survivors: ended.left, removed })
    }
}
