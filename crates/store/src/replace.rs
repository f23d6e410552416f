//! Durable replacement of a file, and every rename that the program does.
//!
//! `std::fs::rename` is banned elsewhere: a rename without the fsync before it leaves a file of no
//! bytes after a power cut (measured on XFS and ext4), and without the one after it, the old file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces `target` with `bytes`, mode 0600, so that a crash at any point leaves the old file or the
/// new one, complete. The order of the four steps is the whole point: data on disk, then the name,
/// then the directory that holds the name.
///
/// The staging file is `target` with `.tmp` added. The instance lock makes us the only writer, and a
/// crash leaves at most this one file, which the next save removes.
///
/// # Errors
/// The system's. On `Err` the caller must assume that either file is there.
pub fn replace_blocking(target: &Path, bytes: &[u8]) -> io::Result<()> {
    try_replace_blocking(target, bytes).map_err(|failure| match failure {
        Failure::OldInPlace(error) | Failure::NewInPlace(error) => error,
    })
}

/// How far a replacement came that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The old file is there.
    OldInPlace(io::Error),
    /// The new file is there, but a power cut may bring the old one back.
    NewInPlace(io::Error),
}

/// As [`replace_blocking`], for a caller that can take it back.
pub(crate) fn try_replace_blocking(target: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let staged = with_suffix(target, ".tmp");
    let stage = || {
        // A new file each time: whatever has that name now, a link or another user's file included,
        // is not written to.
        remove_if_there(&staged)?;
        // Opened before there is anything to take back: descriptors may have run out.
        let dir = directory_of(target)?;
        write_synced(&staged, bytes)?;
        rename(&staged, target)?;
        Ok(dir)
    };
    match stage() {
        Ok(dir) => dir.sync_all().map_err(Failure::NewInPlace),
        Err(error) => {
            // On a full disk, what was written of it is in the way.
            remove_if_there(&staged).ok();
            Err(Failure::OldInPlace(error))
        }
    }
}

/// Renames `from` to `to` in the same directory, durably.
pub(crate) fn move_aside_blocking(from: &Path, to: &Path) -> io::Result<()> {
    let dir = directory_of(to)?;
    rename(from, to)?;
    dir.sync_all()
}

/// A second name for the file that is there now, taken before it is replaced, for [`Previous::keep`]
/// afterwards. `None` if there is no file.
///
/// Kept under its final name only when the new file is safely in place: until then the backup that
/// is there may be the only good one.
pub(crate) fn hold_previous_blocking(target: &Path) -> io::Result<Option<Previous>> {
    let held = with_suffix(target, ".bak.tmp");
    remove_if_there(&held)?;
    match fs::hard_link(target, &held) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // No hard links on this file system, or too many of them: a copy does as well.
        Err(_) => {
            if let Err(error) = copy_synced(target, &held) {
                remove_if_there(&held).ok();
                return Err(error);
            }
        }
    }
    Ok(Some(Previous { held, target: target.to_owned() }))
}

/// The file that was there before. One of its methods must be called; a crash before that leaves a
/// name that the next save removes.
#[derive(Debug)]
#[must_use]
pub(crate) struct Previous {
    held: PathBuf,
    target: PathBuf,
}

impl Previous {
    /// Makes it the backup. Should this fail, the backup is one generation older: not worth an error.
    pub(crate) fn keep(self) {
        rename(&self.held, &with_suffix(&self.target, ".bak")).ok();
        // rename(2) does nothing if both names are the same file already.
        self.discard();
    }

    /// Puts it back: the file was replaced, but not for certain. As good as can be had.
    pub(crate) fn restore(self) {
        rename(&self.held, &self.target).ok();
        self.discard();
    }

    /// Lets go of it: the file was not replaced.
    pub(crate) fn discard(self) {
        remove_if_there(&self.held).ok();
    }
}

/// The path with a suffix added to its last component.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(suffix);
    text.into()
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create_private(path)?;
    file.write_all(bytes)?;
    // On macOS this is F_FULLFSYNC, the only one that means it.
    file.sync_all()
}

fn copy_synced(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut file = create_private(to)?;
    io::copy(&mut source, &mut file)?;
    file.sync_all()
}

fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[expect(clippy::disallowed_methods, reason = "the one place that may rename")]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

fn directory_of(path: &Path) -> io::Result<File> {
    File::open(path.parent().ok_or(io::ErrorKind::InvalidInput)?)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_file_is_replaced_and_private_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        for bytes in [&b"one"[..], b"", b"three"] {
            replace_blocking(&target, bytes).unwrap();
            assert_eq!(fs::read(&target).unwrap(), bytes);
        }
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_staging_file_that_is_there_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (target, victim) = (dir.path().join("f"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, dir.path().join("f.tmp")).unwrap();
        replace_blocking(&target, b"new").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert!(fs::symlink_metadata(&target).unwrap().is_file());
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_no_staging_file() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("d");
        fs::create_dir(&target).unwrap();
        // A file cannot take the place of a directory: the rename fails.
        replace_blocking(&target, b"new").unwrap_err();
        assert!(target.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_stands_in_where_there_are_no_hard_links() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "content").unwrap();
        copy_synced(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"content");
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_replaced_file_can_be_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        fs::write(&target, "old").unwrap();
        let previous = hold_previous_blocking(&target).unwrap().unwrap();
        replace_blocking(&target, b"new").unwrap();
        previous.restore();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_previous_file_is_kept_also_after_a_crash_between_holding_and_keeping() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let backup = dir.path().join("f.bak");
        assert!(hold_previous_blocking(&target).unwrap().is_none());
        fs::write(&target, "one").unwrap();
        // The first holder crashes; the second finds its leftover.
        let _crashed = hold_previous_blocking(&target).unwrap();
        hold_previous_blocking(&target).unwrap().unwrap().keep();
        assert_eq!(fs::read(&backup).unwrap(), b"one");
        // Backup and file are the same inode now, which rename(2) treats specially.
        hold_previous_blocking(&target).unwrap().unwrap().keep();
        replace_blocking(&target, b"two").unwrap();
        assert_eq!(fs::read(&backup).unwrap(), b"one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
