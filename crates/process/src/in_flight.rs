//! The shells that are running now, for the whole process: what must not be taken for an orphan, and
//! whether an orphan of unknown origin can only be one command's. Used by [`crate::shell`].

use std::sync::atomic::{AtomicU32, Ordering};

/// Most shells at the same time. A worker admits far fewer calls; shells that were killed and hang in
/// the kernel may come on top.
const MAX_SHELLS: usize = 256;

const FREE: u32 = 0;

/// Reserved, its shell is being started. No process has this number: Linux stops at 2²².
const STARTING: u32 = ENDED - 1;

/// Beside the number of a shell that has ended and is not reaped yet.
const ENDED: u32 = 1 << 31;

static SHELLS: [AtomicU32; MAX_SHELLS] = [const { AtomicU32::new(FREE) }; MAX_SHELLS];

/// A place in the register; given back when dropped, which must not be before the shell is reaped.
#[derive(Debug)]
pub(crate) struct Place {
    shell: &'static AtomicU32,
}

impl Place {
    /// Reserves a place for a shell about to be started; `None` if all are taken.
    pub(crate) fn reserve() -> Option<Self> {
        let taken = |shell: &&AtomicU32| {
            shell.compare_exchange(FREE, STARTING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        SHELLS.iter().find(taken).map(|shell| Self { shell })
    }

    /// Notes the shell that was started.
    pub(crate) fn hold(&self, pid: u32) {
        self.shell.store(pid, Ordering::SeqCst);
    }

    /// Notes that the shell has ended, and with it the time in which it could start something.
    pub(crate) fn end(&self) {
        self.shell.fetch_or(ENDED, Ordering::SeqCst);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shell.store(FREE, Ordering::SeqCst);
    }
}

/// Whether `pid` is a shell of ours that is not reaped yet.
pub(crate) fn contains(pid: u32) -> bool {
    SHELLS.iter().any(|shell| shell.load(Ordering::SeqCst) & !ENDED == pid)
}

/// Whether no shell but `pid` runs or is being started.
pub(crate) fn is_last(pid: u32) -> bool {
    let is_another = |number| number != FREE && number & ENDED == 0 && number != pid;
    !SHELLS.iter().any(|shell| is_another(shell.load(Ordering::SeqCst)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_known_until_it_is_reaped_and_counts_until_it_has_ended() {
        let first = Place::reserve().unwrap();
        assert!(!is_last(7));
        first.hold(7);
        assert!(contains(7) && is_last(7));

        let second = Place::reserve().unwrap();
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
