//! Registry of the shells that run in this process. It protects shells from the sweep of orphans, and determines
//! whether an orphan of unknown origin can belong to only one command. Used by [`crate::shell`].

use std::sync::atomic::{AtomicU32, Ordering};

/// Maximum number of shells at the same time. A worker admits far fewer calls, but killed shells that hang in the
/// kernel also count.
const MAX_SHELLS: usize = 256;

const FREE: u32 = 0;

/// Reserved for a shell that is being started. No process has this number, because Linux stops at 2²².
const STARTING: u32 = ENDED - 1;

/// Flag in the number of a shell that has exited and is not reaped yet.
const ENDED: u32 = 1 << 31;

static SHELLS: [AtomicU32; MAX_SHELLS] = [const { AtomicU32::new(FREE) }; MAX_SHELLS];

/// Entry in the registry, freed when dropped. Drop it only after the shell is reaped.
#[derive(Debug)]
pub(crate) struct ShellSlot {
    shell: &'static AtomicU32,
}

impl ShellSlot {
    /// Reserves an entry for a shell about to be started. `None` if all are taken.
    pub(crate) fn reserve() -> Option<Self> {
        let taken = |shell: &&AtomicU32| {
            shell.compare_exchange(FREE, STARTING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        SHELLS.iter().find(taken).map(|shell| Self { shell })
    }

    /// Records the started shell.
    pub(crate) fn hold(&self, pid: u32) {
        self.shell.store(pid, Ordering::SeqCst);
    }

    /// Records that the shell has exited and can start no more processes.
    pub(crate) fn end(&self) {
        self.shell.fetch_or(ENDED, Ordering::SeqCst);
    }
}

impl Drop for ShellSlot {
    fn drop(&mut self) {
        self.shell.store(FREE, Ordering::SeqCst);
    }
}

/// Returns true if `pid` is a registered shell, which is not reaped yet.
pub(crate) fn contains(pid: u32) -> bool {
    SHELLS.iter().any(|shell| shell.load(Ordering::SeqCst) & !ENDED == pid)
}

/// Returns true if no other shell than `pid` runs or is being started.
pub(crate) fn is_last(pid: u32) -> bool {
    let is_another = |number| number != FREE && number & ENDED == 0 && number != pid;
    !SHELLS.iter().any(|shell| is_another(shell.load(Ordering::SeqCst)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_known_until_it_is_reaped_and_counts_until_it_has_ended() {
        let first = ShellSlot::reserve().unwrap();
        assert!(!is_last(7));
        first.hold(7);
        assert!(contains(7) && is_last(7));

        let second = ShellSlot::reserve().unwrap();
        second.hold(8);
        assert!(!is_last(7) && !is_last(8));
        first.end();
        assert!(contains(7) && is_last(8) && !is_last(7));
        second.end();
        assert!(is_last(7) && is_last(8));

        drop((first, second));
        assert!(!contains(7) && !contains(8));
    }
}
