//! One directory that is there, is ours, and is closed to others. Used by [`crate::Home`] only.

use crate::HomeError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// What to do when the last component of the path is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalLink {
    Follow,
    Refuse,
}

/// Makes the directory with its parents (0700) if it is missing, refuses it if it is not ours, and
/// takes the rights of group and others away. Bits of the owner stay: 0500 may be meant.
pub(crate) fn private_dir_blocking(path: &Path, link: FinalLink) -> Result<(), HomeError> {
    restrict_blocking(&own_dir_blocking(path, link)?, path)
}

/// Makes the directory with its parents (0700) if it is missing, refuses it if it is not ours, and gives its
/// handle. One that was there is as it was.
pub(crate) fn own_dir_blocking(path: &Path, link: FinalLink) -> Result<File, HomeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if link == FinalLink::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    // Everything below asks the descriptor, so that nobody can swap the directory in between.
    // O_DIRECTORY also means that a FIFO is refused instead of waited for.
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => File::from(dir),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(HomeError::NotADirectory { path: path.to_owned() });
        }
        // If it could not be made, that is the more telling error.
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

/// Takes the rights of group and others away.
pub(crate) fn restrict_blocking(dir: &File, path: &Path) -> Result<(), HomeError> {
    let status = dir.metadata().map_err(|e| HomeError::io("inspect", path, e))?;
    if status.mode() & 0o077 == 0 {
        return Ok(());
    }
    let private = fs::Permissions::from_mode(status.mode() & 0o7700);
    dir.set_permissions(private).map_err(|e| HomeError::io("restrict", path, e))
}
