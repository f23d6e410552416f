//! Replacing a file that another program replaces too: what was swapped out is looked at, so that nothing of
//! theirs is lost between our last look and our rename, and what we wrote keeps a second name of ours.
//!
//! Both are the same idea: a name is everybody's, a file is not. `<path>.ours` is the last file that we have
//! acknowledged, whoever replaces `<path>`; `<path>.theirs` is one that our rename took out of the way before
//! we had read it. Called by [`crate::Files`].

use crate::quarantine::quarantine_blocking;
use crate::replace::{Replaced, Staged, remove_if_there, rename, with_suffix};
use crate::stamp::Stamp;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the last file that we wrote has its second name.
pub(crate) fn ours_name(target: &Path) -> PathBuf {
    with_suffix(target, ".ours")
}

/// Where a file is kept that we took out of the way unread.
pub(crate) fn theirs_name(target: &Path) -> PathBuf {
    with_suffix(target, ".theirs")
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

/// Replaces the target, at which `known` was seen last, and gives the new file its second name.
///
/// # Errors
/// The system's. What stood at the target stands there again.
pub(crate) fn swap_blocking(staged: Staged, known: Option<Stamp>) -> io::Result<Swapped> {
    let (target, ours) = (staged.target().to_owned(), ours_name(staged.target()));
    let second = with_suffix(&ours, ".tmp");
    remove_if_there(&second)?;
    // Where there are no hard links there is no second name, and an older one would be wrong.
    let has_second = fs::hard_link(staged.new_name(), &second).is_ok();
    let taken_out = match exchange(&staged, known) {
        Ok(taken_out) => taken_out,
        Err(error) => {
            remove_if_there(&second).ok();
            return Err(error);
        }
    };
    let swapped = Swapped { replaced: Replaced(staged), is_theirs_unread: taken_out };
    let named = if has_second { rename(&second, &ours) } else { remove_if_there(&ours) };
    let result = named.and_then(|()| swapped.replaced.0.sync_blocking());
    let Err(error) = result else { return Ok(swapped) };
    remove_if_there(&second).ok();
    swapped.restore_blocking();
    // The second name goes with the file: what was refused must not come back.
    let again = remove_if_there(&ours).and_then(|()| match fs::hard_link(&target, &ours) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        linked => linked,
    });
    again.ok();
    Err(error)
}

/// After a kill between two steps of a swap: a file that was taken out and not looked at yet becomes
/// [`theirs_name`]. Called before anything is loaded, so that the second name of a file that was never
/// acknowledged is gone before the first save.
///
/// # Errors
/// The system's.
pub(crate) fn recover_blocking(target: &Path) -> io::Result<()> {
    let out = with_suffix(target, ".tmp");
    let second = with_suffix(&ours_name(target), ".tmp");
    let which = |path: &Path| {
        let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
        found.map(|found| (found.dev(), found.ino()))
    };
    if let (Some(taken), Some(ours)) = (which(&out), which(&second)) {
        // Unless it is our new file, not in place yet. It may well be one that we had read: then there is nothing
        // new in it but what the save, which nobody was told of, would have deleted.
        if taken != ours {
            rename(&out, &theirs_name(target))?;
        }
    }
    remove_if_there(&second)
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
    use crate::replace::stage_blocking;

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
            swap_blocking(stage_blocking(target, text.as_bytes()).unwrap(), known).unwrap();
        let is_theirs_unread = swapped.is_theirs_unread;
        swapped.replaced.keep_blocking();
        is_theirs_unread
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec()
    }

    #[test]
    fn what_we_write_keeps_a_second_name_whoever_takes_the_first() {
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
    }

    #[test]
    fn a_file_that_came_after_our_last_look_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        put(&target, "one", None);
        let known = Stamp::at_blocking(&target);
        let staged = stage_blocking(&target, b"two").unwrap();
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
        let staged = stage_blocking(&target, b"ours").unwrap();
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
        let staged = stage_blocking(&target, b"ours").unwrap();
        fs::create_dir(&target).unwrap();
        let swapped = swap_blocking(staged, None).unwrap();
        assert!(!swapped.is_theirs_unread);
        swapped.replaced.keep_blocking();
        assert_eq!(fs::read_to_string(&target).unwrap(), "ours");
        assert!(dir.path().join("f.corrupt-1").is_dir());
    }

    #[test]
    fn what_a_kill_left_between_two_steps_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let target = at("f");
        // Ours is in place, theirs was taken out unread.
        fs::write(&target, "ours").unwrap();
        fs::hard_link(&target, at("f.ours.tmp")).unwrap();
        fs::write(at("f.bak.tmp"), "seen").unwrap();
        fs::write(at("f.tmp"), "theirs").unwrap();
        recover_blocking(&target).unwrap();
        let wanted = [("f", "ours"), ("f.bak.tmp", "seen"), ("f.theirs", "theirs")];
        assert_eq!(names(dir.path()), pairs(wanted));
        // Ours was not in place yet: nobody was promised it.
        fs::remove_file(at("f.theirs")).unwrap();
        fs::write(at("f.tmp"), "never acknowledged").unwrap();
        fs::hard_link(at("f.tmp"), at("f.ours.tmp")).unwrap();
        recover_blocking(&target).unwrap();
        assert!(!at("f.theirs").exists() && !at("f.ours.tmp").exists());
    }

    #[test]
    fn what_is_taken_back_takes_its_second_name_along() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        put(&target, "one", None);
        // The second name cannot be given: a directory with something in it has it.
        let ours = ours_name(&target);
        fs::remove_file(&ours).unwrap();
        fs::create_dir_all(ours.join("x")).unwrap();
        let staged = stage_blocking(&target, b"two").unwrap();
        swap_blocking(staged, Stamp::at_blocking(&target)).unwrap_err();
        assert_eq!(fs::read_to_string(&target).unwrap(), "one");
        fs::remove_dir_all(&ours).unwrap();
        assert!(!put(&target, "two", Stamp::at_blocking(&target)));
        let wanted = [("f", "two"), ("f.bak", "one"), ("f.ours", "two")];
        assert_eq!(names(dir.path()), pairs(wanted));
    }
}
