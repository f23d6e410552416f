//! The directory of the demo's second session.
//!
//! It has the same name each time, so that the daemon's list of sessions grows by one entry and not by
//! one per demo. A temporary directory is shared with strangers: one that is not ours, or is in use by
//! another demo, is left alone.

use anyhow::Context;
use rustix::process::geteuid;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An empty directory of our own, removed in the end.
#[derive(Debug)]
pub(crate) enum NeighbourDir {
    /// The one with the known name, locked.
    Usual {
        path: PathBuf,
        /// Held against other demos until the directory is gone.
        _lock: File,
    },
    /// One with a random name, because the usual one is taken.
    Spare(TempDir),
}

impl NeighbourDir {
    /// Makes the directory in `parent`.
    ///
    /// # Errors
    /// Nothing can be made there.
    pub(crate) fn create_blocking(parent: &Path) -> anyhow::Result<Self> {
        let path = parent.join(format!("quack-demo-{}", geteuid().as_raw()));
        match claim(&path) {
            Ok(Some(lock)) => Ok(Self::Usual { path, _lock: lock }),
            // Whatever is wrong with that name, another one will do.
            Ok(None) | Err(_) => tempfile::Builder::new()
                .prefix("quack-demo-")
                .tempdir_in(parent)
                .map(Self::Spare)
                .with_context(|| format!("cannot make a directory in {}", parent.display())),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Usual { path, .. } => path,
            Self::Spare(dir) => dir.path(),
        }
    }
}

impl Drop for NeighbourDir {
    fn drop(&mut self) {
        if let Self::Usual { path, .. } = self {
            // Only an empty directory goes: nothing that we made can be in it.
            let _left_behind = std::fs::remove_dir(path);
        }
    }
}

fn claim(path: &Path) -> io::Result<Option<File>> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let seen = std::fs::symlink_metadata(path)?;
    if !seen.is_dir() || seen.uid() != geteuid().as_raw() || seen.mode() & 0o077 != 0 {
        return Ok(None);
    }
    let dir = File::open(path)?;
    let opened = dir.metadata()?;
    if (opened.dev(), opened.ino()) != (seen.dev(), seen.ino()) || dir.try_lock().is_err() {
        return Ok(None);
    }
    // The demo that held it may have removed it while we waited for nothing.
    let now = std::fs::symlink_metadata(path)?;
    Ok(((now.dev(), now.ino()) == (seen.dev(), seen.ino())).then_some(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_has_the_same_name_again_and_is_gone_in_the_end() {
        let parent = tempfile::tempdir().unwrap();
        let first = NeighbourDir::create_blocking(parent.path()).unwrap();
        let path = first.path().to_owned();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        drop(first);
        assert!(!path.exists());
        assert_eq!(NeighbourDir::create_blocking(parent.path()).unwrap().path(), path);
    }

    #[test]
    fn two_demos_at_once_do_not_share_it() {
        let parent = tempfile::tempdir().unwrap();
        let first = NeighbourDir::create_blocking(parent.path()).unwrap();
        let second = NeighbourDir::create_blocking(parent.path()).unwrap();
        assert_ne!(first.path(), second.path());
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.exists() && first.path().exists());
    }

    #[test]
    fn a_trap_under_the_known_name_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let usual = parent.path().join(format!("quack-demo-{}", geteuid().as_raw()));
        let target = parent.path().join("target");
        std::fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &usual).unwrap();
        let dir = NeighbourDir::create_blocking(parent.path()).unwrap();
        assert!(matches!(&dir, NeighbourDir::Spare(_)), "{dir:?}");
        drop(dir);
        assert!(target.exists() && usual.is_symlink());
    }
}
