//! Limits the number of processes of a session's commands in tier D, where neither a control group nor a namespace
//! counts them.
//!
//! The kernel counts all processes and threads of a user together. So the limit is the number that the user has
//! outside the session's commands, plus the number that these commands may have. The process that becomes the command
//! sets the limit on itself permanently: the command and its descendants cannot raise it. The worker keeps the user's
//! own limit, so it can start threads and other commands while a command has reached its limit.

use rustix::process::{Resource, Rlimit, getpid, getppid, getrlimit, getuid, setrlimit};
use std::collections::HashMap;
use std::fs;
use std::io;

/// Processes and threads below the user's own limit that no command may take, for the workers and the user's other
/// programs.
const RESERVED: u64 = 64;

/// Longest chain of parents that is followed.
const MAX_ANCESTORS: usize = 4096;

/// Limits this process, and all that it will start, to a total of `processes` together with all other descendants of
/// its parent, the worker.
///
/// # Errors
/// `/proc` cannot be read, or the kernel refuses the limit.
pub(crate) fn limit_processes(processes: u64) -> io::Result<()> {
    let worker = getppid().unwrap_or_else(getpid).as_raw_nonzero().get();
    let limit = table()?.outside(worker, getuid().as_raw()).saturating_add(processes);

    let most = getrlimit(Resource::Nproc).maximum.map(|most| most.saturating_sub(RESERVED));
    let value = Some(most.map_or(limit, |most| most.min(limit)));
    Ok(setrlimit(Resource::Nproc, Rlimit { current: value, maximum: value })?)
}

/// An entry of the process table.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    parent: i32,
    real_user: u32,
    threads: u64,
}

impl Entry {
    /// Reads `/proc/<pid>/status`. The owner of the directory is not usable: the kernel gives the directories of
    /// workers to root, because their memory is protected.
    fn read(status: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line?.split_whitespace().next()
        };
        Some(Self {
            parent: value("PPid:")?.parse().ok()?,
            real_user: value("Uid:")?.parse().ok()?,
            threads: value("Threads:")?.parse().ok()?,
        })
    }
}

#[derive(Debug, Default)]
struct Table(HashMap<i32, Entry>);

fn table() -> io::Result<Table> {
    let mut table = Table::default();
    for entry in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may have exited since the directory was listed.
        let Ok(status) = fs::read(entry.path().join("status")) else { continue };
        table.0.extend(Entry::read(&String::from_utf8_lossy(&status)).map(|entry| (pid, entry)));
    }
    Ok(table)
}

impl Table {
    /// Number of processes and threads of this real user that are not below `worker`.
    fn outside(&self, worker: i32, user: u32) -> u64 {
        let of_user = self.0.iter().filter(|(_, entry)| entry.real_user == user);
        let outside = of_user.filter(|(pid, _)| !self.is_below(**pid, worker));
        outside.map(|(_, entry)| entry.threads).sum()
    }

    /// True for a descendant of the worker. Orphans are its children, because it is a sub-reaper. A process whose
    /// parent exited while the table was read counts as a descendant: a fork bomb must not look like the user's other
    /// programs.
    fn is_below(&self, pid: i32, worker: i32) -> bool {
        let mut at = pid;
        for _ in 0..MAX_ANCESTORS {
            match self.0.get(&at).map(|entry| entry.parent) {
                _ if at == worker => return at != pid,
                Some(0) => return false,
                Some(parent) => at = parent,
                None => return true,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let status = "Name:\tx\nPPid:\t7\nUid:\t1000\t0\t0\t0\nGid:\t1\nThreads:\t12\nSigQ:\t0/1\n";
        let entry = Entry { parent: 7, real_user: 1000, threads: 12 };
        assert_eq!(Entry::read(status), Some(entry));
        assert_eq!(Entry::read("Name:\tx\n"), None);
        assert!(1 <= table().unwrap().outside(0, getuid().as_raw()));
    }

    #[test]
    fn processes_of_the_session_and_of_other_users_do_not_count() {
        let entry = |parent, real_user, threads| Entry { parent, real_user, threads };
        let table = Table(HashMap::from([
            (1, entry(0, 0, 1)),
            // The daemon, the worker, its commands.
            (10, entry(1, 1000, 4)),
            (11, entry(10, 1000, 8)),
            (12, entry(11, 1000, 16)),
            (13, entry(12, 1000, 32)),
            // Its parent has exited.
            (14, entry(99, 1000, 64)),
            // Another program of the user, and one of another user.
            (20, entry(1, 1000, 128)),
            (21, entry(1, 1001, 256)),
        ]));
        assert_eq!(table.outside(11, 1000), 4 + 8 + 128);
        assert_eq!(table.outside(11, 1001), 256);
    }
}
