//! Detects that the state directory was deleted or replaced. Polled by the supervisor: without its directory,
//! a daemon cannot be found by clients, and its files are lost.

use crate::{Home, HomeError};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Identity of a state directory: device and inode.
#[derive(Debug, Clone)]
pub struct Tenure {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Tenure {
    /// Records the identity of the current directory.
    ///
    /// # Errors
    /// [`HomeError::Io`] if the directory cannot be inspected.
    pub fn begin_blocking(home: &Home) -> Result<Self, HomeError> {
        let path = home.dir().to_owned();
        let metadata = path.metadata().map_err(|e| HomeError::io("inspect", &path, e))?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino(), path })
    }

    /// Returns true if the directory was deleted, moved or replaced, and false if it cannot be inspected.
    #[must_use]
    pub fn is_over_blocking(&self) -> bool {
        let is_this = |other: &Metadata| (other.dev(), other.ino()) == (self.device, self.inode);
        match self.path.metadata() {
            Ok(metadata) => !is_this(&metadata),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "nothing durable")]
    fn it_is_over_when_the_directory_is_moved_replaced_or_deleted_and_not_before() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("state");
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.clone().into());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        let tenure = Tenure::begin_blocking(&home).unwrap();
        assert!(!tenure.is_over_blocking());
        let away = above.path().join("away");
        fs::rename(&dir, &away).unwrap();
        assert!(tenure.is_over_blocking());
        home.prepare_blocking().unwrap();
        assert!(tenure.is_over_blocking());
        fs::remove_dir_all(&dir).unwrap();
        fs::rename(&away, &dir).unwrap();
        assert!(!tenure.is_over_blocking());
    }
}
