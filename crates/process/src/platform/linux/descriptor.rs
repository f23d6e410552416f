//! The descriptor of a process handle, for callers that poll or pass it.

use crate::ProcessHandle;
use std::os::fd::{AsFd, BorrowedFd};

/// The pidfd, which is readable when the process has exited.
impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.identity().as_fd()
    }
}
