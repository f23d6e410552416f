//! Makes one command read-only in a worker that may write: safe mode for a single call. Called by the process that
//! becomes the command, after it was started and before it executes the command.
//!
//! It adds Landlock rules without write rights and a filter for file attributes to the confinement that the worker
//! already has.

use super::error::ConfineError;
use super::landlock::{self, FileRights, FileRule, LandlockRules};
use super::privilege;
use super::seccomp;
use std::path::Path;

/// Drops the right to write permanently, except for devices and the directories `private`, which belong to the
/// worker.
///
/// # Errors
/// A step failed. The command must not be started.
pub fn become_read_only(private: &[&Path]) -> Result<(), ConfineError> {
    let filter = seccomp::build_for_attributes()?;
    let mut files = Vec::new();
    files.extend(FileRule::open(Path::new("/"), FileRights::Read)?);

    let devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"].map(Path::new);
    for writable in devices.iter().chain(private) {
        files.extend(FileRule::open(writable, FileRights::Write)?);
    }

    privilege::forbid_new_rights()?;
    landlock::apply(LandlockRules { files, forbid_tcp: false })?;
    seccomp::apply(&filter)
}
