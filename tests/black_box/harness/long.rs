//! What tests need that run for long, or longer if they are told: numbers from the environment, chance that can
//! be repeated, what the daemon holds.

use super::{Daemon, Process};
use serde_json::json;
use std::path::Path;

/// A number that asks for more than the usual.
pub(crate) fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Chance that can be repeated (xorshift).
pub(crate) struct Chance(u64);

impl Chance {
    /// From a seed, of which 0 is none.
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

/// Descriptors of the daemon. It is not to be looked into by its own user, who must believe what it says.
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

/// Memory of a process in KiB, with what it shares in equal parts; `None` where one may not look.
pub(crate) fn proportional_kib(pid: i32) -> Option<u64> {
    kib(Path::new(&format!("/proc/{pid}/smaps_rollup")), "Pss:")
}

fn kib(path: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_matches([' ', '\t', 'k', 'B']).parse().ok()
}

/// Processes below the daemon that are neither workers nor monitors.
pub(crate) fn strays(daemon: &Daemon) -> Vec<Process> {
    let is_ours = |process: &Process| process.name.starts_with("quack-");
    daemon.descendants().into_iter().filter(|process| !is_ours(process)).collect()
}
