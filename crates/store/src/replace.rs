//! Durable replacement of a file, and the only function of the program that renames.
//!
//! `std::fs::rename` is banned elsewhere. Without an fsync before the rename, a power failure leaves an empty
//! file (measured on XFS and ext4). Without an fsync after it, the old file may come back.

use crate::stamp::FileStamp;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces a small file with `bytes`, durably and with mode 0600: `config.json`, the token of remote control. Keeps
/// no backup, because the old file may contain a revoked secret. The caller must be the only writer of the file.
///
/// # Errors
/// The error of the system call. The old file is intact.
pub fn replace_file_blocking(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_blocking(path, bytes).map(drop)
}

/// Like [`replace_file_blocking`]. The old file becomes `<path>.bak`, and only after the save succeeded: until then,
/// the backup may be the only good file. If that fails, the backup stays as it is, which is not an error.
pub(crate) fn replace_with_backup_blocking(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let held = replace_blocking(path, bytes)?;
    // rename(2) does nothing if both names are the same file. Then the drop removes the second name.
    keep_as_backup_blocking(&held.0, path);
    Ok(())
}

/// Makes `old`, a replaced file in the same directory, the `<path>.bak` of its successor. A failure is no error: `old`
/// is removed then.
pub fn keep_as_backup_blocking(old: &Path, path: &Path) {
    if rename(old, &with_suffix(path, ".bak")).is_err() {
        // An extra file does no harm.
        remove_if_there(old).ok();
    }
}

/// Writes a new file, syncs it, renames it, and syncs the directory. So a crash at any point leaves the complete old
/// file or the complete new one. Returns the second name of the old file.
///
/// The names are `path` with `.tmp` and `.bak.tmp` appended. No other process uses them, because of the instance lock.
/// A crash leaves at most these two files, and the next save removes them.
fn replace_blocking(path: &Path, bytes: &[u8]) -> io::Result<Temporary> {
    // Open the directory first: if the descriptors are used up, nothing has to be undone.
    let dir = directory_of(path)?;

    let new = Temporary::new_blocking(with_suffix(path, ".tmp"))?;
    let held = Temporary::new_blocking(with_suffix(path, ".bak.tmp"))?;
    let previous = hold_blocking(path, &held.0)?;

    write_synced_blocking(&new.0, bytes)?;
    rename(&new.0, path)?;

    if let Err(error) = dir.sync_all() {
        // The new file may come back after a power failure.
        let restored = match previous {
            Previous::Held => rename(&held.0, path),
            Previous::None => remove_if_there(path),
        };
        // A failure here cannot be reported: the caller already gets an error.
        restored.and_then(|()| dir.sync_all()).ok();
        return Err(error);
    }
    Ok(held)
}

/// A name that is removed when this is dropped: on a full disk an incomplete file would occupy space.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// Removes an existing file: the name may be a link or another user's file, which must not be written.
    ///
    /// # Errors
    /// The existing file cannot be removed.
    pub fn new_blocking(path: PathBuf) -> io::Result<Self> {
        remove_if_there(&path)?;
        Ok(Self(path))
    }

    /// Returns the name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves the file where it is.
    pub fn keep(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // An extra file does no harm, and the next save removes it.
        remove_if_there(&self.0).ok();
    }
}

/// Whether a file existed and has a second name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Previous {
    None,
    Held,
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
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(suffix);
    text.into()
}

/// Creates the file with mode 0600, writes `bytes` and syncs it.
///
/// # Errors
/// The file exists, or a system call failed. An incomplete file may be left.
pub fn write_synced_blocking(path: &Path, bytes: &[u8]) -> io::Result<FileStamp> {
    let mut file = create_private(path)?;
    file.write_all(bytes)?;
    // On macOS, `sync_all` is F_FULLFSYNC; fsync(2) alone does not flush the drive's cache.
    file.sync_all()?;
    file.metadata().map(|metadata| FileStamp::of(&metadata))
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

    use super::replace_with_backup_blocking as replace;

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
    fn a_secret_is_replaced_and_nothing_of_the_old_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for text in ["old", "new"] {
            replace_file_blocking(&path, text.as_bytes()).unwrap();
        }
        assert_eq!(content(dir.path()), names([("token", "new")]));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
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
        fs::create_dir(&target).unwrap();
        // A directory has no previous generation, and a file cannot replace it.
        replace(&target, b"new").unwrap_err();
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
