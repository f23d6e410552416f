//! Resource usage of the daemon, the workers, the Pis and their descendants, for `quack.ps`.

use quackd_process::number_after;
use quackd_protocol::client::UsageInfo;
use std::collections::{HashMap, HashSet};

/// Maximum number of processes that are read. Further ones are not counted.
const MAX_PROCESSES: usize = 65_536;

/// Indices of fields in `/proc/<pid>/stat`, counted after the name: the parent, the processor time, and the resident
/// pages. The processor time has four fields: user and system time of the process, and of its exited children.
const PARENT: usize = 1;
const TICKS: std::ops::Range<usize> = 11..15;
const PAGES: usize = 21;

/// Memory, processor time and descriptors of this process, if the system reports them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Resident memory in KiB.
    pub(crate) resident_kb: Option<u64>,
    pub(crate) open_files: Option<usize>,
    /// Processor time in milliseconds, without children.
    pub(crate) cpu_ms: Option<u64>,
}

/// Reads `/proc`. All fields are `None` on other systems. For the blocking pool.
pub(crate) fn own_usage_blocking() -> Usage {
    // The list contains the descriptor of the directory itself.
    let open_files =
        std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1));

    let own = std::process::id();
    let cpu_ms = ProcStat::read_blocking(own).map(|stat| ticks_to_ms(stat.own_ticks));
    Usage { resident_kb: resident_kb_blocking(own), open_files, cpu_ms }
}

/// Returns the resident memory of another process in KiB, if the system reports it. For display,
/// and for the blocking pool.
pub(crate) fn resident_kb_blocking(pid: u32) -> Option<u64> {
    number_after("VmRSS:", &std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Maximum number of generations between a worker and its monitor.
const MAX_DEPTH: usize = 4;

/// Returns whether a process is a descendant of another one, at most [`MAX_DEPTH`] generations
/// below. For the blocking pool.
pub(crate) fn is_below_blocking(pid: u32, ancestor: u32) -> bool {
    let parent = |pid: &u32| Some(ProcStat::read_blocking(*pid)?.parent);
    std::iter::successors(Some(pid), parent).skip(1).take(MAX_DEPTH).any(|it| it == ancestor)
}

/// Snapshot of the system's processes: their parents and their usage.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    stats: HashMap<u32, ProcStat>,
    children: HashMap<u32, Vec<u32>>,
}

/// Fields of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcStat {
    parent: u32,
    /// Processor time without exited children, in clock ticks.
    own_ticks: u64,
    /// Processor time with exited children, in clock ticks.
    ticks: u64,
    pages: u64,
}

impl ProcStat {
    /// Returns `None` if the process has exited.
    fn read_blocking(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses `/proc/<pid>/stat`. The program's name is in parentheses and may contain any character.
    fn parse(text: &str) -> Option<Self> {
        // The last parenthesis: the name may contain others.
        let (_, rest) = text.rsplit_once(')')?;

        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();

        let ticks: Vec<u64> = TICKS.filter_map(number).collect();
        Some(Self {
            parent: u32::try_from(number(PARENT)?).ok()?,
            own_ticks: ticks.iter().take(2).sum(),
            ticks: ticks.iter().sum(),
            pages: number(PAGES)?,
        })
    }
}

impl ProcessTable {
    /// Reads all processes. Empty on systems without `/proc`. For the blocking pool.
    pub(crate) fn read_blocking() -> Self {
        let mut all = Self::default();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            // Other entries are no processes.
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            // The process may have exited since the directory was listed.
            if let Some((pid, stat)) =
                pid.and_then(|pid| Some((pid, ProcStat::read_blocking(pid)?)))
            {
                all.add(pid, stat);
            }
            if MAX_PROCESSES <= all.stats.len() {
                break;
            }
        }
        all
    }

    fn add(&mut self, pid: u32, stat: ProcStat) {
        self.children.entry(stat.parent).or_default().push(pid);
        self.stats.insert(pid, stat);
    }

    /// Returns the existing processes among `roots`, and their descendants.
    pub(crate) fn tree(&self, roots: impl IntoIterator<Item = u32>) -> HashSet<u32> {
        let mut seen = HashSet::new();
        let mut left: Vec<u32> = roots.into_iter().collect();
        while let Some(pid) = left.pop() {
            // A process id can be used again while the list is read, so the table may have a
            // circle.
            if self.stats.contains_key(&pid) && seen.insert(pid) {
                left.extend(self.children.get(&pid).into_iter().flatten());
            }
        }
        seen
    }

    /// Sums the usage of `roots` and their descendants. `None` if none of them exists.
    pub(crate) fn usage_of_trees(&self, roots: impl IntoIterator<Item = u32>) -> Option<UsageInfo> {
        let mut usage = UsageInfo::default();
        let (mut ticks, mut pages) = (0_u64, 0_u64);
        for stat in self.tree(roots).iter().filter_map(|pid| self.stats.get(pid)) {
            usage.processes = usage.processes.saturating_add(1);
            ticks = ticks.saturating_add(stat.ticks);
            pages = pages.saturating_add(stat.pages);
        }

        usage.cpu_ms = ticks_to_ms(ticks);
        let page_kb = u64::try_from(rustix::param::page_size()).unwrap_or(4096) / 1024;
        usage.rss_kb = pages.saturating_mul(page_kb);
        (usage.processes != 0).then_some(usage)
    }
}

fn ticks_to_ms(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::HAS_PROC;

    #[test]
    fn resident_memory_is_read_from_the_status_text() {
        let resident_kb = |status| number_after("VmRSS:", status);
        assert_eq!(resident_kb("VmPeak:\t 9 kB\nVmRSS:\t    3456 kB\n"), Some(3456));
        assert_eq!(resident_kb("VmRSS: x"), None);
        assert_eq!(resident_kb(""), None);
    }

    #[test]
    fn what_the_kernel_tells_of_a_process_is_read_whatever_its_name_is() {
        let line = "77 (a ) (b) S 12 77 77 0 -1 4194560 1 2 0 0 300 40 5 6 20 0 1 0 99 4096 25 18446744073709551615";
        assert_eq!(
            ProcStat::parse(line),
            Some(ProcStat { parent: 12, own_ticks: 340, ticks: 351, pages: 25 })
        );
        for damaged in ["", "77 (a", "77 (a) S", "77 (a) S -3 1"] {
            assert_eq!(ProcStat::parse(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn everything_below_is_counted_once_also_if_the_table_runs_in_a_circle() {
        let stat = |parent| ProcStat { parent, own_ticks: 0, ticks: 100, pages: 2 };
        let mut all = ProcessTable::default();
        for (pid, parent) in [(1, 5), (2, 1), (3, 2), (4, 2), (5, 4), (9, 0)] {
            all.add(pid, stat(parent));
        }
        let usage = all.usage_of_trees([2, 3]).unwrap();
        assert_eq!((usage.processes, usage.cpu_ms), (5, ticks_to_ms(500)));
        assert_eq!(all.usage_of_trees([9]).map(|usage| usage.processes), Some(1));
        assert_eq!((all.usage_of_trees([77]), all.usage_of_trees([])), (None, None));
    }

    #[test]
    fn this_process_is_found_with_its_memory() {
        if !HAS_PROC {
            return;
        }
        let usage = ProcessTable::read_blocking().usage_of_trees([std::process::id()]).unwrap();
        assert!(1 <= usage.processes && 100 < usage.rss_kb, "{usage:?}");
        assert!(own_usage_blocking().cpu_ms.is_some());
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        assert!(is_below_blocking(own, parent));
        assert!(!is_below_blocking(own, own) && !is_below_blocking(parent, own));
    }
}
