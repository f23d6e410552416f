//! Memory of a session as the kernel counts and limits it, in its worker. Opened in stage 0 by [`super::group`].
//!
//! In version 2 the worker is in the group too, because only threads of the same group can enter the leaves inside it.
//! The OOM killer prefers commands by their score ([`crate::oom`]). In version 1 the group is in another hierarchy and
//! contains commands only.

use super::controllers::DAEMON;
use super::directory::Directory;
use super::{CgroupKind, MYSELF, SessionPaths, discover};
use crate::Limits;
use crate::memory::{MemoryAccounting, memory_kb_blocking, number_after, oom_kills_blocking};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum size of a file of the kernel with numbers, in bytes. They have at most 5 KiB.
const MAX_TEXT: usize = 16 * 1024;

/// A group with less left than this, in bytes, is full: a shell and a small program need it. When the kernel has killed
/// them, their memory is free again.
const FULL_BYTES: u64 = 8 * 1024 * 1024;

/// Number of kills by the kernel for lack of memory, of the daemon that asks and of its workers.
#[derive(Debug)]
pub struct OomKills {
    /// File of the control group of the daemon. `None`: only the number of the whole machine is known.
    own: Option<PathBuf>,
}

impl OomKills {
    /// Finds the control group of this process, the daemon. Its number counts every kill of a process in it, whichever
    /// limit was the reason. In version 2 a worker is in the group of its session, so kills in groups inside that of
    /// the daemon count too.
    #[must_use]
    pub fn find_blocking() -> Self {
        let files =
            [(CgroupKind::Memory, "memory.oom_control"), (CgroupKind::Unified, "memory.events")];
        let own = files.into_iter().find_map(|(kind, name)| {
            let directory = discover::own(kind).ok()?.directory;
            let above = directory.parent().filter(|_| directory.ends_with(DAEMON));
            let file = above.unwrap_or(&directory).join(name);
            oom_kills_in(&file).is_some().then_some(file)
        });
        Self { own }
    }

    /// Returns the number since the start of the group or of the machine. `None` if the kernel does not count.
    #[must_use]
    pub fn count_blocking(&self) -> Option<u64> {
        self.own.as_deref().map_or_else(oom_kills_blocking, oom_kills_in)
    }
}

fn oom_kills_in(file: &Path) -> Option<u64> {
    number_after("oom_kill ", &std::fs::read_to_string(file).ok()?)
}

/// Control group that limits the memory of a session.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    kind: CgroupKind,
    /// `memory.stat`.
    numbers: File,
    /// All memory in use, with the kernel's own and cached files.
    usage: File,
    /// Counts the processes that the kernel killed.
    events: File,
    /// Largest `usage`, and the limit in bytes. `None` if the kernel has no such file.
    peak: Option<(File, u64)>,
    /// Threads files of this group and of the worker's own (version 1).
    threads: Option<(File, File)>,
    /// Number of kills at the end of the last command. They say nothing about the commands that still run.
    seen: AtomicU64,
}

/// Memory of the commands and of this process, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupMemory {
    /// Anonymous memory, resident or swapped out. Memory that processes share after a fork counts once.
    pub(crate) least_kb: u64,
    /// Also shared memory and files in memory, mapped or not.
    pub(crate) most_kb: u64,
}

impl MemoryGroup {
    /// Opens the group. In version 2 moves this process into it, which must have one thread.
    ///
    /// # Errors
    /// The directory does not exist, the kernel refuses the move, or a launcher moved this process to another group.
    pub(super) fn open(paths: &SessionPaths) -> io::Result<Self> {
        let kind = paths.kind;
        let own = discover::own_cgroup(kind)?;
        if own != paths.home_cgroup {
            return Err(io::Error::other(format!("this process is in the control group {own}")));
        }

        let group = Directory::open(kind, &paths.directory, paths.cgroup.clone())?;
        let numbers = group.file("memory.stat", OFlags::RDONLY)?;
        let is_unified = kind == CgroupKind::Unified;
        let [usage, events, peak, limit] = match kind {
            CgroupKind::Unified => ["memory.current", "memory.events", "memory.peak", "memory.max"],
            _ => [
                "memory.usage_in_bytes",
                "memory.oom_control",
                "memory.max_usage_in_bytes",
                "memory.limit_in_bytes",
            ],
        };
        let usage = group.file(usage, OFlags::RDONLY)?;
        let events = group.file(events, OFlags::RDONLY)?;
        let limit = group.read(limit).ok().and_then(|text| number_after("", &text));
        let peak = group.file(peak, OFlags::RDWR).ok().zip(limit);

        let threads = if is_unified {
            group.write("cgroup.procs", MYSELF)?;
            None
        } else {
            let home = Directory::open(kind, &paths.home, own)?;
            let file = |directory: &Directory| directory.file(kind.threads_file(), OFlags::WRONLY);
            Some((file(&group)?, file(&home)?))
        };
        Ok(Self { kind, numbers, usage, events, peak, threads, seen: AtomicU64::new(0) })
    }

    /// Moves the calling thread here. The processes that it starts use memory of this group.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.threads.as_ref().map_or(Ok(()), |(here, _)| move_to(here))
    }

    pub(super) fn leave(&self) -> io::Result<()> {
        self.threads.as_ref().map_or(Ok(()), |(_, home)| move_to(home))
    }

    /// Returns the number of processes of the group that the kernel has killed because memory ran out. 0 if the kernel
    /// does not count them.
    pub(crate) fn kills(&self) -> u64 {
        read(&self.events).and_then(|text| number_after("oom_kill ", &text)).unwrap_or(0)
    }

    /// Returns true if the group was at its limit since [`MemoryGroup::reset_peak`]. If it was not, the kernel killed
    /// for the limit of a group around this one, or of the machine. Also true if the kernel does not tell.
    pub(crate) fn was_at_limit(&self) -> bool {
        let Some((peak, limit)) = &self.peak else { return true };
        let most = read(peak).and_then(|text| number_after("", &text));
        most.is_none_or(|most| limit.saturating_sub(most) < FULL_BYTES)
    }

    /// Forgets the largest use so far, if the kernel can.
    pub(crate) fn reset_peak(&self) {
        if let Some((peak, _)) = &self.peak {
            peak.write_at(b"0", 0).ok();
        }
    }

    /// Returns true if there were more than `before` kills, and more than a command that has ended has seen.
    pub(crate) fn has_new(&self, kills: u64, before: u64) -> bool {
        before.max(self.seen.load(Ordering::SeqCst)) < kills
    }

    /// Records the number of kills at the end of a command.
    pub(crate) fn note_seen(&self, kills: u64) {
        self.seen.fetch_max(kills, Ordering::SeqCst);
    }

    /// Returns the memory in use. `None` if the kernel's text cannot be read.
    pub(crate) fn used(&self) -> Option<GroupMemory> {
        let used = used_in(self.kind, &read(&self.numbers)?)?;
        // In version 1 this process is not in the group. The limit of the session includes it.
        let count = || memory_kb_blocking(std::process::id(), MemoryAccounting::Quick);
        let own_kb = self.threads.as_ref().and_then(|_| count()).unwrap_or(0);
        Some(GroupMemory {
            least_kb: used.least_kb.saturating_add(own_kb),
            most_kb: used.most_kb.saturating_add(own_kb),
        })
    }

    /// Returns true if the group with these limits has no memory left, not even if the kernel drops cached files. If no
    /// process is in it, only files in memory and shared memory segments can be the reason.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        let used = || {
            let all = number_after("", &read(&self.usage)?)?;
            Some(all.saturating_sub(cached_in(self.kind, &read(&self.numbers)?)?))
        };
        let limit = limits.group_memory();
        limit.zip(used()).is_some_and(|(limit, used)| limit.saturating_sub(used) < FULL_BYTES)
    }
}

fn used_in(kind: CgroupKind, text: &str) -> Option<GroupMemory> {
    // The second number does not exist if swap is not counted. In version 2 the group has no swap.
    let (anonymous, swapped, shared) = match kind {
        CgroupKind::Unified => ("anon ", None, "shmem "),
        _ => ("total_rss ", Some("total_swap "), "total_shmem "),
    };
    let swapped = swapped.and_then(|label| number_after(label, text)).unwrap_or(0);
    let least = number_after(anonymous, text)?.saturating_add(swapped);
    let most = least.saturating_add(number_after(shared, text)?);
    Some(GroupMemory { least_kb: least / 1024, most_kb: most / 1024 })
}

/// Returns the bytes of cached files on a disk.
fn cached_in(kind: CgroupKind, text: &str) -> Option<u64> {
    let (files, shared) = match kind {
        CgroupKind::Unified => ("file ", "shmem "),
        _ => ("total_cache ", "total_shmem "),
    };
    Some(number_after(files, text)?.saturating_sub(number_after(shared, text)?))
}

fn move_to(mut threads: &File) -> io::Result<()> {
    threads.write_all(MYSELF.as_bytes())
}

fn read(file: &File) -> Option<String> {
    let mut bytes = vec![0; MAX_TEXT];
    let n = file.read_at(&mut bytes, 0).ok()?;
    bytes.truncate(n);
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_group_is_read_in_both_versions() {
        let unified = "anon 4096\nfile 8192\nshmem 2048\nanon_thp 99999\n";
        let memory = GroupMemory { least_kb: 4, most_kb: 6 };
        assert_eq!(used_in(CgroupKind::Unified, unified), Some(memory));
        let first = "rss 1\nshmem 1\ntotal_rss 4096\ntotal_shmem 2048\n";
        assert_eq!(used_in(CgroupKind::Memory, first), Some(memory));
        let swapped = format!("{first}total_swap 1024\n");
        let memory = GroupMemory { least_kb: 5, most_kb: 7 };
        assert_eq!(used_in(CgroupKind::Memory, &swapped), Some(memory));
        assert_eq!(used_in(CgroupKind::Unified, "anon x\nshmem 1\n"), None);
        assert_eq!(cached_in(CgroupKind::Unified, unified), Some(6144));
        let first = format!("{first}cache 1\ntotal_cache 3048\n");
        assert_eq!(cached_in(CgroupKind::Memory, &first), Some(1000));
    }
}
