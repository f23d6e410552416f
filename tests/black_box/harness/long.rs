//! Support for long runs: numbers from the environment, repeatable random numbers, and the daemon's
//! resource usage.

use super::{Daemon, Process};
use serde_json::json;
use std::path::Path;

/// Reads a number that overrides a default.
pub(crate) fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Repeatable random numbers (xorshift).
pub(crate) struct Chance(u64);

impl Chance {
    /// Creates a generator. A seed of 0 is replaced, because xorshift would stay at 0.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed.max(1))
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// Number of open descriptors of the daemon. If `/proc` is not readable for the daemon's user, the
/// daemon reports the number.
pub(crate) fn n_descriptors(daemon: &Daemon) -> usize {
    match std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())) {
        Ok(entries) => entries.count(),
        Err(_) => {
            let ps = daemon.wire().request("quack.ps", json!({}));
            usize::try_from(ps["supervisor"]["openFiles"].as_u64().unwrap()).unwrap()
        }
    }
}

/// Resident memory of a process in KiB.
pub(crate) fn resident_kib(pid: i32) -> u64 {
    kib(Path::new(&format!("/proc/{pid}/status")), "VmRSS:").unwrap()
}

/// Proportional memory of a process in KiB, in which sharers split shared pages. `None` if the
/// caller may not read it.
pub(crate) fn proportional_kib(pid: i32) -> Option<u64> {
    kib(Path::new(&format!("/proc/{pid}/smaps_rollup")), "Pss:")
}

fn kib(path: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_matches([' ', '\t', 'k', 'B']).parse().ok()
}

/// Descendants of the daemon that are neither workers nor monitors.
pub(crate) fn strays(daemon: &Daemon) -> Vec<Process> {
    let is_ours = |process: &Process| process.name.starts_with("quack-");
    daemon.descendants().into_iter().filter(|process| !is_ours(process)).collect()
}
