//! Process tree and resource usage from `/proc`. Linux only: on other systems no process is found, and the
//! rows that need one report an error.

use anyhow::Context;
use quackd_testkit::{Process, descendants_of, is_alive, kib};
use std::time::{Duration, Instant};

/// Returns a process and its descendants.
pub(crate) fn tree(pid: i32) -> Vec<Process> {
    let Some(root) = Process::find(pid) else { return Vec::new() };
    std::iter::once(root).chain(descendants_of(pid)).collect()
}

/// Returns the processor time of `processes` so far, in seconds. Does not include exited threads.
pub(crate) fn processor_seconds(processes: &[Process]) -> anyhow::Result<f64> {
    let mut nanoseconds = 0.0;
    for process in processes {
        for task in std::fs::read_dir(format!("/proc/{}/task", process.pid))? {
            // A thread may exit between the two steps. Clock ticks are too coarse: most of these processes
            // use less than one per minute.
            let Ok(stat) = std::fs::read_to_string(task?.path().join("schedstat")) else {
                continue;
            };
            let used = stat.split_whitespace().next().context("an empty schedstat")?;
            nanoseconds += used.parse::<f64>()?;
        }
    }
    Ok(nanoseconds / 1e9)
}

/// Waits until all `processes` have exited. Returns false if some still run after `limit`.
pub(crate) fn wait_until_gone(processes: &[Process], limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while processes.iter().any(is_alive) {
        if until < Instant::now() {
            return false;
        }
        pause(Duration::from_millis(10));
    }
    true
}

/// Returns the proportional set size in bytes: each shared page counts in equal parts for its processes.
pub(crate) fn pss(pid: i32) -> anyhow::Result<f64> {
    bytes(pid, "smaps_rollup", "Pss:")
}

/// Returns the resident set size in bytes.
pub(crate) fn resident(pid: i32) -> anyhow::Result<f64> {
    bytes(pid, "status", "VmRSS:")
}

/// Returns the peak resident set size in bytes.
pub(crate) fn peak_resident(pid: i32) -> anyhow::Result<f64> {
    bytes(pid, "status", "VmHWM:")
}

fn bytes(pid: i32, file: &str, field: &str) -> anyhow::Result<f64> {
    let kib = kib(pid, file, field).with_context(|| format!("no {field} in /proc/{pid}/{file}"))?;
    Ok(kib as f64 * 1024.0)
}

/// Sleeps.
#[expect(clippy::disallowed_methods, reason = "a benchmark has no arbiter to stop")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
