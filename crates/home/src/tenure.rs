//! Whether the state directory is still the one in which a daemon has begun. Used by the supervisor, again and again:
//! one whose directory is gone is found by no client and writes where nobody reads.

use crate::{Home, HomeError};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// A state directory, by what it is and not by its name.
#[derive(Debug, Clone)]
pub struct Tenure {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Tenure {
    /// Notes what stands there now.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub fn begin_blocking(home: &Home) -> Result<Self, HomeError> {
        let path = home.dir().to_owned();
        let found = path.metadata().map_err(|e| HomeError::io("inspect", &path, e))?;
        Ok(Self { device: found.dev(), inode: found.ino(), path })
    }

    /// Whether the directory was deleted, moved away or replaced. One that cannot be looked at is still there.
    #[must_use]
    pub fn is_over_blocking(&self) -> bool {
        let is_this = |found: &Metadata| (found.dev(), found.ino()) == (self.device, self.inode);
        match self.path.metadata() {
            Ok(found) => !is_this(&found),
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
