//! Durable replacement of a file, and every rename that the program does.
//!
//! `std::fs::rename` is banned elsewhere: a rename without the fsync before it leaves a file of no
//! bytes after a power cut (measured on XFS and ext4), and without the one after it, the old file.

use crate::stamp::Stamp;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Puts `bytes` on disk beside `target`, mode 0600, and a second name for the file that is there now.
/// Nothing is replaced yet, and what can fail for want of room is done.
///
/// The names are `target` with `.tmp` and `.bak.tmp` added. The instance lock makes us the only one that
/// uses them, and a crash leaves at most these two, which the next save removes.
///
/// # Errors
/// The system's. Neither name is left, if the system can still remove one.
pub(crate) fn stage_blocking(target: &Path, bytes: &[u8]) -> io::Result<Staged> {
    // Opened before there is anything to take back: descriptors may run out.
    let dir = directory_of(target)?;
    let target = target.to_owned();
    let mut staged = Staged { target, dir, previous: Previous::None, stamp: None };
    // A new file each time: whatever has that name now, a link or another user's file included, is not
    // written to.
    remove_if_there(&staged.new_name())?;
    remove_if_there(&staged.held_name())?;
    staged.previous = hold_blocking(&staged.target, &staged.held_name())?;
    staged.stamp = Some(write_synced(&staged.new_name(), bytes)?);
    Ok(staged)
}

/// A file that is ready to take the place of another one. Dropped, it is gone and nothing happened.
#[derive(Debug)]
#[must_use]
pub(crate) struct Staged {
    target: PathBuf,
    dir: File,
    previous: Previous,
    /// Of the new file; `None` only while it is being written.
    stamp: Option<Stamp>,
}

/// What stood at the target before, and has a second name now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Previous {
    None,
    Held,
}

impl Staged {
    /// Replaces the file: a crash at any point leaves the old one or the new one, complete. The order of
    /// the steps is the whole point: data on disk, then the name, then the directory that holds the name.
    ///
    /// # Errors
    /// The system's. The old file is there then; only if the directory could not be synced, a power cut
    /// may bring the new one.
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

    /// Of the new file. It has the same one in its place.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    pub(crate) fn new_name(&self) -> PathBuf {
        with_suffix(&self.target, ".tmp")
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Makes the names in the directory durable.
    pub(crate) fn sync_blocking(&self) -> io::Result<()> {
        self.dir.sync_all()
    }

    fn held_name(&self) -> PathBuf {
        with_suffix(&self.target, ".bak.tmp")
    }
}

impl Drop for Staged {
    /// What was written of the new file is in the way on a full disk.
    fn drop(&mut self) {
        remove_if_there(&self.new_name()).ok();
        remove_if_there(&self.held_name()).ok();
    }
}

/// A file that was replaced and can be put back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Replaced(pub(crate) Staged);

impl Replaced {
    /// Makes the file that was there before the backup. Should this fail, the backup is one generation
    /// older: not worth an error. Until now the backup that is there may have been the only good one.
    pub(crate) fn keep_blocking(self) {
        if self.0.previous == Previous::Held {
            // rename(2) does nothing if both names are the same file already; the drop removes one.
            rename(&self.0.held_name(), &with_suffix(&self.0.target, ".bak")).ok();
        }
    }

    /// Puts back what was there before, as well as can be had. It takes no room.
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

/// Gives the file a second name, or makes a copy of that name.
pub(crate) fn hold_blocking(target: &Path, held: &Path) -> io::Result<Previous> {
    match fs::hard_link(target, held) {
        Ok(()) => Ok(Previous::Held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Previous::None),
        // No hard links on this file system, or too many of them: a copy does as well.
        Err(_) => copy_synced(target, held).map(|()| Previous::Held),
    }
}

/// The path with a suffix added to its last component.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(suffix);
    text.into()
}

/// Makes the file, mode 0600, with `bytes` on disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<Stamp> {
    let mut file = create_private(path)?;
    file.write_all(bytes)?;
    // On macOS this is F_FULLFSYNC, the only one that means it.
    file.sync_all()?;
    file.metadata().map(|found| Stamp::of(&found))
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

    /// The names in the directory with their content, in order.
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
        // A file cannot take the place of a directory: the rename fails.
        staged.replace_blocking().unwrap_err();
        assert!(target.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        // Nor has a directory a generation before.
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
        // A daemon was killed here: its second name for the file was not made the backup.
        fs::hard_link(&target, dir.path().join("f.bak.tmp")).unwrap();
        fs::write(dir.path().join("f.tmp"), "half a").unwrap();
        replace(&target, b"two").unwrap();
        assert_eq!(content(dir.path()), names([("f", "two"), ("f.bak", "one")]));
        // Backup and file are the same inode now, which rename(2) treats specially.
        fs::remove_file(&target).unwrap();
        fs::hard_link(dir.path().join("f.bak"), &target).unwrap();
        replace(&target, b"three").unwrap();
        assert_eq!(content(dir.path()), names([("f", "three"), ("f.bak", "one")]));
    }
}
