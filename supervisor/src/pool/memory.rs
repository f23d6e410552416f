//! The memory of the machine, and the limit of a session's memory that follows from it.

use quackd_process::number_after;
use std::path::Path;

/// Smallest automatic limit of a session, in MiB. With less, hardly a command could run.
const MIN_SESSION_MB: u64 = 256;

/// Directory of the control groups, as a container shows its own.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The memory of a control group, in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupMemory {
    pub(crate) limit_mb: u64,
    /// Without memory that the kernel can reclaim, such as cached files.
    pub(crate) used_mb: u64,
}

/// Memory that the daemon and its children can have, in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MachineMemory {
    total_mb: u64,
    available_mb: u64,
}

impl MachineMemory {
    /// Reads the memory of the machine, or of the smallest control group (version 2) that contains `group`, the daemon's
    /// directory of control groups. `None` if the system does not report memory.
    pub(crate) fn read_blocking(group: Option<&Path>) -> Option<Self> {
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
        let machine = Self::of_meminfo(&meminfo)?;
        let groups = group.unwrap_or_else(|| Path::new(CGROUPS)).ancestors();
        Some(groups.filter_map(group_memory_blocking).fold(machine, Self::within))
    }

    fn of_meminfo(meminfo: &str) -> Option<Self> {
        let total_mb = number_after("MemTotal:", meminfo)? / 1024;
        Some(Self { total_mb, available_mb: available_mb(meminfo)? })
    }

    /// Returns the part of this memory that a control group may have.
    fn within(self, group: GroupMemory) -> Self {
        let left = group.limit_mb.saturating_sub(group.used_mb);
        Self {
            total_mb: self.total_mb.min(group.limit_mb),
            available_mb: self.available_mb.min(left),
        }
    }

    /// Returns the automatic limit of a session in MiB: half of the memory.
    pub(crate) fn session_limit_mb(self) -> u64 {
        (self.total_mb / 2).max(MIN_SESSION_MB)
    }

    /// Returns the automatic limit of a session whose worker starts now, in MiB: half of the memory, and at most what is
    /// available.
    fn limit_now_mb(self) -> u64 {
        self.session_limit_mb().min(self.available_mb).max(MIN_SESSION_MB)
    }
}

/// Returns the memory limit of a session whose worker starts now, in MiB. `None`: it has no limit. `setting` is
/// `limits.session_memory_mb`.
pub(crate) fn session_limit_mb_blocking(
    setting: Option<usize>,
    group: Option<&Path>,
) -> Option<u64> {
    match setting {
        Some(0) => None,
        Some(mb) => Some(u64::try_from(mb).unwrap_or(u64::MAX)),
        None => MachineMemory::read_blocking(group).map(MachineMemory::limit_now_mb),
    }
}

/// Returns the memory of a control group. `None` if it has no limit.
pub(crate) fn group_memory_blocking(group: &Path) -> Option<GroupMemory> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let bytes = |name: &str| read(name)?.trim().parse::<u64>().ok();

    // The kernel slows processes down above the first limit, and kills above the second.
    let limit = [bytes("memory.high"), bytes("memory.max")].into_iter().flatten().min()?;

    let used = bytes("memory.current")?
        .saturating_sub(read("memory.stat").map_or(0, |stat| reclaimable(&stat)));
    Some(GroupMemory { limit_mb: limit >> 20, used_mb: used >> 20 })
}

/// Returns `MemAvailable` in MiB.
pub(crate) fn available_mb(meminfo: &str) -> Option<u64> {
    number_after("MemAvailable:", meminfo).map(|kb| kb / 1024)
}

/// Returns the sum of the numbers after labels in a text of the kernel.
pub(crate) fn sum_after(labels: &[&str], text: &str) -> u64 {
    let numbers = labels.iter().filter_map(|label| number_after(label, text));
    numbers.fold(0, u64::saturating_add)
}

/// Returns the bytes of cached files that the kernel can drop.
fn reclaimable(stat: &str) -> u64 {
    sum_after(&["inactive_file ", "active_file "], stat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_texts_are_read() {
        let meminfo = "MemTotal: 9216 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n";
        let memory = MachineMemory { total_mb: 9, available_mb: 2 };
        assert_eq!(MachineMemory::of_meminfo(meminfo), Some(memory));
        assert_eq!(MachineMemory::of_meminfo("MemTotal: 9 kB\n"), None);
        assert_eq!(available_mb("MemAvailable: x"), None);
        assert_eq!(reclaimable("anon 5\ninactive_file 7\nactive_file 9\nfile 99\n"), 16);
    }

    #[test]
    fn a_session_may_have_half_of_the_memory_and_at_most_what_is_available() {
        let limit = |total_mb, available_mb| {
            let memory = MachineMemory { total_mb, available_mb };
            (memory.session_limit_mb(), memory.limit_now_mb())
        };
        assert_eq!(limit(16_000, 12_000), (8000, 8000));
        assert_eq!(limit(16_000, 3000), (8000, 3000));
        assert_eq!(limit(16_000, 20), (8000, MIN_SESSION_MB));
        assert_eq!(limit(400, 300), (MIN_SESSION_MB, MIN_SESSION_MB));
    }

    #[test]
    fn a_control_group_with_a_limit_is_a_smaller_machine() {
        let machine = MachineMemory { total_mb: 16_000, available_mb: 12_000 };
        let within = |limit_mb, used_mb| machine.within(GroupMemory { limit_mb, used_mb });
        assert_eq!(within(4000, 1000), MachineMemory { total_mb: 4000, available_mb: 3000 });
        assert_eq!(within(4000, 5000), MachineMemory { total_mb: 4000, available_mb: 0 });
        assert_eq!(within(64_000, 1000), machine);

        let dir = tempfile::tempdir().unwrap();
        assert_eq!(group_memory_blocking(dir.path()), None);
        let files = [
            ("memory.max", "4194304000\n"),
            ("memory.high", "max\n"),
            ("memory.current", "2097152000\n"),
            ("memory.stat", "anon 5\ninactive_file 1048576000\n"),
        ];
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let group = GroupMemory { limit_mb: 4000, used_mb: 1000 };
        assert_eq!(group_memory_blocking(dir.path()), Some(group));
    }

    #[test]
    fn a_configured_limit_does_not_depend_on_the_machine() {
        assert_eq!(session_limit_mb_blocking(Some(0), None), None);
        assert_eq!(session_limit_mb_blocking(Some(1 << 20), None), Some(1 << 20));
    }
}
