//! Support for long runs: numbers from the environment, and the daemon's resource usage.

use super::{Daemon, Process};
use quackd_testkit::kib;
use serde_json::json;

/// Reads a number that overrides a default.
pub(crate) fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
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
    kib(pid, "status", "VmRSS:").unwrap()
}

/// Proportional memory of a process in KiB, in which sharers split shared pages. `None` if the
/// caller may not read it.
pub(crate) fn proportional_kib(pid: i32) -> Option<u64> {
    kib(pid, "smaps_rollup", "Pss:")
}

/// Descendants of the daemon that are neither workers nor monitors.
pub(crate) fn strays(daemon: &Daemon) -> Vec<Process> {
    let is_ours = |process: &Process| process.name.starts_with("quack-");
    daemon.descendants().into_iter().filter(|process| !is_ours(process)).collect()
}
