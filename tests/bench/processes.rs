//! Process tree and resource usage from `/proc`. Linux only: on other systems no process is found, and the
//! rows that need one report an error.

use anyhow::Context;
use std::time::{Duration, Instant};

/// One process. The start time distinguishes it from a later process with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    parent: i32,
    started: u64,
    is_zombie: bool,
}

impl Process {
    fn find(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before it may contain any character.
        let (_, tail) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            pid,
            is_zombie: *fields.first()? == "Z",
            parent: fields.get(1)?.parse().ok()?,
            started: number(19)?,
        })
    }

    fn is_alive(self) -> bool {
        Self::find(self.pid).is_some_and(|now| now.started == self.started && !now.is_zombie)
    }
}

fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::find)
        .collect()
}

/// Returns a process and its descendants.
pub(crate) fn tree(pid: i32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = all.iter().filter(|one| one.pid == pid).copied().collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|one| one.pid) {
        found.extend(all.iter().filter(|one| one.parent == parent));
        next += 1;
    }
    found
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
    while processes.iter().any(|process| process.is_alive()) {
        if until < Instant::now() {
            return false;
        }
        pause(Duration::from_millis(10));
    }
    true
}

/// Returns the proportional set size in bytes: each shared page counts in equal parts for its processes.
pub(crate) fn pss(pid: i32) -> anyhow::Result<f64> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Returns the resident set size in bytes.
pub(crate) fn resident(pid: i32) -> anyhow::Result<f64> {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Returns the peak resident set size in bytes.
pub(crate) fn peak_resident(pid: i32) -> anyhow::Result<f64> {
    field(&format!("/proc/{pid}/status"), "VmHWM:")
}

fn field(path: &str, name: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"));
    let kib: f64 = value.with_context(|| format!("no {name} in {path}"))?.trim().parse()?;
    Ok(kib * 1024.0)
}

/// Sleeps.
#[expect(clippy::disallowed_methods, reason = "a benchmark has no arbiter to stop")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
