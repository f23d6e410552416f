//! Confinement of the process that makes and applies the private copy of a workspace. It reads files that a session wrote
//! and writes files of the user, so it reaches the workspace and the copy only, and no network.

use super::error::ConfineError;
use super::landlock::{self, FileRights, FileRule, LandlockRules};
use super::seccomp::{self, Sockets};
use super::{privilege, sys};
use std::path::{Path, PathBuf};

/// Directories with git and the libraries that it loads.
const PROGRAMS: [&str; 8] =
    ["/usr", "/bin", "/lib", "/lib64", "/etc", "/dev/null", "/nix/store", "/gnu/store"];

/// Confines this process, which must have one thread: it can read the system's programs and `readable`, and change
/// `writable`.
///
/// # Errors
/// A step failed, or the kernel has no Landlock. The process must then exit.
pub fn enter_isolate(readable: &[PathBuf], writable: &[PathBuf]) -> Result<(), ConfineError> {
    if sys::landlock_version() == 0 {
        return Err(ConfineError::new("restrict by Landlock", "the kernel has none"));
    }
    let filter = seccomp::build(Sockets::PairsOnly)?;

    let mut files = Vec::new();
    let programs = PROGRAMS.iter().filter_map(|path| std::fs::canonicalize(path).ok());
    for path in programs.chain(readable.iter().cloned()) {
        files.extend(FileRule::open(&path, FileRights::Read)?);
    }

    files.extend(FileRule::open(Path::new("/dev/null"), FileRights::Change)?);
    // Git names its temporary files at random.
    files.extend(FileRule::open(Path::new("/dev/urandom"), FileRights::Read)?);
    for path in writable {
        files.extend(FileRule::open(path, FileRights::Write)?);
    }

    privilege::drop_held()?;
    privilege::forbid_new_rights()?;
    landlock::apply(LandlockRules { files, forbid_tcp: true })?;
    seccomp::apply(&filter)
}
