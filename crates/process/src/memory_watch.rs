//! Checks the memory of a running command against the limit of its session. Used by [`crate::run`].
//!
//! The limit holds for this process and everything below it together. If they have more, the command with most memory
//! ends, as a whole. The kernel cannot do that: the control groups of commands are threaded, and those have no memory
//! limit. Where it limits the group of the session, it kills single processes above a higher limit
//! ([`Limits::memory`]), and its numbers decide without a count if the session has one command.
//!
//! While the whole machine uses less than the limit, nothing is counted. The first, quick count takes memory that a
//! process shares with a child after a fork for both. If it is above the limit, a second count divides shared memory
//! among its processes.

use crate::cgroup::MemoryGroup;
use crate::command::{Ceiling, EndedBy};
use crate::memory::{
    MemoryAccounting, memory_kb_blocking, oom_kills_blocking, used_memory_kb_blocking,
};
use crate::platform::HAS_PROC;
use crate::process_tree::ProcessTree;
use crate::shell::Shell;
use crate::shell_registry;
use crate::{Exit, Limits};
use nix::libc::SIGKILL;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Shortest and longest time between two checks, and time from the start of a command until the first one.
pub(crate) const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Memory that the commands of a session can take in 1 ms, in KiB: 8 GiB/s. The next check comes before they could reach
/// the limit at this rate.
const FASTEST_KB_PER_MS: u64 = 8 * 1024;

/// Counting takes at most 1/20 of the time, unless one count takes longer than 0.5 s.
const COUNT_SHARE: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Time limit of the second count. A process that hangs in the kernel can block it.
const COUNT_LIMIT: Duration = Duration::from_secs(3);

/// Maximum number of processes that are counted.
const MAX_COUNTED: usize = 16 * 1024;

/// Exit code of a shell whose last program was killed by SIGKILL.
const KILLED_CODE: i32 = 128 + SIGKILL;

/// Memory of one command during its run.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    limit_kb: Option<u64>,
    /// Processes that the kernel had killed for lack of memory at the first check. `None` before it.
    kills: Option<u64>,
    /// Memory of the command at the last exact count.
    used_kb: u64,
    /// Limit of the kernel for the group.
    group_limit_kb: u64,
    /// Kills in the group at the last check.
    group_kills: u64,
    /// Number of commands started in this process, if no other ran when this one started.
    alone_since: Option<u64>,
    /// Kill in the group after the last check.
    hit: Option<GroupHit>,
}

/// Kill by the kernel because the group was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupHit {
    /// Other commands ran: the process may be one of theirs.
    Any,
    /// In this command, because no other ran.
    Own,
    /// Like `Own`, and the group is still full after the end of all processes.
    Full,
}

/// An exact count, in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ExactMemory {
    command_kb: u64,
    /// Of this process and everything below it.
    session_kb: u64,
}

impl MemoryWatch {
    /// `group` is that of the command, if the kernel limits its memory. Call it before the launch.
    pub(crate) fn new(limits: &Limits, group: Option<&MemoryGroup>) -> Self {
        Self {
            limit_kb: limits.memory.map(|bytes| bytes / 1024),
            kills: None,
            used_kb: 0,
            group_limit_kb: limits.group_memory().unwrap_or(0) / 1024,
            group_kills: group.map_or(0, MemoryGroup::kills),
            alone_since: None,
            hit: None,
        }
    }

    /// Records the launch of the command.
    pub(crate) fn note_start(&mut self, shell: &Shell) {
        let n_started = shell_registry::n_started();
        self.alone_since = shell.is_only().then_some(n_started);
        // Another command may still need the largest use for its own kills.
        if let Some(memory) = shell.memory_group().filter(|_| shell.is_only()) {
            memory.reset_peak();
        }
    }

    /// Checks once. Returns the time until the next check. `None`: the command must end, because the session has more
    /// than its limit and no other command has more memory.
    pub(crate) async fn check(&mut self, shell: &mut Shell) -> Option<Duration> {
        if !HAS_PROC {
            return Some(MAX_PAUSE);
        }

        let begun = Instant::now();
        // Not at the start of the command: a command that ends at once needs no check.
        self.kills = self.kills.or_else(oom_kills_blocking);
        let Some(limit_kb) = self.limit_kb else { return Some(MAX_PAUSE) };

        match self.check_group(shell, limit_kb) {
            GroupCheck::MustEnd => return None,
            GroupCheck::Fits { left_kb } => return Some(pause(left_kb, begun.elapsed())),
            GroupCheck::Unknown => {}
        }

        // One short file spares the list of the processes, as long as the machine has much free memory.
        let machine_kb = used_memory_kb_blocking().filter(|machine_kb| *machine_kb <= limit_kb);
        if let Some(machine_kb) = machine_kb {
            return Some(pause(limit_kb - machine_kb, begun.elapsed()));
        }

        let command = shell.processes(MAX_COUNTED);
        let count = |pid: &u32| memory_kb_blocking(*pid, MemoryAccounting::Quick);
        let each: Vec<u64> = command.iter().filter_map(count).collect();
        let largest_kb = each.iter().copied().max().unwrap_or(0);
        let command_kb = each.into_iter().fold(0, u64::saturating_add);
        let own_kb = count(&std::process::id()).unwrap_or(0);
        let session_kb = shell.note_memory(command_kb).total_kb.saturating_add(own_kb);
        if session_kb <= limit_kb {
            return Some(pause(limit_kb - session_kb, begun.elapsed()));
        }

        // The memory of one process is its own. So this needs no second count, which takes long with many processes.
        if limit_kb < largest_kb && shell.note_memory(command_kb).is_largest {
            self.used_kb = largest_kb;
            return None;
        }
        // Without a result, the next check decides.
        let exact = count_exactly(command).await.unwrap_or_default();
        let has_most = shell.note_memory(exact.command_kb).is_largest;
        self.used_kb = exact.command_kb;
        let must_end = limit_kb < exact.session_kb && has_most;
        let left_kb = limit_kb.saturating_sub(exact.session_kb);
        (!must_end).then(|| pause(left_kb, begun.elapsed()))
    }

    /// Checks the numbers of the kernel for the group. They do not exist for each command: if several run, the usual
    /// count finds the largest.
    fn check_group(&mut self, shell: &Shell, limit_kb: u64) -> GroupCheck {
        let Some(memory) = shell.memory_group() else { return GroupCheck::Unknown };
        let (kills, used) = (memory.kills(), memory.used());
        let is_hit = memory.has_new(kills, self.group_kills) && memory.was_at_limit();
        let used_kb = used.map_or(0, |used| used.least_kb);
        if (is_hit || limit_kb < used_kb) && shell.is_only() {
            // The killed process has left. The group was at its limit.
            self.used_kb = if is_hit { self.group_limit_kb } else { used_kb };
            return GroupCheck::MustEnd;
        }
        self.group_kills = kills;
        match used {
            Some(used) if used.most_kb <= limit_kb => {
                GroupCheck::Fits { left_kb: limit_kb - used.most_kb }
            }
            _ => GroupCheck::Unknown,
        }
    }

    /// Records the kills of the group when no process of the command is left. Kills before the last check do not count:
    /// the command went on.
    pub(crate) fn note_end(&mut self, shell: &Shell, limits: &Limits) {
        let Some(memory) = shell.memory_group() else { return };
        let kills = memory.kills();
        if memory.has_new(kills, self.group_kills) && memory.was_at_limit() {
            let was_alone = self.alone_since == Some(shell_registry::n_started());
            let own = || if memory.is_full(limits) { GroupHit::Full } else { GroupHit::Own };
            self.hit = Some(if was_alone { own() } else { GroupHit::Any });
        }
        memory.note_seen(kills);
    }

    /// Returns the ceiling that ended the command, if one did. Call it after [`MemoryWatch::note_end`].
    pub(crate) fn ceiling(
        &self,
        ended_by: EndedBy,
        exit: Exit,
        limits: &Limits,
    ) -> Option<Ceiling> {
        let limit = self.limit_kb.unwrap_or(0).saturating_mul(1024);
        match ended_by {
            EndedBy::Memory | EndedBy::Itself if self.hit == Some(GroupHit::Full) => {
                Some(Ceiling::SessionMemoryFull)
            }
            EndedBy::Memory => {
                Some(Ceiling::SessionMemory { limit, used: self.used_kb.saturating_mul(1024) })
            }
            EndedBy::Processes => Some(Ceiling::Processes { limit: limits.processes }),
            EndedBy::Itself => {
                let is_killed = matches!(exit, Exit::Signal(SIGKILL) | Exit::Code(KILLED_CODE));
                match self.hit {
                    Some(GroupHit::Own | GroupHit::Full) => {
                        Some(Ceiling::SessionMemoryReached { limit, is_own: true })
                    }
                    Some(GroupHit::Any) if is_killed => {
                        Some(Ceiling::SessionMemoryReached { limit, is_own: false })
                    }
                    _ => (is_killed && self.has_more_kills()).then_some(Ceiling::Memory),
                }
            }
            EndedBy::Deadline | EndedBy::Abort => None,
        }
    }

    /// Returns true if the kernel has killed a process for lack of memory since the first check.
    fn has_more_kills(&self) -> bool {
        self.kills.zip(oom_kills_blocking()).is_some_and(|(before, now)| before < now)
    }
}

/// Result of checking the numbers of the kernel.
enum GroupCheck {
    MustEnd,
    Fits {
        left_kb: u64,
    },
    /// Without such a group, or if only a count can decide.
    Unknown,
}

/// Returns the time until the next check, if the session may take `left_kb` more and the last check took `took`.
fn pause(left_kb: u64, took: Duration) -> Duration {
    let until_full = Duration::from_millis(left_kb / FASTEST_KB_PER_MS);
    let pause = until_full.clamp(MIN_PAUSE, MAX_PAUSE);
    pause.max(took.saturating_mul(COUNT_SHARE).min(LONGEST_PAUSE))
}

/// Counts the memory of these processes, which are those of a command, and of the whole session. Returns `None` if
/// the processes cannot be listed or counting takes too long.
async fn count_exactly(command: BTreeSet<u32>) -> Option<ExactMemory> {
    let count = move || {
        let this = std::process::id();
        let session = ProcessTree::now().ok()?.descendants_up_to(&[this], MAX_COUNTED);
        let mut memory = ExactMemory::default();
        for pid in session.into_iter().map(|process| process.pid) {
            let kb = memory_kb_blocking(pid, MemoryAccounting::Shared).unwrap_or(0);
            memory.session_kb = memory.session_kb.saturating_add(kb);
            if command.contains(&pid) {
                memory.command_kb = memory.command_kb.saturating_add(kb);
            }
        }
        Some(memory)
    };

    // On another thread, because a process that hangs in the kernel can block the count.
    let counted = tokio::time::timeout(COUNT_LIMIT, tokio::task::spawn_blocking(count)).await;
    counted.ok()?.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closer_the_limit_the_sooner_the_next_check() {
        let gib = 1024 * 1024;
        let after = |left_kb| pause(left_kb, Duration::ZERO);
        assert_eq!([0, gib / 2, 64 * gib].map(after), [MIN_PAUSE, MIN_PAUSE, MAX_PAUSE]);
        assert_eq!(after(4 * gib), Duration::from_millis(512));
        // Counting that takes long is rare, and is not given up.
        assert_eq!(pause(0, Duration::from_millis(50)), Duration::from_secs(1));
        assert_eq!(pause(0, Duration::from_secs(60)), LONGEST_PAUSE);
    }

    #[test]
    fn the_ceiling_that_ended_a_command_is_named() {
        let limits = Limits { processes: 7, memory: Some(300 << 20), ..Limits::default() };
        let mut watch = MemoryWatch::new(&limits, None);
        watch.used_kb = 310 << 10;
        let of = |watch: &MemoryWatch, ended_by, exit| watch.ceiling(ended_by, exit, &limits);

        let killed = Exit::Signal(SIGKILL);
        let memory = Ceiling::SessionMemory { limit: 300 << 20, used: 310 << 20 };
        assert_eq!(of(&watch, EndedBy::Memory, killed), Some(memory));
        let processes = Ceiling::Processes { limit: 7 };
        assert_eq!(of(&watch, EndedBy::Processes, killed), Some(processes));
        for ended_by in [EndedBy::Deadline, EndedBy::Abort] {
            assert_eq!(of(&watch, ended_by, killed), None);
        }

        // Before the first check nothing is known about the kernel.
        assert_eq!(of(&watch, EndedBy::Itself, killed), None);
        // More kills than any kernel has counted, then fewer.
        watch.kills = Some(u64::MAX);
        assert_eq!(of(&watch, EndedBy::Itself, killed), None);
        assert_eq!(of(&watch, EndedBy::Itself, Exit::Code(0)), None);

        // The kernel killed a process because the group of the session was at its limit.
        let limit = 300 << 20;
        let reached = |is_own| Some(Ceiling::SessionMemoryReached { limit, is_own });
        watch.hit = Some(GroupHit::Any);
        assert_eq!(of(&watch, EndedBy::Itself, Exit::Code(KILLED_CODE)), reached(false));
        assert_eq!(of(&watch, EndedBy::Itself, Exit::Code(0)), None);
        watch.hit = Some(GroupHit::Own);
        assert_eq!(of(&watch, EndedBy::Itself, Exit::Code(0)), reached(true));
        assert_eq!(of(&watch, EndedBy::Memory, killed), Some(memory));
        watch.hit = Some(GroupHit::Full);
        for ended_by in [EndedBy::Memory, EndedBy::Itself] {
            assert_eq!(of(&watch, ended_by, killed), Some(Ceiling::SessionMemoryFull));
        }
        assert_eq!(of(&watch, EndedBy::Abort, killed), None);
    }
}
