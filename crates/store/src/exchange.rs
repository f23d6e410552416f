//! Replaces a file that another program replaces too, without losing the other program's content. Called by
//! [`crate::Files`].
//!
//! A plain rename would destroy a file that the other program wrote after our last check. So the two files
//! are exchanged (`RENAME_EXCHANGE`), and then the old one is inspected. A file that was not read before is
//! kept as `<path>.theirs`.
//!
//! The other program may also write into the new file and crash halfway. So `<path>.ours` is a separate copy
//! of the last acknowledged content.

use crate::quarantine::quarantine_blocking;
use crate::replace::{
    Previous, Replaced, Staged, hold_blocking, remove_if_there, rename, stage_blocking,
    with_suffix, write_synced,
};
use crate::stamp::FileStamp;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::de::IgnoredAny;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Path of the recovery copy of the last file that quackd wrote.
pub(crate) fn ours_name(target: &Path) -> PathBuf {
    with_suffix(target, ".ours")
}

/// Path of an external file that was replaced before it was read.
pub(crate) fn theirs_name(target: &Path) -> PathBuf {
    with_suffix(target, ".theirs")
}

/// A new file and its recovery copy, both synced and not yet in place. Dropping the pair removes both.
#[derive(Debug)]
#[must_use]
pub(crate) struct StagedPair {
    staged: Staged,
    copy: RecoveryCopy,
}

/// Writes `bytes` twice: next to `target`, and next to its recovery copy. Needs all the disk space of a save,
/// so a full disk fails here.
///
/// # Errors
/// The error of the system call. Removes both files if possible.
pub(crate) fn stage_pair_blocking(target: &Path, bytes: &[u8]) -> io::Result<StagedPair> {
    let mut copy = RecoveryCopy { ours: ours_name(target), has_held: false };
    // Remove the old copy first: a complete copy means that the new file is complete ([`recover_blocking`]).
    remove_if_there(&copy.new_name())?;
    let staged = stage_blocking(target, bytes)?;
    write_synced(&copy.new_name(), bytes)?;
    remove_if_there(&copy.held_name())?;
    if fs::symlink_metadata(&copy.ours).is_ok_and(|found| found.is_file()) {
        copy.has_held = hold_blocking(&copy.ours, &copy.held_name())? == Previous::Held;
    }
    Ok(StagedPair { staged, copy })
}

impl StagedPair {
    /// Returns the stamp of the new file. It stays the same when the file is moved into place.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        self.staged.stamp()
    }
}

/// The recovery copy. Dropping it removes its temporary names.
#[derive(Debug)]
struct RecoveryCopy {
    ours: PathBuf,
    /// True if the previous copy has a second name.
    has_held: bool,
}

impl RecoveryCopy {
    fn new_name(&self) -> PathBuf {
        with_suffix(&self.ours, ".tmp")
    }

    fn held_name(&self) -> PathBuf {
        with_suffix(&self.ours, ".bak.tmp")
    }

    /// Restores the previous copy if possible. Needs no disk space.
    fn restore(&self) {
        let restored = match self.has_held {
            true => rename(&self.held_name(), &self.ours),
            false => remove_if_there(&self.ours),
        };
        restored.ok();
    }
}

impl Drop for RecoveryCopy {
    fn drop(&mut self) {
        remove_if_there(&self.new_name()).ok();
        remove_if_there(&self.held_name()).ok();
    }
}

/// A file that was moved into place.
#[derive(Debug)]
#[must_use]
pub(crate) struct ExchangeResult {
    pub(crate) replaced: Replaced,
    /// True if the replaced file was another program's and was not read. It is at [`theirs_name`] now.
    pub(crate) is_theirs_unread: bool,
}

/// Moves the new file and its copy into place. `known` is the stamp of the target that was read last.
///
/// # Errors
/// The error of the system call. The target and the copy are restored.
pub(crate) fn swap_blocking(
    pair: StagedPair,
    known: Option<FileStamp>,
) -> io::Result<ExchangeResult> {
    let StagedPair { staged, copy } = pair;
    let taken_out = exchange(&staged, known)?;
    let swapped = ExchangeResult { replaced: Replaced(staged), is_theirs_unread: taken_out };
    let named = rename(&copy.new_name(), &copy.ours);
    let is_named = named.is_ok();
    let Err(error) = named.and_then(|()| swapped.replaced.0.sync_blocking()) else {
        return Ok(swapped);
    };
    // Undo the refused change. The copy comes first, because restoring the file syncs the directory.
    if is_named {
        copy.restore();
    }
    swapped.restore_blocking();
    Err(error)
}

/// Recovers from a kill between two steps of an exchange: an external file that was replaced unread becomes
/// [`theirs_name`]. Must run before the load. `max_bytes` is the maximum size of the file.
///
/// # Errors
/// [`RecoveryError::Unread`]: the state of the files is unknown and unchanged. The next save would delete a
/// file that may be another program's, so the caller must not save. [`RecoveryError::Unwritten`]: the next
/// save fails too.
pub(crate) fn recover_blocking(target: &Path, max_bytes: u64) -> Result<(), RecoveryError> {
    let out = with_suffix(target, ".tmp");
    let copy = RecoveryCopy { ours: ours_name(target), has_held: false };
    // An incomplete copy means that no exchange followed. An unreadable copy may be a complete one.
    let new = read_file(&copy.new_name(), max_bytes).map_err(RecoveryError::Unread)?;
    let is_file = is_file(&out).map_err(RecoveryError::Unread)?;
    if let Some(new) = new.filter(|new| is_file && is_whole(new)) {
        // Skip our own new file: it was not in place yet. Otherwise `out` is the replaced file. If it had been
        // read before the kill, it adds only entries that the unacknowledged save would have deleted.
        if !read_file(&out, max_bytes).is_ok_and(|out| out == Some(new)) {
            rename(&out, &theirs_name(target)).map_err(|_error| RecoveryError::Unwritten)?;
        }
    }
    let removed =
        remove_if_there(&copy.new_name()).and_then(|()| remove_if_there(&copy.held_name()));
    removed.map_err(|_error| RecoveryError::Unwritten)
}

/// Reason why the files of an interrupted save could not be recovered.
#[derive(Debug)]
pub(crate) enum RecoveryError {
    /// The files cannot be read now.
    Unread(io::Error),
    /// The files cannot be renamed or removed.
    Unwritten,
}

fn is_file(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the content of a regular file. `None` if it is missing, has another type or exceeds `max_bytes`.
fn read_file(path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    if !is_file(path)? {
        return Ok(None);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut bytes = Vec::new();
    // Read one byte more to detect a file that is too long.
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(u64::try_from(bytes.len()).is_ok_and(|len| len <= max_bytes).then_some(bytes))
}

/// Returns true if `bytes` is a complete file. No prefix of a JSON object is valid JSON.
fn is_whole(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

impl ExchangeResult {
    /// Restores the old file if possible.
    pub(crate) fn restore_blocking(self) {
        if !self.is_theirs_unread {
            return self.replaced.restore_blocking();
        }
        let target = self.replaced.0.target();
        let restored = rename(&theirs_name(target), target);
        restored.and_then(|()| self.replaced.0.sync_blocking()).ok();
    }
}

/// Moves the new file into place. Returns true if it replaced an unknown file.
fn exchange(staged: &Staged, known: Option<FileStamp>) -> io::Result<bool> {
    let (new, target) = (staged.new_name(), staged.target());
    // Try twice: the target may appear or disappear between the calls. EXCHANGE needs an existing target, and
    // NOREPLACE a missing one.
    for _ in 0..2 {
        match renameat_with(CWD, &new, CWD, target, RenameFlags::EXCHANGE) {
            Ok(()) => {
                let kept = keep_unknown(&new, target, known);
                if kept.is_err() {
                    // Move the other program's file back. Dropping the staging file removes ours.
                    renameat_with(CWD, &new, CWD, target, RenameFlags::EXCHANGE).ok();
                }
                return kept;
            }
            Err(Errno::NOENT) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
            Err(errno) => return Err(errno.into()),
        }
        match renameat_with(CWD, &new, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(false),
            Err(Errno::EXIST) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    // This file system has no exchange. A write between this check and the rename is lost.
    let found = FileStamp::at_blocking(target);
    let is_unknown = found.is_some() && found != known;
    if is_unknown {
        let theirs = theirs_name(target);
        remove_if_there(&theirs)?;
        fs::hard_link(target, &theirs).or_else(|_| fs::copy(target, &theirs).map(drop))?;
    }
    rename(&new, target)?;
    Ok(is_unknown)
}

/// Inspects the replaced file at `out`. Keeps it if its stamp is not `known`.
fn keep_unknown(out: &Path, target: &Path, known: Option<FileStamp>) -> io::Result<bool> {
    let found = fs::symlink_metadata(out)?;
    let resolved = fs::metadata(out).ok().map(|found| FileStamp::of(&found));
    if resolved.is_some() && resolved == known {
        return Ok(false);
    }
    if !found.is_file() {
        // Not a regular file, so it cannot be metadata: quarantine it like every unusable file.
        quarantine_blocking(out, target)?;
        return Ok(false);
    }
    rename(out, &theirs_name(target))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    /// Larger than every file in these tests.
    const MAX: u64 = 1000;

    fn names(dir: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut all: Vec<_> =
            entries.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect();
        all.sort();
        all
    }

    fn put(target: &Path, text: &str, known: Option<FileStamp>) -> bool {
        let swapped =
            swap_blocking(stage_pair_blocking(target, text.as_bytes()).unwrap(), known).unwrap();
        let is_theirs_unread = swapped.is_theirs_unread;
        swapped.replaced.keep_blocking();
        is_theirs_unread
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec()
    }

    #[test]
    fn of_what_we_write_there_is_a_copy_whatever_becomes_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        assert!(!put(&target, "one", None));
        assert!(!put(&target, "two", FileStamp::at_blocking(&target)));
        let wanted = [("f", "two"), ("f.bak", "one"), ("f.ours", "two")];
        assert_eq!(names(dir.path()), pairs(wanted));
        fs::write(dir.path().join("other"), "theirs").unwrap();
        rename(&dir.path().join("other"), &target).unwrap();
        let wanted = [("f", "theirs"), ("f.bak", "one"), ("f.ours", "two")];
        assert_eq!(names(dir.path()), pairs(wanted));
        // Writing into the file does not change the recovery copy.
        put(&target, "three", FileStamp::at_blocking(&target));
        fs::write(&target, "hal").unwrap();
        let wanted = [("f", "hal"), ("f.bak", "theirs"), ("f.ours", "three")];
        assert_eq!(names(dir.path()), pairs(wanted));
        let inode = |name: &str| dir.path().join(name).metadata().unwrap().ino();
        assert!(inode("f") != inode("f.ours") && inode("f.bak") != inode("f.ours"));
    }

    #[test]
    fn a_file_that_came_after_our_last_look_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        put(&target, "one", None);
        let known = FileStamp::at_blocking(&target);
        let staged = stage_pair_blocking(&target, b"two").unwrap();
        fs::write(dir.path().join("other"), "theirs").unwrap();
        rename(&dir.path().join("other"), &target).unwrap();
        let swapped = swap_blocking(staged, known).unwrap();
        assert!(swapped.is_theirs_unread);
        swapped.replaced.keep_blocking();
        let wanted = [("f", "two"), ("f.bak", "one"), ("f.ours", "two"), ("f.theirs", "theirs")];
        assert_eq!(names(dir.path()), pairs(wanted));
    }

    #[test]
    fn a_first_file_that_came_meanwhile_is_kept_too() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let staged = stage_pair_blocking(&target, b"ours").unwrap();
        fs::write(&target, "theirs").unwrap();
        let swapped = swap_blocking(staged, None).unwrap();
        assert!(swapped.is_theirs_unread);
        swapped.replaced.keep_blocking();
        let wanted = [("f", "ours"), ("f.ours", "ours"), ("f.theirs", "theirs")];
        assert_eq!(names(dir.path()), pairs(wanted));
    }

    #[test]
    fn a_directory_that_came_meanwhile_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let staged = stage_pair_blocking(&target, b"ours").unwrap();
        fs::create_dir(&target).unwrap();
        let swapped = swap_blocking(staged, None).unwrap();
        assert!(!swapped.is_theirs_unread);
        swapped.replaced.keep_blocking();
        assert_eq!(fs::read_to_string(&target).unwrap(), "ours");
        assert!(dir.path().join("f.corrupt-1").is_dir());
    }

    #[test]
    fn what_a_kill_left_between_two_steps_is_told_apart() {
        // Content of the new file's name, content of the copy's name, and whether the first is external.
        let (new, theirs) = (r#"{"a":1}"#, r#"{"b":2}"#);
        for (out, copy, is_theirs) in [
            // Exchanged: the external file was replaced unread.
            (Some(theirs), Some(new), true),
            (Some("{broken"), Some(new), true),
            // Not exchanged yet: the save was not acknowledged.
            (Some(new), Some(new), false),
            (Some(new), Some(&new[..3]), false),
            (Some(new), Some(""), false),
            (Some(new), Some("\0\0\0\0\0\0\0"), false),
            (Some(new), None, false),
            (Some(&new[..3]), None, false),
            (None, Some(new), false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            fs::write(at("f"), "any").unwrap();
            fs::write(at("f.ours"), "before").unwrap();
            fs::hard_link(at("f.ours"), at("f.ours.bak.tmp")).unwrap();
            for (name, text) in [("f.tmp", out), ("f.ours.tmp", copy)] {
                text.into_iter().for_each(|text| fs::write(at(name), text).unwrap());
            }
            recover_blocking(&at("f"), MAX).unwrap();
            let kept = fs::read_to_string(at("f.theirs")).ok();
            assert_eq!(kept.as_deref(), out.filter(|_| is_theirs), "{out:?} {copy:?}");
            assert!(!at("f.ours.tmp").exists() && !at("f.ours.bak.tmp").exists());
            assert_eq!(fs::read_to_string(at("f.ours")).unwrap(), "before");
        }
    }

    #[test]
    fn what_may_be_theirs_stays_if_it_cannot_be_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        // The copy's name exceeds the maximum length, so reading it fails even for root.
        let target = dir.path().join("f".repeat(250));
        let out = with_suffix(&target, ".tmp");
        fs::write(&out, "theirs").unwrap();
        let error = recover_blocking(&target, MAX).unwrap_err();
        assert!(matches!(error, RecoveryError::Unread(_)), "{error:?}");
        // The load fails, so no save can remove the file.
        let error = crate::load_blocking(&target).unwrap_err();
        assert!(matches!(error, crate::StoreError::Read { .. }), "{error:?}");
        assert_eq!(fs::read_to_string(&out).unwrap(), "theirs");
    }

    #[test]
    fn only_what_is_not_there_or_not_ours_counts_as_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("f"), "12345").unwrap();
        std::os::unix::fs::symlink(at("f"), at("link")).unwrap();
        assert_eq!(read_file(&at("f"), 5).unwrap().as_deref(), Some(b"12345".as_slice()));
        for (name, max) in [("f", 4), ("link", 5), ("none", 5), (".", 5)] {
            assert_eq!(read_file(&at(name), max).unwrap(), None, "{name} {max}");
        }
        // A file in place of a directory, and a name that is too long.
        read_file(&at("f").join("x"), 5).unwrap_err();
        read_file(&at(&"x".repeat(256)), 5).unwrap_err();
    }

    #[test]
    fn what_cannot_have_a_copy_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        put(&target, "one", None);
        // The name is taken by a directory with an entry.
        let ours = ours_name(&target);
        fs::remove_file(&ours).unwrap();
        fs::create_dir_all(ours.join("x")).unwrap();
        let staged = stage_pair_blocking(&target, b"two").unwrap();
        swap_blocking(staged, FileStamp::at_blocking(&target)).unwrap_err();
        assert_eq!(fs::read_to_string(&target).unwrap(), "one");
        fs::remove_dir_all(&ours).unwrap();
        assert!(!put(&target, "two", FileStamp::at_blocking(&target)));
        let wanted = [("f", "two"), ("f.bak", "one"), ("f.ours", "two")];
        assert_eq!(names(dir.path()), pairs(wanted));
    }

    #[test]
    fn a_copy_that_was_put_in_place_can_be_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        for (before, text) in [(None, "one"), (Some("one"), "two")] {
            let pair = stage_pair_blocking(&target, text.as_bytes()).unwrap();
            rename(&pair.copy.new_name(), &pair.copy.ours).unwrap();
            pair.copy.restore();
            drop(pair);
            let copy = fs::read_to_string(ours_name(&target)).ok();
            assert_eq!(copy.as_deref(), before);
            put(&target, text, FileStamp::at_blocking(&target));
        }
        let wanted = [("f", "two"), ("f.bak", "one"), ("f.ours", "two")];
        assert_eq!(names(dir.path()), pairs(wanted));
    }
}
