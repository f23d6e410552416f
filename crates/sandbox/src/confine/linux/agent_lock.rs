//! Lock on the directory that keeps the state of a workspace's agents. Stage 0 takes it, and the monitor keeps it until
//! its worker has exited: garbage collection and `quack agents forget` delete nothing that a worker has mounted.

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The lock, shared by all workers of the workspace. Dropping it releases it.
#[derive(Debug)]
pub struct AgentLock {
    _directory: OwnedFd,
}

impl AgentLock {
    /// Opens and locks the directory. Does not wait for the lock.
    ///
    /// # Errors
    /// The directory does not exist, something in it is being deleted, or its file system has no locks.
    pub fn open_blocking(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty())?;
        flock(&directory, FlockOperation::NonBlockingLockShared)?;
        Ok(Self { _directory: directory })
    }
}
