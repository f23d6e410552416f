//! A symbolic link to the socket in the shared temporary directory, where upstream's clients expect the socket if the
//! state directory's path is too long. quackd's own clients do not use it.
//!
//! The supervisor creates it while it holds the instance lock.

use crate::listener::{BindError, clear_stale_blocking};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// A link to a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    at: PathBuf,
    to: PathBuf,
}

impl Alias {
    /// Describes a link at `at` to the socket `to`. Creates nothing.
    #[must_use]
    pub fn new(at: PathBuf, to: PathBuf) -> Self {
        Self { at, to }
    }

    /// Creates the link, and replaces the one that an earlier daemon of this user left.
    ///
    /// # Errors
    /// [`BindError::InUse`] if a daemon listens there that does not use our lock. Otherwise another file has this path,
    /// and clients of other makers cannot find the daemon.
    pub fn make_blocking(&self) -> Result<(), BindError> {
        let bind = |source| BindError::Bind { path: self.at.clone(), source };

        match std::fs::symlink_metadata(&self.at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(bind(error)),
            Ok(link) if is_own_link(&link) => {
                std::fs::remove_file(&self.at).map_err(bind)?;
            }
            Ok(_) => clear_stale_blocking(&self.at)?,
        }

        symlink(&self.to, &self.at).map_err(bind)
    }

    /// Creates the link again if it was deleted, for example by systemd-tmpfiles.
    pub fn restore_blocking(&self) {
        if !self.exists() {
            // Fails if another process has created the name first.
            symlink(&self.to, &self.at).ok();
        }
    }

    /// Removes the link if it still points to our socket.
    pub fn remove_blocking(&self) {
        let is_ours = std::fs::symlink_metadata(&self.at).is_ok_and(|link| is_own_link(&link));
        // Another daemon may have replaced it in the meantime.
        if is_ours && std::fs::read_link(&self.at).is_ok_and(|to| to == self.to) {
            // Fails if another process has removed it at the same moment.
            std::fs::remove_file(&self.at).ok();
        }
    }

    /// Returns the path of the link, which may not exist.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    fn exists(&self) -> bool {
        std::fs::symlink_metadata(&self.at).is_ok()
    }
}

fn is_own_link(link: &std::fs::Metadata) -> bool {
    link.is_symlink() && link.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_client_that_follows_the_link_finds_the_socket_and_what_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let alias = Alias::new(at("link"), at("socket"));
        alias.make_blocking().unwrap();
        alias.make_blocking().unwrap();
        UnixStream::connect(at("link")).unwrap();
        std::fs::remove_file(alias.path()).unwrap();
        alias.restore_blocking();
        UnixStream::connect(at("link")).unwrap();
        alias.remove_blocking();
        assert!(!alias.exists());

        // A stale socket of an earlier version.
        drop(UnixListener::bind(at("link")).unwrap());
        alias.make_blocking().unwrap();
        assert!(at("link").is_symlink());
        // A daemon that still listens.
        std::fs::remove_file(at("link")).unwrap();
        let lives = UnixListener::bind(at("link")).unwrap();
        assert!(matches!(alias.make_blocking(), Err(BindError::InUse(_))));
        drop(lives);
        std::fs::remove_file(at("link")).unwrap();
        std::fs::write(at("link"), "precious").unwrap();
        assert!(matches!(alias.make_blocking(), Err(BindError::Occupied { .. })));
        alias.remove_blocking();
        alias.restore_blocking();
        assert_eq!(std::fs::read_to_string(at("link")).unwrap(), "precious");
    }
}
