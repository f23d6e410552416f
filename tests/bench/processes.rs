//! Processes as the kernel shows them: who is below whom, what they use. Linux only; elsewhere nothing
//! is found, and the rows that need it fail and say so.

use anyhow::Context;
use std::time::{Duration, Instant};

/// One process. Its start time tells it from a later one with the same number.
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
        // The name before it may contain anything.
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

/// A process and everything below it.
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

/// Processor time of `processes` so far, in seconds. Threads that have ended are not counted.
pub(crate) fn processor_seconds(processes: &[Process]) -> anyhow::Result<f64> {
    let mut nanoseconds = 0.0;
    for process in processes {
        for task in std::fs::read_dir(format!("/proc/{}/task", process.pid))? {
            // A thread may end between the two steps. Its clock ticks would be too coarse: most of
            // these processes do not use one in a minute.
            let Ok(stat) = std::fs::read_to_string(task?.path().join("schedstat")) else {
                continue;
            };
            let used = stat.split_whitespace().next().context("an empty schedstat")?;
            nanoseconds += used.parse::<f64>()?;
        }
    }
    Ok(nanoseconds / 1e9)
}

/// Waits until none of `processes` lives. `false` if some still do after `limit`.
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

/// Proportional set size in bytes: shared pages count in equal parts for all who map them.
pub(crate) fn pss(pid: i32) -> anyhow::Result<f64> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Resident set size in bytes.
pub(crate) fn resident(pid: i32) -> anyhow::Result<f64> {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// The largest resident set size so far, in bytes.
pub(crate) fn peak_resident(pid: i32) -> anyhow::Result<f64> {
    field(&format!("/proc/{pid}/status"), "VmHWM:")
}

fn field(path: &str, name: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"));
    let kib: f64 = value.with_context(|| format!("no {name} in {path}"))?.trim().parse()?;
    Ok(kib * 1024.0)
}

/// Lets time pass.
#[expect(clippy::disallowed_methods, reason = "a benchmark has no arbiter to stop")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
