//! Keeping other workers away from a file while it is replaced. Called by `target`.
//!
//! The lock is on the file itself, by flock(2): nothing is left in the user's tree, and it ends with its
//! holder. Only workers of ours look at it; an editor does not, which is why a file is also compared
//! with what it was before it is replaced.

use crate::WriteError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::time::{Duration, Instant};

/// Longest wait for a file that others replace: some thousand times what replacing one takes. The call's
/// own deadline may come before.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// Short, because who replaces a file again and again lets go of it for some tenths of a millisecond only:
/// who looked less often would never find it free.
const LONGEST_PAUSE: Duration = Duration::from_micros(300);

/// Locks `file` until it is closed. Where the file system has no such locks, nothing is locked.
///
/// # Errors
/// [`WriteError::Locked`] if that is not possible until `until`; [`WriteError::GivenUp`].
pub(crate) fn lock(
    file: &File,
    until: Instant,
    give_up: &dyn Fn() -> bool,
) -> Result<(), WriteError> {
    let mut pause = FIRST_PAUSE;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => (),
            Ok(()) | Err(_) => return Ok(()),
        }
        if give_up() {
            return Err(WriteError::GivenUp);
        }
        if until <= Instant::now() {
            return Err(WriteError::Locked);
        }
        // Polling, because a wait that the kernel queues has no time limit.
        #[expect(clippy::disallowed_methods, reason = "called from threads that may block")]
        std::thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}
