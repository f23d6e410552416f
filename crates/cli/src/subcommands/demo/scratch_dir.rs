//! The directory of the demo's second session.
//!
//! It has a fixed name, so that repeated demos do not add entries to the daemon's list of sessions. The temporary
//! directory is shared with other users: a foreign directory, or one in use by another demo, is not touched.

use anyhow::Context;
use rustix::process::geteuid;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Empty directory, removed when dropped.
#[derive(Debug)]
pub(crate) enum ScratchDir {
    /// Directory with the fixed name, locked.
    Usual {
        path: PathBuf,
        /// Lock against other demos, held until the directory is removed.
        _lock: File,
    },
    /// Directory with a random name, because the fixed name is taken.
    Spare(TempDir),
}

impl ScratchDir {
    /// Creates the directory in `parent`.
    ///
    /// # Errors
    /// If no directory can be created there.
    pub(crate) fn create_blocking(parent: &Path) -> anyhow::Result<Self> {
        let path = parent.join(format!("quack-demo-{}", geteuid().as_raw()));
        match claim(&path) {
            Ok(Some(lock)) => Ok(Self::Usual { path, _lock: lock }),
            // If the fixed name cannot be used, use a random one.
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

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Self::Usual { path, .. } = self {
            // Removes only an empty directory, because the demo writes nothing into it. Another one is left behind.
            std::fs::remove_dir(path).ok();
        }
    }
}

fn claim(path: &Path) -> io::Result<Option<File>> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }

    // Of the name itself: another user may have put a link there.
    let named = std::fs::symlink_metadata(path)?;
    if !named.is_dir() || named.uid() != geteuid().as_raw() || named.mode() & 0o077 != 0 {
        return Ok(None);
    }

    let dir = File::open(path)?;
    let opened = dir.metadata()?;
    // The name may lead to another directory since it was checked.
    if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) || dir.try_lock().is_err() {
        return Ok(None);
    }

    // Another demo may have removed the directory before this process got the lock.
    let now = std::fs::symlink_metadata(path)?;
    Ok(((now.dev(), now.ino()) == (named.dev(), named.ino())).then_some(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_has_the_same_name_again_and_is_gone_in_the_end() {
        let parent = tempfile::tempdir().unwrap();
        let first = ScratchDir::create_blocking(parent.path()).unwrap();
        let path = first.path().to_owned();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        drop(first);
        assert!(!path.exists());
        assert_eq!(ScratchDir::create_blocking(parent.path()).unwrap().path(), path);
    }

    #[test]
    fn two_demos_at_once_do_not_share_it() {
        let parent = tempfile::tempdir().unwrap();
        let first = ScratchDir::create_blocking(parent.path()).unwrap();
        let second = ScratchDir::create_blocking(parent.path()).unwrap();
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
        let dir = ScratchDir::create_blocking(parent.path()).unwrap();
        assert!(matches!(&dir, ScratchDir::Spare(_)), "{dir:?}");
        drop(dir);
        assert!(target.exists() && usual.is_symlink());
    }
}
