//! Durable replacement of a file, and the only function of the program that renames.
//!
//! `std::fs::rename` is banned elsewhere. Without an fsync before the rename, a power failure leaves an empty
//! file (measured on XFS and ext4). Without an fsync after it, the old file may come back.

use crate::stamp::FileStamp;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes `bytes` to a new file next to `target`, with mode 0600, and gives the current file a second name.
/// Does not replace anything yet, but needs all the disk space of a save, so a full disk fails here.
///
/// The new names are `target` with `.tmp` and `.bak.tmp` appended. No other process uses them, because of the
/// instance lock. A crash leaves at most these two files, and the next save removes them.
///
/// # Errors
/// The error of the system call. Removes both names if possible.
pub(crate) fn stage_blocking(target: &Path, bytes: &[u8]) -> io::Result<Staged> {
    // Open the directory first: if the descriptors are used up, nothing has to be undone.
    let dir = directory_of(target)?;
    let target = target.to_owned();
    let mut staged = Staged { target, dir, previous: Previous::None, stamp: None };
    // Always create a new file. The name may be a link or another user's file by now, which must not be
    // written.
    remove_if_there(&staged.new_name())?;
    remove_if_there(&staged.held_name())?;
    staged.previous = hold_blocking(&staged.target, &staged.held_name())?;
    staged.stamp = Some(write_synced(&staged.new_name(), bytes)?);
    Ok(staged)
}

/// A new file that can replace the target. Dropping it removes the new file and changes nothing.
#[derive(Debug)]
#[must_use]
pub(crate) struct Staged {
    target: PathBuf,
    dir: File,
    previous: Previous,
    /// Stamp of the new file; `None` while it is written.
    stamp: Option<FileStamp>,
}

/// Whether the target existed and has a second name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Previous {
    None,
    Held,
}

impl Staged {
    /// Replaces the file in this order: sync the data, rename, sync the directory. So a crash at any point
    /// leaves the complete old file or the complete new one.
    ///
    /// # Errors
    /// The error of the system call. The old file is restored. If only the directory could not be synced, the
    /// new file may come back after a power failure.
    pub(crate) fn replace_blocking(self) -> io::Result<Replaced> {
        rename(&self.new_name(), &self.target)?;
        let replaced = Replaced(self);
        match replaced.0.dir.sync_all() {
            Ok(()) => Ok(replaced),
            Err(error) => {
                replaced.restore_blocking();
                Err(error)
            }
        }
    }

    /// Returns the stamp of the new file. It stays the same when the file is moved into place.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        self.stamp
    }

    pub(crate) fn new_name(&self) -> PathBuf {
        with_suffix(&self.target, ".tmp")
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Syncs the directory, so that its names are durable.
    pub(crate) fn sync_blocking(&self) -> io::Result<()> {
        self.dir.sync_all()
    }

    fn held_name(&self) -> PathBuf {
        with_suffix(&self.target, ".bak.tmp")
    }
}

impl Drop for Staged {
    /// Removes an incomplete new file: on a full disk it would occupy space.
    fn drop(&mut self) {
        remove_if_there(&self.new_name()).ok();
        remove_if_there(&self.held_name()).ok();
    }
}

/// A replaced file that can be restored.
#[derive(Debug)]
#[must_use]
pub(crate) struct Replaced(pub(crate) Staged);

impl Replaced {
    /// Makes the old file the backup. Called only after the save succeeded: until then, the current backup
    /// may be the only good file. A failure leaves an older backup, which is not an error.
    pub(crate) fn keep_blocking(self) {
        if self.0.previous == Previous::Held {
            // rename(2) does nothing if both names are the same file. Then the drop removes the second name.
            rename(&self.0.held_name(), &with_suffix(&self.0.target, ".bak")).ok();
        }
    }

    /// Restores the old file if possible. Needs no disk space.
    pub(crate) fn restore_blocking(self) {
        let target = &self.0.target;
        let restored = match self.0.previous {
            Previous::Held => rename(&self.0.held_name(), target),
            Previous::None => remove_if_there(target),
        };
        restored.and_then(|()| self.0.dir.sync_all()).ok();
    }
}

/// Renames `from` to `to` in the same directory, durably.
pub(crate) fn move_aside_blocking(from: &Path, to: &Path) -> io::Result<()> {
    let dir = directory_of(to)?;
    rename(from, to)?;
    dir.sync_all()
}

/// Creates the second name of a file as a hard link, or as a copy.
pub(crate) fn hold_blocking(target: &Path, held: &Path) -> io::Result<Previous> {
    match fs::hard_link(target, held) {
        Ok(()) => Ok(Previous::Held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Previous::None),
        // The file system has no hard links, or the link limit is reached: a copy is sufficient.
        Err(_) => copy_synced(target, held).map(|()| Previous::Held),
    }
}

/// Appends a suffix to the last component of the path.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(suffix);
    text.into()
}

/// Creates the file with mode 0600, writes `bytes` and syncs it.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<FileStamp> {
    let mut file = create_private(path)?;
    file.write_all(bytes)?;
    // On macOS, `sync_all` is F_FULLFSYNC; fsync(2) alone does not flush the drive's cache.
    file.sync_all()?;
    file.metadata().map(|found| FileStamp::of(&found))
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

#[expect(clippy::disallowed_methods, reason = "the only function that renames")]
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

fn directory_of(path: &Path) -> io::Result<File> {
    File::open(path.parent().ok_or(io::ErrorKind::InvalidInput)?)
}

pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
        stage_blocking(target, bytes)?.replace_blocking()?.keep_blocking();
        Ok(())
    }

    /// Returns the names in the directory with their content, sorted.
    fn content(dir: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut all: Vec<_> =
            entries.map(|path| (name(&path), fs::read_to_string(path).unwrap())).collect();
        all.sort();
        all
    }

    fn names<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec()
    }

    #[test]
    fn the_file_is_replaced_and_private_and_the_one_before_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        replace(&target, b"one").unwrap();
        assert_eq!(content(dir.path()), names([("f", "one")]));
        replace(&target, b"").unwrap();
        replace(&target, b"three").unwrap();
        assert_eq!(content(dir.path()), names([("f", "three"), ("f.bak", "")]));
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_staged_changes_nothing_before_it_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        drop(stage_blocking(&target, b"never").unwrap());
        assert_eq!(content(dir.path()), []);
        replace(&target, b"one").unwrap();
        drop(stage_blocking(&target, b"never").unwrap());
        assert_eq!(content(dir.path()), names([("f", "one")]));
    }

    #[test]
    fn a_staging_file_that_is_there_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (target, victim) = (dir.path().join("f"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        for name in ["f.tmp", "f.bak.tmp"] {
            symlink(&victim, dir.path().join(name)).unwrap();
        }
        replace(&target, b"new").unwrap();
        assert_eq!(content(dir.path()), names([("f", "new"), ("victim", "precious")]));
        assert!(fs::symlink_metadata(&target).unwrap().is_file());
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_no_staging_file() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("d");
        let staged = stage_blocking(&target, b"new").unwrap();
        fs::create_dir(&target).unwrap();
        // A file cannot replace a directory, so the rename fails.
        staged.replace_blocking().unwrap_err();
        assert!(target.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        // A directory has no previous generation either.
        stage_blocking(&target, b"new").unwrap_err();
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
    fn a_replaced_file_can_be_put_back_and_the_backup_is_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        stage_blocking(&target, b"never").unwrap().replace_blocking().unwrap().restore_blocking();
        assert_eq!(content(dir.path()), [], "a first file goes as it came");
        replace(&target, b"one").unwrap();
        replace(&target, b"two").unwrap();
        stage_blocking(&target, b"never").unwrap().replace_blocking().unwrap().restore_blocking();
        assert_eq!(content(dir.path()), names([("f", "two"), ("f.bak", "one")]));
    }

    #[test]
    fn the_file_before_is_kept_also_after_a_crash_between_replacing_and_keeping() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        fs::write(&target, "one").unwrap();
        // A daemon was killed here, before the second name became the backup.
        fs::hard_link(&target, dir.path().join("f.bak.tmp")).unwrap();
        fs::write(dir.path().join("f.tmp"), "half a").unwrap();
        replace(&target, b"two").unwrap();
        assert_eq!(content(dir.path()), names([("f", "two"), ("f.bak", "one")]));
        // Backup and file are the same inode now, which is a special case of rename(2).
        fs::remove_file(&target).unwrap();
        fs::hard_link(dir.path().join("f.bak"), &target).unwrap();
        replace(&target, b"three").unwrap();
        assert_eq!(content(dir.path()), names([("f", "three"), ("f.bak", "one")]));
    }
}
