//! Creates the state directory and its `run`, private to the user. Called by the daemon before it takes its lock and after,
//! and by subcommands that write into it.

use super::Home;
use crate::HomeError;
use crate::ownership::{check_current_run, mark_run};
use crate::private_dir::{FinalLink, own_dir_blocking, private_dir_blocking, restrict_blocking};
use std::fs::File;
use std::io::ErrorKind;

/// Maximum number of attempts to create `run`.
const MAX_PREPARE_TRIES: u32 = 10;

impl Home {
    /// Creates the directory if it is missing, and removes access for other users (0700). Before any change, refuses
    /// existing entries that are not quackd's. Returns the open directory.
    ///
    /// # Errors
    /// [`HomeError::Reserved`], [`HomeError::Foreign`], [`HomeError::ForeignRun`],
    /// [`HomeError::NotADirectory`], [`HomeError::NotOurs`], or [`HomeError::Io`].
    pub fn prepare_dir_blocking(&self) -> Result<File, HomeError> {
        // The user may link the state directory to another place.
        let dir = own_dir_blocking(&self.dir, FinalLink::Follow)?;
        self.ownership().check_blocking(&dir)?;
        restrict_blocking(&dir, &self.dir)?;
        Ok(dir)
    }

    /// Prepares the directory as [`Home::prepare_dir_blocking`] does, and creates a private `run/` in it.
    ///
    /// # Errors
    /// As [`Home::prepare_dir_blocking`].
    pub fn prepare_blocking(&self) -> Result<(), HomeError> {
        let dir = self.prepare_dir_blocking()?;
        let mut n_tries = 1;

        while let Err(error) = self.prepare_run_blocking(&dir) {
            // A starting daemon moves `run` aside and deletes it.
            let is_gone = matches!(
                &error,
                HomeError::Io { source, .. }
                    if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists)
            );
            if !is_gone || MAX_PREPARE_TRIES <= n_tries {
                return Err(error);
            }
            n_tries += 1;
        }

        self.prepare_socket_blocking()
    }

    fn prepare_run_blocking(&self, dir: &File) -> Result<(), HomeError> {
        let path = self.run_dir();
        // Only a faulty worker would replace `run` with a link.
        let run = own_dir_blocking(&path, FinalLink::Refuse)?;
        check_current_run(dir, &run, &path)?;
        restrict_blocking(&run, &path)?;
        mark_run(&run, &path)
    }

    /// Creates the private directory of a socket outside the state directory. Refuses a directory of another user.
    fn prepare_socket_blocking(&self) -> Result<(), HomeError> {
        let socket = self.socket();
        match socket.path.parent() {
            Some(parent) if socket.alias.is_some() => {
                private_dir_blocking(parent, FinalLink::Refuse)
            }
            _ => Ok(()),
        }
    }
}
