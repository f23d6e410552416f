//! Registry of the shells that run in this process. It protects shells from the sweep of orphans, determines whether an
//! orphan of unknown origin can belong to only one command, and has the memory of each command. Used by [`crate::shell`].

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of shells at the same time. A worker admits far fewer calls, but killed shells that hang in the
/// kernel also count.
const MAX_SHELLS: usize = 256;

const FREE: u32 = 0;

/// Reserved for a shell that is being started. No process has this number, because Linux stops at 2²².
const STARTING: u32 = ENDED - 1;

/// Flag in the number of a shell that has exited and is not reaped yet.
const ENDED: u32 = 1 << 31;

static SHELLS: [Entry; MAX_SHELLS] = [const { Entry::new() }; MAX_SHELLS];

/// Number of shells that this process has started, or tried to start.
static N_STARTED: AtomicU64 = AtomicU64::new(0);

/// One entry of the registry.
#[derive(Debug)]
struct Entry {
    shell: AtomicU32,
    /// Memory of the command when it was last counted, in KiB. 0 before that. Kept until all of its processes are gone,
    /// because the memory of a killed process is not free at once.
    memory_kb: AtomicU64,
}

impl Entry {
    const fn new() -> Self {
        Self { shell: AtomicU32::new(FREE), memory_kb: AtomicU64::new(0) }
    }
}

/// Memory of the running commands, as last recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CommandsMemory {
    /// Of all commands, in KiB.
    pub(crate) total_kb: u64,
    /// True if no other command has more than the one that asks.
    pub(crate) is_largest: bool,
}

/// Entry in the registry, freed when dropped. Drop it only after the shell is reaped.
#[derive(Debug)]
pub(crate) struct ShellSlot {
    entry: &'static Entry,
}

impl ShellSlot {
    /// Reserves an entry for a shell about to be started. `None` if all are taken.
    pub(crate) fn reserve() -> Option<Self> {
        let taken = |entry: &&Entry| {
            let shell = &entry.shell;
            shell.compare_exchange(FREE, STARTING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let entry = SHELLS.iter().find(taken)?;
        // After the entry is taken. A command that reads the number before this finds another one at its end. A command
        // that reads it afterwards finds the entry.
        N_STARTED.fetch_add(1, Ordering::SeqCst);
        Some(Self { entry })
    }

    /// Records the started shell.
    pub(crate) fn hold(&self, pid: u32) {
        self.entry.shell.store(pid, Ordering::SeqCst);
    }

    /// Records that the shell has exited and can start no more processes.
    pub(crate) fn end(&self) {
        self.entry.shell.fetch_or(ENDED, Ordering::SeqCst);
    }

    /// Records the memory of the command in KiB. Returns that of all commands.
    pub(crate) fn note_memory(&self, kb: u64) -> CommandsMemory {
        self.entry.memory_kb.store(kb, Ordering::SeqCst);
        let all = || SHELLS.iter().map(|entry| entry.memory_kb.load(Ordering::SeqCst));
        CommandsMemory {
            total_kb: all().fold(0, u64::saturating_add),
            is_largest: all().all(|other| other <= kb),
        }
    }
}

impl Drop for ShellSlot {
    fn drop(&mut self) {
        // First, because another command may take a free entry at once.
        self.entry.memory_kb.store(0, Ordering::SeqCst);
        self.entry.shell.store(FREE, Ordering::SeqCst);
    }
}

/// Returns the number of shells that this process has started, or tried to start.
pub(crate) fn n_started() -> u64 {
    N_STARTED.load(Ordering::SeqCst)
}

/// Returns true if `pid` is a registered shell, which is not reaped yet.
pub(crate) fn contains(pid: u32) -> bool {
    SHELLS.iter().any(|entry| entry.shell.load(Ordering::SeqCst) & !ENDED == pid)
}

/// Returns true if no other shell than `pid` runs or is being started.
pub(crate) fn is_last(pid: u32) -> bool {
    let is_another = |number| number != FREE && number & ENDED == 0 && number != pid;
    !SHELLS.iter().any(|entry| is_another(entry.shell.load(Ordering::SeqCst)))
}

/// Returns true if no other shell than `pid` is in the registry, not even one that has exited and is not reaped.
pub(crate) fn is_only(pid: u32) -> bool {
    let is_another = |number| number != FREE && number & !ENDED != pid;
    !SHELLS.iter().any(|entry| is_another(entry.shell.load(Ordering::SeqCst)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_known_until_it_is_reaped_and_counts_until_it_has_ended() {
        let before = n_started();
        let first = ShellSlot::reserve().unwrap();
        assert!(!is_last(7));
        assert_eq!(n_started(), before + 1);
        first.hold(7);
        assert!(contains(7) && is_last(7) && is_only(7));

        let second = ShellSlot::reserve().unwrap();
        second.hold(8);
        assert!(!is_last(7) && !is_last(8));
        first.end();
        assert!(contains(7) && is_last(8) && !is_last(7));
        second.end();
        assert!(is_last(7) && is_last(8));
        assert!(!is_only(7) && !is_only(8), "the other is not reaped");

        drop((first, second));
        assert!(!contains(7) && !contains(8));

        // In the same test, because the registry is that of the process.
        let (small, large) = (ShellSlot::reserve().unwrap(), ShellSlot::reserve().unwrap());
        let noted = |total_kb, is_largest| CommandsMemory { total_kb, is_largest };
        assert_eq!(small.note_memory(10), noted(10, true));
        assert_eq!(large.note_memory(30), noted(40, true));
        assert_eq!(small.note_memory(20), noted(50, false));
        large.end();
        assert_eq!(small.note_memory(20), noted(50, false), "it is not gone yet");
        drop(large);
        assert_eq!(small.note_memory(20), noted(20, true));
    }
}
