//! Creates the symbolic links of a worker's commands. The kernel suspends each `symlink` call of a command and passes
//! it to this thread. The thread creates the link itself, unless the link would be in a git directory.
//!
//! Neither a mount nor Landlock can forbid links in one directory of a writable tree. Checking the call and then
//! letting it continue is no alternative: the command could change the path in its memory in between. So the thread
//! reads the path once, opens the directory once, and creates the link in that directory.
//!
//! A link cannot be moved or hard-linked into a git directory from elsewhere, because git directories are separate
//! mounts.
//!
//! The thread has the worker's rights, not the caller's. A command with fewer rights (safe mode) has a filter that
//! refuses the call before it is suspended.

use super::sys;
use nix::libc;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx, symlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Maximum length of a path including its NUL (`PATH_MAX`).
const MAX_PATH: usize = 4096;

/// The link thread, while it waits for the listener of a filter.
pub(crate) struct Links {
    listener: SyncSender<OwnedFd>,
}

impl Links {
    /// Calls that the filter must suspend.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const CALLS: &[libc::c_long] = &[libc::SYS_symlink, libc::SYS_symlinkat];
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) const CALLS: &[libc::c_long] = &[libc::SYS_symlinkat];

    /// Starts the thread. It refuses links in the directories of `mounts`.
    pub(crate) fn start(mounts: BTreeSet<u64>) -> io::Result<Self> {
        let (listener, given) = sync_channel::<OwnedFd>(1);
        std::thread::Builder::new().name("links".to_owned()).spawn(move || {
            if let Ok(listener) = given.recv() {
                serve(&listener, &mounts);
            }
        })?;
        Ok(Self { listener })
    }

    /// Passes the listener of the filter to the thread.
    pub(crate) fn serve(self, listener: OwnedFd) -> io::Result<()> {
        self.listener.send(listener).map_err(io::Error::other)
    }
}

/// Answers calls until the process exits. If the listener failed, the kernel would fail every later call with ENOSYS.
fn serve(listener: &OwnedFd, mounts: &BTreeSet<u64>) {
    loop {
        match sys::next_held_call(listener) {
            Ok(call) => {
                let made = make(listener, &call, mounts);
                sys::answer_held_call(listener, call.id, made);
            }
            // A signal interrupted the wait, or the caller was killed before its call was read.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {}
            Err(_) => return,
        }
    }
}

/// Creates the link of a suspended call.
fn make(
    listener: &OwnedFd,
    call: &libc::seccomp_notif,
    mounts: &BTreeSet<u64>,
) -> Result<(), Errno> {
    let [first, second, third, ..] = call.data.args;
    let is_at = libc::c_long::from(call.data.nr) == libc::SYS_symlinkat;
    // The kernel only uses the lower 32 bits of a descriptor.
    #[expect(clippy::cast_possible_truncation, reason = "as above")]
    let (directory, path) = if is_at { (second as i32, third) } else { (libc::AT_FDCWD, second) };
    let task = format!("/proc/{}", call.pid);
    let memory = open(Path::new(&format!("{task}/mem")), OFlags::RDONLY)?;
    let start = if directory == libc::AT_FDCWD {
        format!("{task}/cwd")
    } else {
        format!("{task}/fd/{directory}")
    };
    let start = open(Path::new(&start), OFlags::PATH | OFlags::DIRECTORY);
    if !sys::is_held(listener, call.id) {
        return Err(Errno::SRCH);
    }
    let target = read_path(&memory, first)?;
    let path = read_path(&memory, path)?;
    let (parent, name) = split(path.as_bytes());
    if name.is_empty() {
        return Err(Errno::NOENT);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A magic link such as `/proc/self` would refer to the worker here, not to the caller.
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let parent = if parent.is_absolute() {
        openat2(CWD, parent, flags, Mode::empty(), resolve)?
    } else {
        openat2(start.map_err(bad_descriptor)?, parent, flags, Mode::empty(), resolve)?
    };
    let mount = statx(&parent, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id;
    if mounts.contains(&mount) {
        return Err(Errno::PERM);
    }
    symlinkat(target, &parent, name)
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Returns EBADF for a descriptor that the caller does not have.
fn bad_descriptor(errno: Errno) -> Errno {
    if errno == Errno::NOENT { Errno::BADF } else { errno }
}

/// Splits a path into its directory, `.` by default, and its last name.
fn split(path: &[u8]) -> (&Path, &OsStr) {
    let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = path.split_at(name_at);
    let parent = if parent.is_empty() { b".".as_slice() } else { parent };
    (Path::new(OsStr::from_bytes(parent)), OsStr::from_bytes(name))
}

/// Reads a string from the memory of the caller.
fn read_path(memory: &OwnedFd, address: u64) -> Result<CString, Errno> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_PATH {
        let mut chunk = [0; 256];
        let at = address.checked_add(bytes.len() as u64).ok_or(Errno::FAULT)?;
        // The page after the string may be unreadable, so a read ends at the page's end.
        let to_page_end = 4096 - usize::try_from(at % 4096).unwrap_or(0);
        let n = chunk.len().min(to_page_end);
        let n = rustix::io::pread(memory, chunk.get_mut(..n).ok_or(Errno::FAULT)?, at)
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
