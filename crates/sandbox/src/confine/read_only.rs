//! One command that changes nothing, in a worker that may: safe mode for a single call. Called by the process
//! that becomes the command, between its start and the command's.
//!
//! It is Landlock without a right to write, and a filter for the attributes of files, on top of whatever the
//! worker is confined to already.

use super::error::ConfineError;
use super::landlock::{self, FileRights, FileRule, Rules};
use super::privilege;
use super::seccomp;
use std::path::Path;

/// Gives up, for good, writing anything but devices and what is beneath `private`, which are directories of
/// the worker's own.
///
/// # Errors
/// A step failed: the command must not be started.
pub fn become_read_only(private: &[&Path]) -> Result<(), ConfineError> {
    let filter = seccomp::build_for_attributes()?;
    let mut files = Vec::new();
    files.extend(FileRule::open(Path::new("/"), FileRights::Read)?);
    let devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"].map(Path::new);
    for writable in devices.iter().chain(private) {
        files.extend(FileRule::open(writable, FileRights::Write)?);
    }
    privilege::forbid_new_rights()?;
    landlock::apply(Rules { files, forbid_tcp: false })?;
    seccomp::apply(&filter)
}
