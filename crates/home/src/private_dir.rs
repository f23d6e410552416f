//! Creates a directory that this user owns and other users cannot access. Used by [`crate::Home`] only.

use crate::HomeError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Handling of a symbolic link as the last component of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalLink {
    Follow,
    Refuse,
}

/// Creates the directory and its parents (0700) if it is missing, and removes the permissions of group and
/// others. Refuses a directory of another user. Keeps the owner's bits, because 0500 may be intended.
pub(crate) fn private_dir_blocking(path: &Path, link: FinalLink) -> Result<(), HomeError> {
    restrict_blocking(&own_dir_blocking(path, link)?, path)
}

/// Like [`private_dir_blocking`], but does not change an existing directory. Returns its handle.
pub(crate) fn own_dir_blocking(path: &Path, link: FinalLink) -> Result<File, HomeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if link == FinalLink::Refuse {
        flags |= OFlags::NOFOLLOW;
    }

    // All checks use the descriptor, so that the directory cannot be replaced in between. O_DIRECTORY refuses
    // a FIFO instead of blocking on it.
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => File::from(dir),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(HomeError::NotADirectory { path: path.to_owned() });
        }
        // If creating it failed, that error is more useful.
        Err(errno) => {
            let (action, source) = match made {
                Err(error) => ("create", error),
                Ok(()) => ("open", errno.into()),
            };
            return Err(HomeError::io(action, path, source));
        }
    };

    let status = dir.metadata().map_err(|e| HomeError::io("inspect", path, e))?;
    let us = rustix::process::geteuid().as_raw();
    if status.uid() != us {
        return Err(HomeError::NotOurs { path: path.to_owned(), owner: status.uid(), us });
    }
    Ok(dir)
}

/// Removes the permissions of group and others.
pub(crate) fn restrict_blocking(dir: &File, path: &Path) -> Result<(), HomeError> {
    let status = dir.metadata().map_err(|e| HomeError::io("inspect", path, e))?;
    if status.mode() & 0o077 == 0 {
        return Ok(());
    }
    let private = fs::Permissions::from_mode(status.mode() & 0o7700);
    dir.set_permissions(private).map_err(|e| HomeError::io("restrict", path, e))
}
