//! The instance lock: ensures that only one daemon uses a state directory.
//!
//! It is a kernel lock and not a pid check. The kernel releases it when its owner exits for any reason, and a
//! reused pid cannot inherit it. The file is never deleted: otherwise two daemons could lock two files of the
//! same name.

use crate::{Home, HomeError};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, TryLockError};

/// Lock of the running daemon. Dropping it, or exiting, releases the lock.
#[derive(Debug)]
pub struct InstanceLock {
    /// Close-on-exec: a child with this descriptor would keep the lock.
    _file: File,
}

/// Takes the lock without waiting. `Ok(None)`: another daemon has it. Call [`Home::prepare_dir_blocking`] first.
///
/// # Errors
/// [`HomeError::Io`] if the file cannot be opened or the file system has no locks.
pub fn lock_blocking(home: &Home) -> Result<Option<InstanceLock>, HomeError> {
    let path = home.lock_file();
    // O_NONBLOCK: opening a FIFO of that name must not block. flock(2) works with the flag.
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let file = File::from(file.map_err(|e| HomeError::io("open", &path, e))?);
    match file.try_lock() {
        Ok(()) => Ok(Some(InstanceLock { _file: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(HomeError::io("lock", &path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::sync::{Arc, Barrier};

    fn home(dir: &std::path::Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        home
    }

    #[test]
    fn the_lock_is_held_once_and_can_be_taken_again_after_it_was_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let first = lock_blocking(&home).unwrap();
        assert!(first.is_some());
        assert!(lock_blocking(&home).unwrap().is_none());
        drop(first);
        assert!(lock_blocking(&home).unwrap().is_some());
        let mode = home.lock_file().metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }

    #[test]
    fn of_twenty_that_try_at_once_exactly_one_gets_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let home = Arc::new(home(dir.path()));
        for round in 0..20 {
            let start = Arc::new(Barrier::new(20));
            let threads: Vec<_> = (0..20)
                .map(|_| {
                    let (home, start) = (Arc::clone(&home), Arc::clone(&start));
                    std::thread::spawn(move || {
                        start.wait();
                        lock_blocking(&home).unwrap()
                    })
                })
                .collect();
            // Keep the locks until all threads have tried.
            let locks: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            assert_eq!(locks.iter().flatten().count(), 1, "round {round}");
        }
    }

    #[test]
    fn a_lock_file_that_is_a_link_or_a_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        std::os::unix::fs::symlink("elsewhere", home.lock_file()).unwrap();
        assert!(lock_blocking(&home).is_err());
        assert!(!dir.path().join("elsewhere").exists());
        std::fs::remove_file(home.lock_file()).unwrap();
        std::fs::create_dir(home.lock_file()).unwrap();
        assert!(lock_blocking(&home).is_err());
    }
}
