//! The processes of the machine from `/proc`, in the form that macOS has. Used by [`crate::members`].

use crate::process_facts::ProcessFacts;
use crate::process_tree::{start_time, stat};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum number of listed processes.
const MAX_PROCESSES: usize = 65_536;

/// Maximum size of an environment in bytes.
const MAX_ENVIRONMENT_BYTES: u64 = 8 * 1024 * 1024;

/// Maximum size of `/proc/PID/status` that is read, in bytes. The user ids are near the begin.
const MAX_STATUS_BYTES: u64 = 4096;

/// Lists all processes by number.
///
/// # Errors
/// `/proc` is not mounted, or no descriptor is left.
pub(crate) fn processes() -> io::Result<BTreeMap<u32, ProcessFacts>> {
    let entries = Path::new("/proc").read_dir()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all = pids.filter_map(process_facts).take(MAX_PROCESSES);
    Ok(all.map(|facts| (facts.pid, facts)).collect())
}

/// Reads one process. `None` if it is gone.
pub(crate) fn process_facts(pid: u32) -> Option<ProcessFacts> {
    let stat = stat(pid).ok()?;
    Some(ProcessFacts {
        pid,
        parent: stat.parent,
        group: stat.group,
        user: user(pid)?,
        started: start_time(pid).ok()?,
        has_ended: stat.has_ended,
    })
}

/// Returns the real user id. The owner of `/proc/PID` is another one for a process that may not be traced.
fn user(pid: u32) -> Option<u32> {
    let mut status = Vec::new();
    let file = File::open(format!("/proc/{pid}/status")).ok()?;
    file.take(MAX_STATUS_BYTES).read_to_end(&mut status).ok()?;
    let status = String::from_utf8_lossy(&status);
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().next()?.parse().ok()
}

/// Returns whether an entry of the environment of a process begins with `begin`. `None` if it may not be read, or if the
/// process has no environment: it may be starting.
pub(crate) fn has_entry(pid: u32, begin: &[u8]) -> Option<bool> {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut environment).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    (!environment.is_empty()).then(|| entries.any(|entry| entry.starts_with(begin)))
}
