//! Creates the symbolic links of commands, except in git directories: the user's own git would write through them.
//!
//! Neither a mount nor Landlock can forbid links in one directory of a writable tree. Checking the call and then
//! letting it continue is no alternative: the command could change the path in its memory in between. So process 1
//! reads the path once, opens the directory once, and creates the link in that directory.
//!
//! A link cannot be moved or hard-linked into a git directory from elsewhere, because git directories are separate
//! mounts.

use super::caller::{Caller, open};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx, symlinkat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Creates the link of a suspended call, unless it would be in one of `mounts`. The arguments are the numbers of the
/// call's arguments; `descriptor` is the directory in which the path starts.
///
/// # Errors
/// Number for the caller.
pub(crate) fn make(
    caller: &Caller<'_>,
    target: usize,
    descriptor: u32,
    path: usize,
    mounts: &BTreeSet<u64>,
) -> Result<(), Errno> {
    let start = open(Path::new(&caller.start(descriptor)), OFlags::PATH | OFlags::DIRECTORY);
    let target = caller.string(target)?;
    let path = caller.string(path)?;
    // After the last read: before, another process could have got the number of the caller.
    caller.check()?;

    let (parent, name) = split(path.as_bytes());
    if name.is_empty() {
        return Err(Errno::NOENT);
    }

    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A magic link such as `/proc/self` would refer to this process, not to the caller.
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let parent = if parent.is_absolute() {
        openat2(CWD, parent, flags, Mode::empty(), resolve)?
    } else {
        openat2(start.map_err(bad_descriptor)?, parent, flags, Mode::empty(), resolve)?
    };

    // The mount decides, because the path may lead there through links.
    let mount = statx(&parent, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id;
    if mounts.contains(&mount) {
        return Err(Errno::PERM);
    }
    symlinkat(target, &parent, name)
}

/// Returns EBADF for a descriptor that the caller does not have.
fn bad_descriptor(errno: Errno) -> Errno {
    if errno == Errno::NOENT { Errno::BADF } else { errno }
}

/// Splits a path into its directory, `.` by default, and its last name.
fn split(path: &[u8]) -> (&Path, &OsStr) {
    let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = path.split_at(name_at);
    let parent = if parent.is_empty() { b".".as_slice() } else { parent };
    (Path::new(OsStr::from_bytes(parent)), OsStr::from_bytes(name))
}
