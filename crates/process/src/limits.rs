//! Resource limits of commands, as data. The process that starts a worker sets them. The worker applies them to
//! itself, and [`crate::run`] applies them to each command.

use crate::platform::limit_cpu;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Resource limits of the commands of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Maximum number of processes at the same time. If a control group counts them (`pids.max`): processes and
    /// threads of all commands of the session together, and the next one cannot start. Otherwise: processes of each
    /// command, which is stopped if it has more ([`crate::EndedBy::Processes`]).
    ///
    /// `RLIMIT_NPROC` is not used here: it counts all processes of the user, and does not apply to root. In a
    /// separate user namespace, which has its own count, a worker sets it when it confines itself.
    pub processes: u32,
    /// Memory of this process and all commands of the session together, in bytes. If they have more, the command with
    /// most memory is stopped ([`crate::EndedBy::Memory`]). Checked every 0.1 to 2 s, on Linux only. Where a control
    /// group limits memory, the kernel kills processes above this value plus 5/4 of [`Limits::files_in_memory`]. `None`:
    /// no limit.
    pub memory: Option<u64>,
    /// Open files of the worker and of each process, soft and hard; at least [`MIN_OPEN_FILES`], because the worker
    /// needs that many. `None`: 4,096, and a process may raise its own limit.
    pub open_files: Option<u64>,
    /// Largest file that a process may write, soft and hard, in bytes. Also applies to the worker with its spill
    /// files. `None`: no limit.
    pub file_size: Option<u64>,
    /// Free disk space required to write spill files, in bytes.
    pub min_free: u64,
    /// CPU time of each process (not of a command as a whole), rounded up to whole seconds, at least 1 s. At the
    /// limit the process gets SIGXCPU, and 1 s later SIGKILL. `None`: no limit.
    pub cpu: Option<Duration>,
}

/// Smallest and largest maximum size of a worker's files in memory, in bytes: those in its private directories. Between
/// them, the limit of memory also limits these files. The kernel counts them as memory of the session.
const MIN_FILES: u64 = 256 * 1024 * 1024;
const MAX_FILES: u64 = 2 * 1024 * 1024 * 1024;

/// Lowest limit of open files for a worker.
pub const MIN_OPEN_FILES: u64 = 1024;

/// Default number of processes of a session. Enough for builds with many compilers, and low enough to stop an endless
/// loop of forks soon.
pub const DEFAULT_PROCESSES: u32 = 512;

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: DEFAULT_PROCESSES,
            memory: None,
            open_files: None,
            file_size: None,
            min_free: 0,
            cpu: None,
        }
    }
}

impl Limits {
    /// Applies the inherited limits to this process and to all processes that it starts from now on: open files and
    /// file size. Never raises a limit. A worker calls it when it knows its limits, after [`crate::harden`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn impose(&self) -> io::Result<()> {
        let files = self.open_files.map(|files| files.max(MIN_OPEN_FILES));
        for (resource, limit) in [(Resource::Nofile, files), (Resource::Fsize, self.file_size)] {
            let Some(limit) = limit else { continue };
            // A limit of the service manager or of the user stays if it is lower.
            let now = getrlimit(resource);
            let lowest = |now: Option<u64>| Some(now.map_or(limit, |now| now.min(limit)));
            let new = Rlimit { current: lowest(now.current), maximum: lowest(now.maximum) };
            setrlimit(resource, new)?;
        }
        Ok(())
    }

    /// Returns the maximum size of the files in a worker's private directories, in bytes. They are in memory.
    #[must_use]
    pub fn files_in_memory(&self) -> u64 {
        self.memory.map_or(MAX_FILES, |memory| memory.clamp(MIN_FILES, MAX_FILES))
    }

    /// Returns the memory limit of the control group of a session, in bytes: memory and files together. With a lower
    /// one, files could take all memory of the group. Then the kernel would kill each new process, also the one that
    /// deletes the files.
    pub(crate) fn group_memory(&self) -> Option<u64> {
        // A file takes about 1 KiB of the kernel's memory, also an empty one. There is at most one for each 4 KiB.
        let files = self.files_in_memory();
        self.memory.map(|memory| memory.saturating_add(files).saturating_add(files / 4))
    }

    /// Applies the CPU time limit to a command that was just started. Processes that it forked before have no limit. On
    /// macOS this does nothing.
    pub(crate) fn impose_on(&self, pid: u32) {
        let Some(cpu) = self.cpu else { return };
        let seconds = cpu.as_secs().saturating_add(u64::from(cpu.subsec_nanos() != 0)).max(1);
        if let Ok(pid) = crate::pid::to_pid(pid) {
            limit_cpu(pid, seconds);
        }
    }
}
