//! Directories and files that a worker makes before it is confined, where commands of an earlier worker of the session
//! could write. A link that such a command has left is never followed: it could lead to any file of the user.

use rustix::fs::{AtFlags, Mode, OFlags, open, openat, unlinkat};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a directory with mode 0700, if it is missing. Removes a link or a file in its place.
///
/// # Errors
/// The system refuses, or another program has made a link or a file again.
pub(crate) fn make_directory_blocking(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir()) {
        std::fs::remove_file(path)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }

    // Another program may have made a link or a file since the check above.
    if path.symlink_metadata()?.is_dir() {
        Ok(())
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// Writes a new file in a directory, which must not be a link. Replaces what has the name.
///
/// # Errors
/// The system refuses, or another program makes the name at the same time.
pub(crate) fn write_blocking(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    write_in_blocking(open(directory, flags, Mode::empty())?, name, text)
}

/// As [`write_blocking`], in an open directory.
///
/// # Errors
/// As above.
pub(crate) fn write_in_blocking(directory: impl AsFd, name: &str, text: &str) -> io::Result<()> {
    match unlinkat(&directory, name, AtFlags::empty()) {
        Err(error) if error != Errno::NOENT => return Err(error.into()),
        _ => {}
    }

    // `EXCL` follows no link that another program makes at the same time.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&directory, name, flags, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_not_followed() {
        let world = tempfile::tempdir().unwrap();
        let (run, other) = (world.path().join("run"), world.path().join("other"));
        std::fs::write(&other, "kept").unwrap();
        make_directory_blocking(&run).unwrap();
        symlink(&other, run.join("settings")).unwrap();
        write_blocking(&run, "settings", "new").unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(std::fs::read_to_string(run.join("settings")).unwrap(), "new");
        let link = world.path().join("link");
        symlink(&run, &link).unwrap();
        assert!(write_blocking(&link, "settings", "newer").is_err());
        make_directory_blocking(&link).unwrap();
        assert!(!link.is_symlink() && link.is_dir() && run.is_dir());
    }
}
