//! Writes files that the user names on the command line. The directory may be a workspace, so a session may have put a
//! link, a FIFO or another name of a file there.

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, fchmod, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Mode of a new file that only this user can read.
pub(crate) const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Mode of a new file that every user can read.
pub(crate) const PUBLIC: Mode = PRIVATE.union(Mode::RGRP).union(Mode::ROTH);

/// Replaces the file at `path`, or creates it with `new_mode`. Keeps the access of an existing file.
///
/// # Errors
/// The path leads through a link that this user can create, or names something else than a regular file. Otherwise the
/// error of the system call. The old file is intact.
pub(crate) fn write_blocking(path: &Path, bytes: &[u8], new_mode: Mode) -> io::Result<()> {
    let (directory, name) = open_parent(path)?;
    let mode = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(old) if FileType::from_raw_mode(old.st_mode) == FileType::RegularFile => {
            Mode::from_raw_mode(old.st_mode & 0o777)
        }
        Ok(_) => {
            return Err(refusal(path, "is no regular file; remove it, or choose another name"));
        }
        Err(Errno::NOENT) => new_mode,
        Err(errno) => return Err(errno.into()),
    };

    // Another user or a session cannot prepare a file with a random name.
    let temporary = format!(".quackd-{:016x}", getrandom::u64().map_err(io::Error::other)?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&directory, &temporary, flags, PRIVATE)?);

    // The content must be on the disk before the file takes the place of the old one.
    let written = file
        .write_all(bytes)
        .and_then(|()| Ok(fchmod(&file, mode)?))
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(&directory, &temporary, &directory, name)?));

    if written.is_err() {
        // The error of the write counts more.
        unlinkat(&directory, &temporary, AtFlags::empty()).ok();
    }
    written
}

/// Opens the directory of a path, component by component, without following a link that this user could have created.
fn open_parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or_else(|| refusal(path, "names no file"))?;
    let mut walked = PathBuf::new();
    let mut directory = openat(CWD, ".", DIRECTORY, Mode::empty())?;

    for component in path.parent().into_iter().flat_map(Path::components) {
        // Checked before the component is added, because the answer is about the directory of the
        // link.
        let is_link_trusted = is_out_of_reach(&walked, &directory);
        walked.push(component);
        let next = match component {
            Component::Normal(name) => {
                openat(&directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
            }
            other => openat(&directory, other.as_os_str(), DIRECTORY, Mode::empty()),
        };

        directory = match next {
            Err(Errno::LOOP | Errno::NOTDIR) if walked.is_symlink() && is_link_trusted => {
                openat(&directory, component.as_os_str(), DIRECTORY, Mode::empty())?
            }
            Err(Errno::LOOP | Errno::NOTDIR) if walked.is_symlink() => {
                return Err(refusal(&walked, "is a link; name the directory to which it leads"));
            }
            next => next?,
        };
    }
    Ok((directory, name))
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Returns true if no session can create names in a directory: it is the root, or this user cannot write it.
fn is_out_of_reach(path: &Path, directory: impl AsFd) -> bool {
    path == Path::new("/") || accessat(directory, ".", Access::WRITE_OK, AtFlags::EACCESS).is_err()
}

fn refusal(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{} {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_new_file_is_private_and_an_existing_one_keeps_its_access() {
        let directory = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(directory.path()).unwrap().join("x.md");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_blocking(&path, b"a longer text", PRIVATE).unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_blocking(&path, b"text", PRIVATE).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap(), mode()), ("text".to_owned(), 0o644));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_session_may_have_planted_is_not_written_through() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("ws/d")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/file"), "mine").unwrap();
        symlink(at("outside/file"), at("ws/link")).unwrap();
        symlink(at("outside"), at("ws/to")).unwrap();
        symlink("missing", at("ws/dangling")).unwrap();
        fs::hard_link(at("outside/file"), at("ws/second")).unwrap();
        nix::unistd::mkfifo(&at("ws/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link", "to/file", "to/new", "dangling", "fifo", "d", "d/../to/new"] {
            let refused = write_blocking(&at("ws").join(name), b"theirs", PRIVATE).unwrap_err();
            assert!(!refused.to_string().is_empty(), "{name}");
        }
        // A second name is replaced, not written through.
        write_blocking(&at("ws/second"), b"theirs", PRIVATE).unwrap();
        assert_eq!(fs::read_to_string(at("outside/file")).unwrap(), "mine");
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 1);
        assert!(!at("ws/missing").exists());
    }
}
