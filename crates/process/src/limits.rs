//! What commands may use, as data. Given by whoever starts a worker, imposed by the worker on itself and by
//! [`crate::run`] on each command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// What the commands of one session may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Processes at the same time. In a control group that can count them (`pids.max`): processes and
    /// threads of all commands of the session together, and one more cannot be started. Otherwise:
    /// processes of each command, which is ended when it has more ([`crate::EndedBy::Processes`]).
    ///
    /// `RLIMIT_NPROC` is not used here: it counts all that the user runs, also outside, and root is above it.
    /// In a user namespace of its own, where the kernel counts anew, a worker sets it when it confines itself.
    pub processes: u32,
    /// Open files of the worker and of each process, soft and hard; at least [`MIN_OPEN_FILES`], because
    /// the worker itself needs as many. `None`: 4,096, and a process may raise its own.
    pub open_files: Option<u64>,
    /// Bytes of the largest file that a process may write, soft and hard. It holds for the worker too, with
    /// its files of long outputs. `None`: no limit.
    pub file_size: Option<u64>,
    /// What has to be free on the disk for long outputs to be written to files, in bytes.
    pub min_free: u64,
    /// Processor time of each process (not of a command as a whole), in whole seconds, rounded up, at least
    /// one. Then it gets SIGXCPU, and a second later SIGKILL. `None`: no limit.
    pub cpu: Option<Duration>,
}

/// Fewest open files to which a worker can be limited.
pub const MIN_OPEN_FILES: u64 = 1024;

/// Processes of a session unless somebody says otherwise: builds with many compilers fit, an endless loop of
/// forks is stopped soon.
pub const DEFAULT_PROCESSES: u32 = 512;

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: DEFAULT_PROCESSES,
            open_files: None,
            file_size: None,
            min_free: 0,
            cpu: None,
        }
    }
}

impl Limits {
    /// Imposes on this process, and on all that it starts from now on, what is inherited: open files and the
    /// size of files. A limit is never raised. A worker calls it once it knows its limits, after
    /// [`crate::harden`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn impose(&self) -> io::Result<()> {
        let files = self.open_files.map(|files| files.max(MIN_OPEN_FILES));
        for (resource, wanted) in [(Resource::Nofile, files), (Resource::Fsize, self.file_size)] {
            let Some(wanted) = wanted else { continue };
            let now = getrlimit(resource);
            let lowest = |now: Option<u64>| Some(now.map_or(wanted, |now| now.min(wanted)));
            let new = Rlimit { current: lowest(now.current), maximum: lowest(now.maximum) };
            setrlimit(resource, new)?;
        }
        Ok(())
    }

    /// Imposes on a command that was just started what only it has: its processor time. What it forked in
    /// the meantime has none.
    #[cfg(target_os = "linux")]
    pub(crate) fn impose_on(&self, pid: u32) {
        let Some(cpu) = self.cpu else { return };
        let seconds = cpu.as_secs().saturating_add(u64::from(cpu.subsec_nanos() != 0)).max(1);
        let new = Rlimit { current: Some(seconds), maximum: Some(seconds.saturating_add(1)) };
        if let Ok(pid) = crate::handle::to_pid(pid) {
            // A command that has ended already used none.
            let _was = rustix::process::prlimit(Some(pid), Resource::Cpu, new);
        }
    }

    /// Another process's limits cannot be set here.
    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "the same as on Linux")]
    pub(crate) fn impose_on(&self, _: u32) {}
}
