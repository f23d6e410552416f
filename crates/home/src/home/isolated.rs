//! Directories of the private copies of isolated sessions, and of the recorded states of sessions' files.

use super::{Home, file_name};
use crate::private_dir::{FinalLink, own_dir_blocking, restrict_blocking};
use crate::{HomeError, keep};
use std::path::PathBuf;

impl Home {
    /// Directory of the private copies of isolated sessions.
    #[must_use]
    pub fn isolated_dir(&self) -> PathBuf {
        self.dir.join("isolated")
    }

    /// Private directory of the copy of one isolated session.
    ///
    /// # Errors
    /// [`HomeError::InvalidSessionId`]. Other programs write the file that ids come from.
    pub fn session_isolated_dir(&self, id: &str) -> Result<PathBuf, HomeError> {
        Ok(self.isolated_dir().join(file_name(id)?))
    }

    /// Creates the empty private directory of the copy of one isolated session, in place of an earlier one, with its
    /// directory for layers. Returns its path.
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`], or [`HomeError::Io`].
    pub fn renew_session_isolated_dir_blocking(&self, id: &str) -> Result<PathBuf, HomeError> {
        let all = self.isolated_dir();
        restrict_blocking(&own_dir_blocking(&all, FinalLink::Refuse)?, &all)?;
        self.remove_session_isolated_dir_blocking(id)?;
        let path = self.session_isolated_dir(id)?;
        for made in [path.clone(), path.join("out")] {
            restrict_blocking(&own_dir_blocking(&made, FinalLink::Refuse)?, &made)?;
        }
        Ok(path)
    }

    /// Deletes the copy of an isolated session. A missing one counts as deleted.
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`], or [`HomeError::Io`].
    pub fn remove_session_isolated_dir_blocking(&self, id: &str) -> Result<(), HomeError> {
        let dir = self.session_isolated_dir(id)?;
        keep::remove_tree(&dir).map_err(|e| HomeError::io("delete", &dir, e))
    }

    /// Directory of the recorded states of the sessions that work in the workspace itself.
    #[must_use]
    pub fn checkpoints_dir(&self) -> PathBuf {
        self.dir.join("checkpoints")
    }

    /// Private directory of the recorded states of one session. Those of an isolated session are with its copy.
    ///
    /// # Errors
    /// As [`Home::session_isolated_dir`].
    pub fn session_checkpoints_dir(
        &self,
        id: &str,
        is_isolated: bool,
    ) -> Result<PathBuf, HomeError> {
        match is_isolated {
            true => Ok(self.session_isolated_dir(id)?.join("checkpoints")),
            false => Ok(self.checkpoints_dir().join(file_name(id)?)),
        }
    }

    /// Creates [`Self::checkpoints_dir`].
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

    /// Returns the number of copies of other sessions than this one.
    #[must_use]
    pub fn n_other_isolated_blocking(&self, id: &str) -> usize {
        let entries = std::fs::read_dir(self.isolated_dir()).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name() != id).count()
    }
}
