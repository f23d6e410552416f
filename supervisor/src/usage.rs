//! What the daemon itself and the agents use, for `quack.ps`.

/// Memory and descriptors of this process, where the system tells.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Resident memory in KiB.
    pub(crate) resident_kb: Option<u64>,
    /// Open file descriptors.
    pub(crate) open_files: Option<usize>,
}

/// Reads it from `/proc`; nothing is known elsewhere. For the blocking pool.
pub(crate) fn own_usage_blocking() -> Usage {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // The directory's own descriptor is one of those listed.
    let open_files =
        std::fs::read_dir("/proc/self/fd").ok().map(|found| found.count().saturating_sub(1));
    Usage { resident_kb: resident_kb(&status), open_files }
}

/// Resident memory of another process in KiB, where the system tells. For display, and for the blocking pool.
pub(crate) fn resident_kb_blocking(pid: u32) -> Option<u64> {
    resident_kb(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn resident_kb(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_text() {
        assert_eq!(resident_kb("VmPeak:\t 9 kB\nVmRSS:\t    3456 kB\n"), Some(3456));
        assert_eq!(resident_kb("VmRSS: x"), None);
        assert_eq!(resident_kb(""), None);
    }
}
