//! Reads the arguments of a suspended call: paths and where they start. Each is read once, so the caller cannot
//! change it between a check and its use.

use super::super::sys;
use nix::libc;
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Maximum length of a path including its NUL (`PATH_MAX`).
const MAX_PATH: usize = 4096;

/// Maximum size of `/proc/PID/status` in bytes that is read.
const MAX_STATUS: usize = 4096;

/// A suspended call and the thread that made it.
pub(crate) struct Caller<'a> {
    listener: &'a OwnedFd,
    call: &'a libc::seccomp_notif,
    task: String,
    memory: OwnedFd,
}

/// Facts about the calling process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallerStatus {
    /// Umask of the process.
    pub(crate) umask: u32,
    /// Number of system call filters of the process.
    pub(crate) filters: u32,
}

impl<'a> Caller<'a> {
    /// Opens the memory of the caller.
    ///
    /// # Errors
    /// The caller hides its memory, or has exited.
    pub(crate) fn open(
        listener: &'a OwnedFd,
        call: &'a libc::seccomp_notif,
    ) -> Result<Self, Errno> {
        let task = format!("/proc/{}", call.pid);
        let memory = open(Path::new(&format!("{task}/mem")), OFlags::RDONLY)?;
        Ok(Self { listener, call, task, memory })
    }

    /// Fails if the caller no longer waits for the answer. Then another process can have its number, and everything
    /// read since [`Caller::open`] is void.
    ///
    /// # Errors
    /// ESRCH.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        if sys::is_held(self.listener, self.call.id) { Ok(()) } else { Err(Errno::SRCH) }
    }

    /// Reads the string to which an argument points.
    ///
    /// # Errors
    /// The memory cannot be read, or the string is longer than `PATH_MAX`.
    pub(crate) fn string(&self, argument: usize) -> Result<CString, Errno> {
        let address = self.call.data.args.get(argument).copied().unwrap_or_default();
        let mut bytes = Vec::new();
        while bytes.len() < MAX_PATH {
            let mut chunk = [0; 256];
            let at = address.checked_add(bytes.len() as u64).ok_or(Errno::FAULT)?;
            // The page after the string may be unreadable, so a read ends at the page's end.
            let to_page_end = 4096 - usize::try_from(at % 4096).unwrap_or(0);
            let n = chunk.len().min(to_page_end);
            let n = rustix::io::pread(&self.memory, chunk.get_mut(..n).ok_or(Errno::FAULT)?, at)
                .map_err(|_| Errno::FAULT)?;

            let read = chunk.get(..n).filter(|read| !read.is_empty()).ok_or(Errno::FAULT)?;
            if let Some(end) = read.iter().position(|byte| *byte == 0) {
                bytes.extend(read.iter().take(end));
                return CString::new(bytes).map_err(|_| Errno::FAULT);
            }
            bytes.extend(read);
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Returns the path under `/proc` of the directory in which relative paths of `descriptor` start.
    pub(crate) fn start(&self, descriptor: u32) -> String {
        // AT_FDCWD is negative.
        match descriptor.cast_signed() {
            libc::AT_FDCWD => format!("{}/cwd", self.task),
            descriptor => format!("{}/fd/{descriptor}", self.task),
        }
    }

    /// Returns the absolute path of an argument that is relative to `descriptor`, without `.` and `..`. Reads no link
    /// of the path, so the result can be wrong. `None` for an empty path.
    ///
    /// # Errors
    /// As [`Caller::string`], or the directory cannot be found.
    pub(crate) fn absolute(
        &self,
        descriptor: u32,
        argument: usize,
    ) -> Result<Option<PathBuf>, Errno> {
        let path = self.string(argument)?.into_bytes();
        if path.is_empty() {
            return Ok(None);
        }

        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        if path.is_absolute() {
            return Ok(crate::git::openat::normalise(&path));
        }

        let start = readlinkat(CWD, self.start(descriptor), Vec::new())?.into_bytes();
        let start = PathBuf::from(std::ffi::OsString::from_vec(start));
        // A descriptor that is not a file has no path, but a text such as `pipe:[7]`.
        Ok(crate::git::openat::normalise(&start.join(path)).filter(|path| path.is_absolute()))
    }

    /// Reads the umask and the number of filters of the caller.
    ///
    /// # Errors
    /// The kernel does not report them, or the caller has exited.
    pub(crate) fn status(&self) -> Result<CallerStatus, Errno> {
        read_status(Path::new(&format!("{}/status", self.task)))
    }
}

/// Reads a `status` file of `/proc`.
///
/// # Errors
/// The file cannot be read or has no such lines.
pub(crate) fn read_status(path: &Path) -> Result<CallerStatus, Errno> {
    let file = open(path, OFlags::RDONLY)?;
    let mut bytes = [0; MAX_STATUS];
    let n = rustix::io::read(&file, &mut bytes)?;
    let text = String::from_utf8_lossy(bytes.get(..n).unwrap_or_default());
    parse_status(&text).ok_or(Errno::NOSYS)
}

fn parse_status(text: &str) -> Option<CallerStatus> {
    let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some(CallerStatus {
        umask: u32::from_str_radix(field("Umask:")?, 8).ok()?,
        filters: field("Seccomp_filters:")?.parse().ok()?,
    })
}

/// Opens a file of `/proc`.
pub(crate) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_process_has_its_umask_and_its_filters() {
        let own = read_status(Path::new("/proc/self/status")).unwrap();
        assert!(own.umask <= 0o777);
        let text = "Name:\tx\nUmask:\t0022\nState:\tS\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        assert_eq!(parse_status(text), Some(CallerStatus { umask: 0o22, filters: 3 }));
        assert_eq!(parse_status("Name:\tx\n"), None);
    }
}
