//! Opens files with well-known names safely. Accepts only regular files of this user. Never follows a link,
//! and never blocks on a FIFO.
//!
//! Used by callers of [`crate::Home`] for every file in the state directory that is read or appended to by
//! its name.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Reason for refusing a file with a well-known name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotOurFile {
    /// A symbolic link; its target may be any file.
    #[error("it is a symbolic link, which is not followed")]
    Link,
    /// A directory, a FIFO, a socket or a device.
    #[error("it is not a regular file")]
    NotRegular,
    /// Another user owns the file and could change it.
    #[error("it belongs to user {owner}, not to you (user {us})")]
    Owner {
        /// User id of the owner.
        owner: u32,
        /// Effective user id of this process.
        us: u32,
    },
}

/// Opens the file for appending. Creates it with mode 0600 if it is missing.
///
/// # Errors
/// The error of the system call, or a refusal: see [`NotOurFile::of`].
pub fn append_blocking(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)
}

/// Opens the file for reading and appending, and locks it until it is closed. Creates it with mode 0600 if it is missing.
///
/// # Errors
/// As [`append_blocking`]; [`io::ErrorKind::WouldBlock`] if another process holds the lock.
pub fn lock_blocking(path: &Path) -> io::Result<File> {
    let file = open(path, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Reads the whole file.
///
/// # Errors
/// As [`append_blocking`], or the file has more than `max_bytes`.
pub fn read_blocking(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if max_bytes < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

impl NotOurFile {
    /// Returns the refusal if `error` is one, and `None` for an error of a system call.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

fn open(path: &Path, access: OFlags) -> io::Result<File> {
    // O_NONBLOCK: opening a FIFO would wait for its other end. The flag has no effect on regular files.
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;

    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        // A loop of links in a parent directory gives the same error.
        Err(Errno::LOOP) => return Err(io::Error::other(NotOurFile::Link)),
        // A directory opened for writing, or a FIFO or socket without its other end.
        Err(Errno::ISDIR | Errno::NXIO) => return Err(io::Error::other(NotOurFile::NotRegular)),
        Err(errno) => return Err(errno.into()),
    };

    // Check the opened descriptor, so that the file cannot be replaced in between.
    let metadata = file.metadata()?;
    let us = rustix::process::geteuid().as_raw();
    if !metadata.is_file() {
        return Err(io::Error::other(NotOurFile::NotRegular));
    }
    if metadata.uid() != us {
        return Err(io::Error::other(NotOurFile::Owner { owner: metadata.uid(), us }));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn refused<T: std::fmt::Debug>(result: io::Result<T>) -> NotOurFile {
        NotOurFile::of(&result.unwrap_err()).expect("refused for what it is")
    }

    #[test]
    fn a_file_of_ours_is_made_appended_to_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for text in ["one\n", "two\n"] {
            append_blocking(&path).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(read_blocking(&path, 8).unwrap(), b"one\ntwo\n");
        assert_eq!(read_blocking(&path, 7).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let missing = read_blocking(&dir.path().join("g"), 8).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_link_is_not_followed_wherever_it_points() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("f"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        for target in ["victim", "missing", "f"] {
            symlink(target, &path).unwrap();
            assert_eq!(refused(append_blocking(&path)), NotOurFile::Link, "{target}");
            assert_eq!(refused(read_blocking(&path, 100)), NotOurFile::Link, "{target}");
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!dir.path().join("missing").exists());
    }

    #[test]
    fn what_is_no_file_is_neither_used_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::create_dir(&path).unwrap();
        assert_eq!(refused(append_blocking(&path)), NotOurFile::NotRegular);
        assert_eq!(refused(read_blocking(&path, 100)), NotOurFile::NotRegular);
        fs::remove_dir(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(refused(append_blocking(&path)), NotOurFile::NotRegular);
        assert_eq!(refused(read_blocking(&path, 100)), NotOurFile::NotRegular);
    }

    #[test]
    fn a_file_of_somebody_else_is_refused() {
        // For root, every file counts as its own until the test changes the owner.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (path, owner) = if rustix::process::geteuid().is_root() {
            fs::write(&path, "").unwrap();
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            (path, 12_345)
        } else {
            ("/etc/passwd".into(), 0)
        };
        match refused(read_blocking(&path, 1 << 20)) {
            NotOurFile::Owner { owner: found, .. } => assert_eq!(found, owner),
            other => panic!("refused for another reason: {other}"),
        }
    }
}
