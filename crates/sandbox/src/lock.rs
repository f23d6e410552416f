//! Locks a file against other workers while it is replaced. Called by `target`.
//!
//! The lock is a flock(2) on the file itself: it leaves nothing in the user's tree, and ends with its holder. Only
//! quackd's workers respect it. Editors do not, so a file is also compared with its earlier state before it is
//! replaced.

use crate::WriteError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::time::{Duration, Instant};

/// Maximum wait for a file that other workers replace: about a thousand times the duration of one replacement. The
/// call's deadline may come first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// A worker that replaces a file repeatedly unlocks it only for some tenths of a millisecond. A longer pause would
/// never find it unlocked.
const LONGEST_PAUSE: Duration = Duration::from_micros(300);

/// Locks `file` until it is closed. Does nothing if the file system has no such locks.
///
/// # Errors
/// [`WriteError::Locked`] if the file is still locked at `until`; [`WriteError::GivenUp`].
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

        // Poll, because a blocking flock has no timeout.
        #[expect(clippy::disallowed_methods, reason = "called from threads that may block")]
        std::thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}
