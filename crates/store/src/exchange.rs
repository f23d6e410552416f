//! Puts a file in the place of one that another program replaces too, without losing the other program's file.
//! Called by `quackd-rubber-duck`, for `metadata.json`.
//!
//! A plain rename would destroy a file that the other program wrote after our last look. So the two files are
//! exchanged (`RENAME_EXCHANGE`), and the caller inspects the old one.

use crate::replace::{Previous, hold_blocking, remove_if_there, rename, with_suffix};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Moves the file at `new` to `target`. Returns true if `target` existed: the old file is at `new` then.
///
/// # Errors
/// The error of the system call. Nothing was moved.
pub fn exchange_blocking(new: &Path, target: &Path) -> io::Result<bool> {
    // Twice: the target may appear or disappear between the calls. EXCHANGE needs an existing target, and NOREPLACE
    // a missing one.
    for _ in 0..2 {
        for (flags, had_target) in [(RenameFlags::EXCHANGE, true), (RenameFlags::NOREPLACE, false)]
        {
            match renameat_with(CWD, new, CWD, target, flags) {
                Ok(()) => return Ok(had_target),
                Err(Errno::NOENT | Errno::EXIST) => {}
                // The file system or the kernel cannot exchange.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    return replace_blocking(new, target);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    replace_blocking(new, target)
}

/// For file systems that cannot exchange. A write between the two steps is lost.
fn replace_blocking(new: &Path, target: &Path) -> io::Result<bool> {
    let held = with_suffix(target, ".bak.tmp");
    // A leftover of a save that a kill cut short.
    remove_if_there(&held)?;

    let previous = hold_blocking(target, &held)?;
    rename(new, target)?;
    if previous == Previous::Held {
        rename(&held, new)?;
    }
    Ok(previous == Previous::Held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn both_ways_give_back_what_was_there() {
        for exchange in [exchange_blocking, replace_blocking] {
            let dir = tempfile::tempdir().unwrap();
            let (new, target) = (dir.path().join("new"), dir.path().join("f"));
            let put = |text: &str| {
                fs::write(&new, text).unwrap();
                exchange(&new, &target).unwrap()
            };
            assert!(!put("one"));
            assert!(!new.exists());
            assert!(put("two"));
            assert_eq!(fs::read_to_string(&target).unwrap(), "two");
            assert_eq!(fs::read_to_string(&new).unwrap(), "one");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }
}
