//! Memory of a process, as `/proc` reports it. Used by [`crate::run`] and by the supervisor. Linux only: elsewhere
//! nothing is known.
//!
//! Anonymous memory counts, resident or swapped out, and mapped shared memory that is resident. Programs and mapped
//! files on a disk do not count, because the kernel can drop their pages. Files in a memory file system that no process
//! maps belong to no process: the mount limits their size.

/// Method of counting memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryAccounting {
    /// Shared memory counts for each process. Never waits for the process.
    Quick,
    /// Shared memory is divided among its processes, if the process may be inspected. The time grows with the memory:
    /// about 10 ms for each GiB.
    Shared,
}

/// Returns the memory of one process in KiB. `None` if it has exited, or on a system without `/proc`.
#[must_use]
pub fn memory_kb_blocking(pid: u32, count: MemoryAccounting) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let shared = (count == MemoryAccounting::Shared).then(|| read("smaps_rollup")).flatten();
    // An older kernel, or a process that must not be inspected.
    let divided = shared.as_deref().and_then(|text| kb(text, DIVIDED));
    divided.or_else(|| kb(&read("status")?, QUICK))
}

/// Returns the memory of all processes of the machine in KiB, resident or swapped out, with that of the kernel. No
/// session has more. `None` if the system does not report it.
#[must_use]
pub fn used_memory_kb_blocking() -> Option<u64> {
    used_kb(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn used_kb(meminfo: &str) -> Option<u64> {
    let number = |label| number_after(label, meminfo);
    let resident = number("MemTotal:")?.saturating_sub(number("MemAvailable:")?);
    let swapped = number("SwapTotal:")?.saturating_sub(number("SwapFree:")?);
    Some(resident.saturating_add(swapped))
}

/// Returns the number of processes that the kernel has killed since its start because memory ran out, on the whole
/// machine or in a control group. `None` if the kernel does not count them.
pub(crate) fn oom_kills_blocking() -> Option<u64> {
    number_after("oom_kill ", &std::fs::read_to_string("/proc/vmstat").ok()?)
}

/// Returns the number in the first line that begins with `label`, in a text of the kernel. The unit after it is ignored.
#[must_use]
pub fn number_after(label: &str, text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Lines that are summed: of `/proc/<pid>/smaps_rollup`, and of `status`.
const DIVIDED: [&str; 3] = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];
const QUICK: [&str; 3] = ["RssAnon:", "RssShmem:", "VmSwap:"];

/// Returns the sum of the lines in KiB. All but the first may be missing.
fn kb(text: &str, [first, others @ ..]: [&str; 3]) -> Option<u64> {
    let others = others.into_iter().filter_map(|label| number_after(label, text));
    Some(others.fold(number_after(first, text)?, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::HAS_PROC;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let status = "VmRSS:\t  999 kB\nRssAnon:\t     700 kB\nRssFile:\t 200 kB\n\
            RssShmem:\t    6000 kB\nVmSwap:\t  50 kB\n";
        assert_eq!(kb(status, QUICK), Some(6750));
        let rollup = "Pss:  99 kB\nPss_Anon:  7 kB\nPss_File:  9 kB\nPss_Shmem:  20 kB\n\
            Swap:  99 kB\nSwapPss:  300 kB\n";
        assert_eq!(kb(rollup, DIVIDED), Some(327));
        assert_eq!(kb("RssAnon:\t 7 kB\n", QUICK), Some(7));
        // A kernel thread has no memory, and older kernels do not report it.
        assert_eq!(kb("Name:\tkthreadd\n", QUICK), None);
        assert_eq!(kb("Pss_Anon: x kB\nPss_Shmem:  20 kB\n", DIVIDED), None);
        assert_eq!(number_after("oom_kill ", "oom_kill_x 7\noom_kill 3\n"), Some(3));
        let meminfo = "MemTotal: 900 kB\nMemFree: 1 kB\nMemAvailable: 700 kB\nSwapTotal: 50 kB\n\
            SwapFree: 20 kB\n";
        assert_eq!(used_kb(meminfo), Some(230));
        assert_eq!(used_kb("MemTotal: 900 kB\n"), None);
    }

    #[test]
    fn memory_of_our_own_is_counted_in_both_ways() {
        if !HAS_PROC {
            return;
        }
        // Write to the memory, so that it is resident.
        let hoard = vec![1_u8; 64 << 20];
        for count in [MemoryAccounting::Quick, MemoryAccounting::Shared] {
            let kb = memory_kb_blocking(std::process::id(), count).unwrap();
            assert!((64 << 10..4 << 20).contains(&kb), "{count:?}: {kb}");
        }
        assert_eq!(hoard.iter().filter(|byte| **byte == 1).count(), 64 << 20);
    }
}
