//! Keeps the old contents of changed files over a restart of the daemon.

use super::Home;
use crate::HomeError;
use crate::ownership::{RUN_FLAGS, is_retired_run};
use rustix::fs::{self as sys, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

/// The journal of changed files in a session's run directory.
const JOURNAL: &CStr = c"journal";

/// Maximum number of sessions whose journal is kept.
const MAX_SESSIONS: usize = 10_000;

/// Workers wrote the run directories, so no link in them is followed.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Home {
    /// Moves the journals of changed files from run directories that were moved aside into the new one. Sessions that have
    /// a journal there keep that. The caller holds the instance lock, and has called [`Home::prepare_blocking`].
    ///
    /// # Errors
    /// [`HomeError::Io`]: the directories cannot be opened. A journal that cannot be moved is left where it is.
    pub fn keep_undo_data_blocking(&self) -> Result<(), HomeError> {
        let Some(dir) = self.open_dir_blocking()? else { return Ok(()) };
        let failed = |errno| HomeError::io("open", &self.run_dir(), errno);
        let run = sys::openat(&dir, c"run", RUN_FLAGS, Mode::empty()).map_err(failed)?;

        let names = Dir::read_from(&dir).map_err(failed)?.filter_map(Result::ok);
        let names: Vec<_> = names.map(|entry| entry.file_name().to_owned()).collect();
        let is_retired =
            |name: &&std::ffi::CString| name.to_str().is_ok_and(|name| is_retired_run(&dir, name));

        for name in names.iter().filter(is_retired) {
            if let Ok(retired) = sys::openat(&dir, name, DIRECTORY, Mode::empty()) {
                keep_of(&retired, &run).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn keep_of(retired: &OwnedFd, run: &OwnedFd) -> Result<(), Errno> {
    for entry in Dir::read_from(retired)?.filter_map(Result::ok).take(MAX_SESSIONS) {
        let session = entry.file_name();
        if session.to_bytes().starts_with(b".") {
            continue;
        }
        // A session without a journal, or a journal that cannot be moved, has nothing to keep.
        move_journal(retired, run, session).ok();
    }
    Ok(())
}

fn move_journal(retired: &OwnedFd, run: &OwnedFd, session: &CStr) -> Result<(), Errno> {
    let old = sys::openat(retired, session, DIRECTORY, Mode::empty())?;
    let journal = sys::statat(&old, JOURNAL, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(journal.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }

    match sys::mkdirat(run, session, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let new = sys::openat(run, session, DIRECTORY, Mode::empty())?;
    sys::renameat(&old, JOURNAL, &new, JOURNAL)
}

#[cfg(test)]
mod tests {
    use super::super::tests::home_at;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn journals_are_kept_and_what_workers_planted_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let home = home_at(dir.path());
        home.prepare_blocking().unwrap();
        for session in ["s1", "s2", "s3"] {
            home.prepare_session_run_dir_blocking(session).unwrap();
        }
        let run = home.run_dir();
        fs::create_dir_all(run.join("s1/journal/1-00000001")).unwrap();
        fs::write(run.join("s1/other"), "").unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir_all(outside.join("journal")).unwrap();
        symlink(&outside, run.join("s2/journal")).unwrap();
        symlink(&outside, run.join("s4")).unwrap();

        home.retire_run_dir_blocking().unwrap();
        home.prepare_blocking().unwrap();
        home.keep_undo_data_blocking().unwrap();
        let kept: Vec<_> =
            fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(kept.contains(&"s1".into()) && !kept.contains(&"s2".into()), "{kept:?}");
        assert!(!kept.contains(&"s4".into()), "{kept:?}");
        assert!(run.join("s1/journal/1-00000001").is_dir());
        assert!(!run.join("s1/other").exists());
        assert!(outside.join("journal").is_dir());

        // A second time there is nothing to move, and the newer journal stays.
        fs::create_dir(run.join("s1/journal/2-00000002")).unwrap();
        home.keep_undo_data_blocking().unwrap();
        assert!(run.join("s1/journal/2-00000002").is_dir());
        home.remove_retired_blocking().unwrap();
        assert!(run.join("s1/journal/1-00000001").is_dir());
    }
}
