//! Directories of the private copies of isolated sessions, and of the recorded states of sessions' files.

use super::{Home, file_name};
use crate::private_dir::{FinalLink, own_dir_blocking, restrict_blocking};
use crate::{HomeError, keep};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Maximum number of directories that the supervisor inspects.
const MAX_DIRECTORIES: usize = 10_000;

/// End of the name of a copy that is being replaced, after the id of its session.
const REPLACED: &[u8] = b".replaced";

/// Disk space of a private copy, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsolatedUsage {
    /// The files, the layers over ignored directories, and the originals of the last apply.
    pub files: u64,
    /// The recorded states. They have their own limit.
    pub checkpoints: u64,
    /// False if `files` is a lower bound: some entries cannot be read, are too deep or too many.
    pub is_complete: bool,
}

impl Home {
    /// Returns the directory of the private copies of isolated sessions.
    #[must_use]
    pub fn isolated_dir(&self) -> PathBuf {
        self.dir.join("isolated")
    }

    /// Returns the private directory of the copy of one isolated session.
    ///
    /// # Errors
    /// [`HomeError::InvalidSessionId`]. Other programs write the file that ids come from.
    pub fn session_isolated_dir(&self, id: &str) -> Result<PathBuf, HomeError> {
        Ok(self.isolated_dir().join(file_name(id)?))
    }

    /// Creates the empty private directory of the copy of one isolated session, with its directory for layers. Returns its
    /// path. Keeps an earlier copy until [`Home::remove_replaced_isolated_dir_blocking`] or
    /// [`Home::restore_session_isolated_dir_blocking`].
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`], or [`HomeError::Io`].
    pub fn renew_session_isolated_dir_blocking(&self, id: &str) -> Result<PathBuf, HomeError> {
        let all = self.isolated_dir();
        restrict_blocking(&own_dir_blocking(&all, FinalLink::Refuse)?, &all)?;
        self.remove_replaced_isolated_dir_blocking(id)?;

        let path = self.session_isolated_dir(id)?;
        rename_blocking(&path, &self.replaced_isolated_dir(id)?)?;

        let mut made = [path.clone(), path.join("out")].into_iter();
        let made = made.try_for_each(|made| {
            restrict_blocking(&own_dir_blocking(&made, FinalLink::Refuse)?, &made)
        });
        if made.is_err() {
            self.restore_session_isolated_dir_blocking(id)?;
        }
        made.map(|()| path)
    }

    /// Deletes the copy that was replaced. A missing one counts as deleted.
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`], or [`HomeError::Io`].
    pub fn remove_replaced_isolated_dir_blocking(&self, id: &str) -> Result<(), HomeError> {
        let dir = self.replaced_isolated_dir(id)?;
        keep::remove_tree(&dir).map_err(|e| HomeError::io("delete", &dir, e))
    }

    /// Deletes the copy of an isolated session, and puts the replaced one in its place, if there is one.
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`], or [`HomeError::Io`].
    pub fn restore_session_isolated_dir_blocking(&self, id: &str) -> Result<(), HomeError> {
        self.remove_session_isolated_dir_blocking(id)?;
        rename_blocking(&self.replaced_isolated_dir(id)?, &self.session_isolated_dir(id)?)
    }

    /// Returns the directory of a replaced copy. No session has such an id, so garbage collection deletes it if the daemon
    /// stops before.
    fn replaced_isolated_dir(&self, id: &str) -> Result<PathBuf, HomeError> {
        let name = [id.as_bytes(), REPLACED].concat();
        self.session_isolated_dir(&String::from_utf8_lossy(&name))
    }

    /// Deletes the copy of an isolated session. A missing one counts as deleted.
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`], or [`HomeError::Io`].
    pub fn remove_session_isolated_dir_blocking(&self, id: &str) -> Result<(), HomeError> {
        let dir = self.session_isolated_dir(id)?;
        keep::remove_tree(&dir).map_err(|e| HomeError::io("delete", &dir, e))
    }

    /// Measures the private copy of one session. Zeros without a copy, or for an invalid id. Blocks on the disk.
    #[must_use]
    pub fn session_isolated_usage_blocking(&self, id: &str) -> IsolatedUsage {
        let Ok(directory) = self.session_isolated_dir(id) else {
            return IsolatedUsage { files: 0, checkpoints: 0, is_complete: true };
        };
        let checkpoints = keep::disk_usage_blocking(&directory.join("checkpoints"), &[]).bytes;
        // The states have their own limit, and the layers have directories that do not count.
        let own = keep::disk_usage_blocking(&directory, &[c"checkpoints", c"out"]);
        let mut usage =
            IsolatedUsage { files: own.bytes, checkpoints, is_complete: own.is_complete };

        let layers = std::fs::read_dir(directory.join("out")).into_iter().flatten().flatten();
        for layer in layers.take(MAX_DIRECTORIES) {
            // The kernel's directories in `work` may be unreadable. The session cannot write there.
            let layer = keep::disk_usage_blocking(&layer.path(), &[c"work"]);
            usage.files = usage.files.saturating_add(layer.bytes);
            usage.is_complete &= layer.is_complete;
        }
        usage
    }

    /// Measures the private copy of each session. Blocks on the disk.
    #[must_use]
    pub fn isolated_usage_blocking(&self) -> Vec<(String, IsolatedUsage)> {
        let entries = std::fs::read_dir(self.isolated_dir()).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let usage = |id: String| {
            let usage = self.session_isolated_usage_blocking(&id);
            (id, usage)
        };
        ids.take(MAX_DIRECTORIES).map(usage).collect()
    }

    /// Returns the directory of the recorded states of the sessions that work in the workspace
    /// itself.
    #[must_use]
    pub fn checkpoints_dir(&self) -> PathBuf {
        self.dir.join("checkpoints")
    }

    /// Returns the private directory of the recorded states of one session. Those of an isolated
    /// session are with its copy.
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`].
    pub fn session_checkpoints_dir(
        &self,
        id: &str,
        is_isolated: bool,
    ) -> Result<PathBuf, HomeError> {
        if is_isolated {
            Ok(self.session_isolated_dir(id)?.join("checkpoints"))
        } else {
            Ok(self.checkpoints_dir().join(file_name(id)?))
        }
    }

    /// Creates [`Self::checkpoints_dir`], private to the user.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub fn make_checkpoints_dir_blocking(&self) -> Result<(), HomeError> {
        let all = self.checkpoints_dir();
        restrict_blocking(&own_dir_blocking(&all, FinalLink::Refuse)?, &all)
    }

    /// Deletes the recorded states of a session that is not isolated. Missing ones count as deleted.
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`], or [`HomeError::Io`].
    pub fn remove_session_checkpoints_blocking(&self, id: &str) -> Result<(), HomeError> {
        let dir = self.session_checkpoints_dir(id, false)?;
        keep::remove_tree(&dir).map_err(|e| HomeError::io("delete", &dir, e))
    }

    /// Returns the ids of the sessions on whose copy or files a command was working when it ended, and whether it was a
    /// restore of an earlier state. `of_copy` and `of_states` are the names of directories that exist only while it works.
    #[must_use]
    pub fn unfinished_sessions_blocking(
        &self,
        of_copy: &[&str],
        of_states: &str,
    ) -> Vec<(String, bool)> {
        let mut unfinished = Vec::new();
        for (all, is_copy) in [(self.isolated_dir(), true), (self.checkpoints_dir(), false)] {
            let entries = std::fs::read_dir(all).into_iter().flatten().flatten();
            for entry in entries.take(MAX_DIRECTORIES) {
                let Ok(id) = entry.file_name().into_string() else { continue };
                let directory = entry.path();
                let states =
                    if is_copy { directory.join("checkpoints") } else { directory.clone() };

                if states.join(of_states).is_dir() {
                    unfinished.push((id.clone(), true));
                }
                if of_copy.iter().any(|name| directory.join(name).is_dir()) {
                    unfinished.push((id, false));
                }
            }
        }
        unfinished
    }

    /// Returns the number of copies of other sessions than this one. A copy counts once while a discard replaces it.
    #[must_use]
    pub fn n_other_isolated_blocking(&self, id: &str) -> usize {
        let entries = std::fs::read_dir(self.isolated_dir()).into_iter().flatten().flatten();
        let is_other = |name: &OsStr| name != id && !name.as_encoded_bytes().ends_with(REPLACED);
        entries.filter(|entry| is_other(&entry.file_name())).count()
    }
}

/// Renames a directory. Does nothing if it does not exist.
fn rename_blocking(from: &Path, to: &Path) -> Result<(), HomeError> {
    #[expect(clippy::disallowed_methods, reason = "nothing durable: the old copy goes soon")]
    let renamed = std::fs::rename(from, to);
    match renamed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(HomeError::io("rename", from, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn home(dir: &Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        home
    }

    #[test]
    fn a_copy_is_measured_with_its_layers_and_without_the_kernels_directories() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let copy = home.renew_session_isolated_dir_blocking("one").unwrap();
        for name in ["tree", "tree/work", "out/target/upper/work", "out/target/work", "checkpoints"]
        {
            fs::create_dir_all(copy.join(name)).unwrap();
            fs::write(copy.join(name).join("file"), vec![b'x'; 400 * 1024]).unwrap();
        }
        let usage = home.session_isolated_usage_blocking("one");
        let (files, checkpoints) = (usage.files / 1024, usage.checkpoints / 1024);
        assert!((1200..1300).contains(&files) && usage.is_complete, "{usage:?}");
        assert!((400..500).contains(&checkpoints), "{usage:?}");
    }

    #[test]
    fn a_replaced_copy_is_put_back_or_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let copy = home.renew_session_isolated_dir_blocking("one").unwrap();
        fs::write(copy.join("old"), "").unwrap();

        home.renew_session_isolated_dir_blocking("one").unwrap();
        assert!(!copy.join("old").exists() && copy.join("out").is_dir());
        home.restore_session_isolated_dir_blocking("one").unwrap();
        assert!(copy.join("old").exists());

        home.renew_session_isolated_dir_blocking("one").unwrap();
        home.remove_replaced_isolated_dir_blocking("one").unwrap();
        let names = || fs::read_dir(home.isolated_dir()).unwrap().count();
        assert!(!copy.join("old").exists() && names() == 1);
        home.restore_session_isolated_dir_blocking("one").unwrap();
        assert_eq!(names(), 0);
    }
}
