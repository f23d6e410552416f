//! Ancestors of a process.

/// Maximum number of ancestors searched between a worker and the supervisor.
const MAX_GENERATIONS: usize = 8;

/// Whether `supervisor` is an ancestor of `pid`.
pub(crate) fn is_below(pid: u32, supervisor: u32) -> bool {
    let mut pid = pid;
    for _ in 0..MAX_GENERATIONS {
        match parent_of(pid) {
            Some(parent) if parent == supervisor => return true,
            Some(parent) => pid = parent,
            None => return false,
        }
    }
    false
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
