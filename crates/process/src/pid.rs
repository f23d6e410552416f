//! Process ids as system calls take them. Used by the files that signal or reap.

use rustix::process::Pid;
use std::io;

/// Converts a number to the type that system calls take.
pub(crate) fn to_pid(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}
