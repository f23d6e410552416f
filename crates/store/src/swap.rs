//! Replacing a file that another program replaces too: what was swapped out is looked at, so that nothing of
//! theirs is lost between our last look and our rename, and of what we wrote there is a copy of ours.
//!
//! A name is everybody's, and so is the file that has it: another program may put another one there, or may write
//! into it and be stopped halfway. `<path>.ours` is a file of its own with what we have acknowledged last,
//! whatever becomes of `<path>`; `<path>.theirs` is one that our rename took out of the way before we had read it.
//! Called by [`crate::Files`].

use crate::quarantine::quarantine_blocking;
use crate::replace::{
    Previous, Replaced, Staged, hold_blocking, remove_if_there, rename, stage_blocking,
    with_suffix, write_synced,
};
use crate::stamp::Stamp;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::de::IgnoredAny;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Where the copy of the last file that we wrote is.
pub(crate) fn ours_name(target: &Path) -> PathBuf {
    with_suffix(target, ".ours")
}

/// Where a file is kept that we took out of the way unread.
pub(crate) fn theirs_name(target: &Path) -> PathBuf {
    with_suffix(target, ".theirs")
}

/// A new file and its copy, both on disk and neither in its place. Dropped, both are gone and nothing happened.
#[derive(Debug)]
#[must_use]
pub(crate) struct Pair {
    staged: Staged,
    copy: OurCopy,
}

/// Puts `bytes` on disk twice, beside `target` and beside its copy. What can fail for want of room is done then.
///
/// # Errors
/// The system's. Nothing is left, if the system can still remove something.
pub(crate) fn stage_pair_blocking(target: &Path, bytes: &[u8]) -> io::Result<Pair> {
    let mut copy = OurCopy { ours: ours_name(target), has_held: false };
    // Before there is a new file: one that is whole says that the new file is ([`recover_blocking`]).
    remove_if_there(&copy.new_name())?;
    let staged = stage_blocking(target, bytes)?;
    write_synced(&copy.new_name(), bytes)?;
    remove_if_there(&copy.held_name())?;
    if fs::symlink_metadata(&copy.ours).is_ok_and(|found| found.is_file()) {
        copy.has_held = hold_blocking(&copy.ours, &copy.held_name())? == Previous::Held;
    }
    Ok(Pair { staged, copy })
}

impl Pair {
    /// Of the new file. It has the same one in its place.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.staged.stamp()
    }
}

/// The copy. Dropped, its names for the time of a save are gone.
#[derive(Debug)]
struct OurCopy {
    ours: PathBuf,
    /// Whether the copy before has a second name now.
    has_held: bool,
}

impl OurCopy {
    fn new_name(&self) -> PathBuf {
        with_suffix(&self.ours, ".tmp")
    }

    fn held_name(&self) -> PathBuf {
        with_suffix(&self.ours, ".bak.tmp")
    }

    /// Puts back the one before, as well as can be had. It takes no room.
    fn restore(&self) {
        let restored = match self.has_held {
            true => rename(&self.held_name(), &self.ours),
            false => remove_if_there(&self.ours),
        };
        restored.ok();
    }
}

impl Drop for OurCopy {
    fn drop(&mut self) {
        remove_if_there(&self.new_name()).ok();
        remove_if_there(&self.held_name()).ok();
    }
}

/// A file that is in place.
#[derive(Debug)]
#[must_use]
pub(crate) struct Swapped {
    pub(crate) replaced: Replaced,
    /// Whether another program's file, which nobody has read, was in that place. It is at
    /// [`theirs_name`] now.
    pub(crate) is_theirs_unread: bool,
}

/// Replaces the target, at which `known` was seen last, and the copy.
///
/// # Errors
/// The system's. What stood at the target stands there again, and the copy is the one before.
pub(crate) fn swap_blocking(pair: Pair, known: Option<Stamp>) -> io::Result<Swapped> {
    let Pair { staged, copy } = pair;
    let taken_out = exchange(&staged, known)?;
    let swapped = Swapped { replaced: Replaced(staged), is_theirs_unread: taken_out };
    let named = rename(&copy.new_name(), &copy.ours);
    let is_named = named.is_ok();
    let Err(error) = named.and_then(|()| swapped.replaced.0.sync_blocking()) else {
        return Ok(swapped);
    };
    // What was refused must not come back. Before the file, whose return syncs the directory.
    if is_named {
        copy.restore();
    }
    swapped.restore_blocking();
    Err(error)
}

/// After a kill between two steps of a swap: a file that was taken out and not looked at yet becomes
/// [`theirs_name`]. Called before anything is loaded; a file has at most `max_bytes`.
///
/// # Errors
/// [`Unrecovered::Unread`]: it is not known what happened, and everything is as it was. The next save would remove
/// what may be another program's, so there must be none. [`Unrecovered::Unwritten`]: the next save meets it too.
pub(crate) fn recover_blocking(target: &Path, max_bytes: u64) -> Result<(), Unrecovered> {
    let out = with_suffix(target, ".tmp");
    let copy = OurCopy { ours: ours_name(target), has_held: false };
    // A copy that is not whole was never followed by a swap. One that cannot be read may have been.
    let new = read_file(&copy.new_name(), max_bytes).map_err(Unrecovered::Unread)?;
    let is_file = is_file(&out).map_err(Unrecovered::Unread)?;
    if let Some(new) = new.filter(|new| is_file && is_whole(new)) {
        // Unless it is our new file, not in place yet. It may well be one that we had read: then there is nothing
        // new in it but what the save, which nobody was told of, would have deleted.
        if !read_file(&out, max_bytes).is_ok_and(|out| out == Some(new)) {
            rename(&out, &theirs_name(target)).map_err(|_error| Unrecovered::Unwritten)?;
        }
    }
    let removed =
        remove_if_there(&copy.new_name()).and_then(|()| remove_if_there(&copy.held_name()));
    removed.map_err(|_error| Unrecovered::Unwritten)
}

/// Why what a kill left is still there.
#[derive(Debug)]
pub(crate) enum Unrecovered {
    /// The system cannot read it now.
    Unread(io::Error),
    /// The system does not let us change it.
    Unwritten,
}

fn is_file(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a regular file holds; `None` if there is none, or a longer one.
fn read_file(path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    if !is_file(path)? {
        return Ok(None);
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut bytes = Vec::new();
    // One byte more shows that it is longer.
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(u64::try_from(bytes.len()).is_ok_and(|len| len <= max_bytes).then_some(bytes))
}

/// Whether it is all of a file of ours: no part of one is.
fn is_whole(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

impl Swapped {
    /// Puts back what was there before, as well as can be had.
    pub(crate) fn restore_blocking(self) {
        if !self.is_theirs_unread {
            return self.replaced.restore_blocking();
        }
        let target = self.replaced.0.target();
        let restored = rename(&theirs_name(target), target);
        restored.and_then(|()| self.replaced.0.sync_blocking()).ok();
    }
}

/// Puts the new file in place and says whether an unknown one was taken out.
fn exchange(staged: &Staged, known: Option<Stamp>) -> io::Result<bool> {
    let (new, target) = (staged.new_name(), staged.target());
    // Twice: the target may come or go in between, and no other way is right for both.
    for _ in 0..2 {
        match renameat_with(CWD, &new, CWD, target, RenameFlags::EXCHANGE) {
            Ok(()) => {
                let kept = keep_unknown(&new, target, known);
                if kept.is_err() {
                    // Theirs belongs where it was; the other one is removed with the staging file.
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
    // No such thing on this file system: a moment remains between the look and the rename.
    let found = Stamp::at_blocking(target);
    let is_unknown = found.is_some() && found != known;
    if is_unknown {
        let theirs = theirs_name(target);
        remove_if_there(&theirs)?;
        fs::hard_link(target, &theirs).or_else(|_| fs::copy(target, &theirs).map(drop))?;
    }
    rename(&new, target)?;
    Ok(is_unknown)
}

/// What was taken out is at `out`. One that is known may go.
fn keep_unknown(out: &Path, target: &Path, known: Option<Stamp>) -> io::Result<bool> {
    let found = fs::symlink_metadata(out)?;
    let resolved = fs::metadata(out).ok().map(|found| Stamp::of(&found));
    if resolved.is_some() && resolved == known {
        return Ok(false);
    }
    if !found.is_file() {
        // No program keeps its metadata in a directory: as with every file that cannot be used.
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

    /// More than any file here has.
    const MAX: u64 = 1000;

    fn names(dir: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut all: Vec<_> =
            entries.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect();
        all.sort();
        all
    }

    fn put(target: &Path, text: &str, known: Option<Stamp>) -> bool {
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
        assert!(!put(&target, "two", Stamp::at_blocking(&target)));
        let wanted = [("f", "two"), ("f.bak", "one"), ("f.ours", "two")];
        assert_eq!(names(dir.path()), pairs(wanted));
        fs::write(dir.path().join("other"), "theirs").unwrap();
        rename(&dir.path().join("other"), &target).unwrap();
        let wanted = [("f", "theirs"), ("f.bak", "one"), ("f.ours", "two")];
        assert_eq!(names(dir.path()), pairs(wanted));
        // Who writes into the file writes into no other one.
        put(&target, "three", Stamp::at_blocking(&target));
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
        let known = Stamp::at_blocking(&target);
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
        // What the new file's name has, what the copy's has, and whether the former is another program's.
        let (new, theirs) = (r#"{"a":1}"#, r#"{"b":2}"#);
        for (out, copy, is_theirs) in [
            // Swapped: theirs was taken out unread.
            (Some(theirs), Some(new), true),
            (Some("{broken"), Some(new), true),
            // Not swapped yet: nobody was promised it.
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
        // The name of the copy is longer than names may be, so that the system refuses to read it, whoever asks.
        let target = dir.path().join("f".repeat(250));
        let out = with_suffix(&target, ".tmp");
        fs::write(&out, "theirs").unwrap();
        let error = recover_blocking(&target, MAX).unwrap_err();
        assert!(matches!(error, Unrecovered::Unread(_)), "{error:?}");
        // So that nothing is saved, which would remove it.
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
        // A file where a directory should be, and a name that is too long.
        read_file(&at("f").join("x"), 5).unwrap_err();
        read_file(&at(&"x".repeat(256)), 5).unwrap_err();
    }

    #[test]
    fn what_cannot_have_a_copy_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        put(&target, "one", None);
        // A directory with something in it has the name.
        let ours = ours_name(&target);
        fs::remove_file(&ours).unwrap();
        fs::create_dir_all(ours.join("x")).unwrap();
        let staged = stage_pair_blocking(&target, b"two").unwrap();
        swap_blocking(staged, Stamp::at_blocking(&target)).unwrap_err();
        assert_eq!(fs::read_to_string(&target).unwrap(), "one");
        fs::remove_dir_all(&ours).unwrap();
        assert!(!put(&target, "two", Stamp::at_blocking(&target)));
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
            put(&target, text, Stamp::at_blocking(&target));
        }
        let wanted = [("f", "two"), ("f.bak", "one"), ("f.ours", "two")];
        assert_eq!(names(dir.path()), pairs(wanted));
    }
}
