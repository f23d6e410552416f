//! System calls without a safe wrapper in the used crates. All unsafe code of `confine` is here. Called by the
//! modules next to it.

use nix::libc;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Mount attributes to set. Attributes are never cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountAttributes(u64);

impl MountAttributes {
    /// No set-id programs, no devices.
    pub(crate) const WRITABLE: Self = Self(libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV);
    /// `WRITABLE`, and read-only.
    pub(crate) const READ_ONLY: Self = Self(Self::WRITABLE.0 | libc::MOUNT_ATTR_RDONLY);
    /// A device node. The device can be written, but not the mode and owner of its node, which belong to the host.
    pub(crate) const DEVICE: Self =
        Self(libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC | libc::MOUNT_ATTR_RDONLY);
    /// Terminals of the worker.
    pub(crate) const TERMINALS: Self = Self(libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC);
    /// No set-id programs, and read-only. Devices work.
    pub(crate) const UNCHANGED: Self = Self(libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_RDONLY);
    /// `READ_ONLY`, and no execution of programs.
    pub(crate) const MASK: Self = Self(Self::READ_ONLY.0 | libc::MOUNT_ATTR_NOEXEC);
}

/// Sets attributes of a mount, and of the mounts inside it if `recursive` (`mount_setattr(2)`, Linux 5.12).
#[expect(unsafe_code, reason = "mount_setattr(2) has no safe form")]
pub(crate) fn set_attributes(
    mount: impl AsFd,
    attributes: MountAttributes,
    recursive: bool,
) -> io::Result<()> {
    let attr =
        libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };

    // SAFETY: the descriptor is open during the call, the path is an empty C string, and the size is the size of the
    // structure, which the kernel only reads.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Forks into new namespaces. Returns the child's process id in the parent, and `None` in the child. The caller must
/// have one thread.
#[expect(unsafe_code, reason = "clone(2) has no safe form")]
#[expect(clippy::cast_possible_truncation, reason = "the kernel's process numbers have 22 bits")]
pub(crate) fn clone_into(namespaces: libc::c_int) -> io::Result<Option<i32>> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: without CLONE_VM and with no stack this is fork(2): the child has a copy of the memory and continues at
    // the same place. The caller ensures that no other thread can hold a lock. All five arguments except the flags
    // are zero, so their order, which differs between architectures, does not matter.
    let answer = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match answer {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid as i32)),
    }
}

/// Forks. The caller must have one thread.
#[expect(unsafe_code, reason = "fork(2) has no safe form")]
pub(crate) fn fork_once() -> io::Result<nix::unistd::ForkResult> {
    // SAFETY: the caller ensures that this is the only thread, so no lock can be held by a thread that the child
    // lacks.
    Ok(unsafe { nix::unistd::fork() }?)
}

/// Closes every descriptor from `first` to `last`, regardless of its owner. Only for a process that never returns to
/// the owners.
#[expect(unsafe_code, reason = "closing what others own has no safe form")]
pub(crate) fn close_between(first: RawFd, last: Option<RawFd>) -> io::Result<()> {
    let number = |fd: RawFd| libc::c_uint::try_from(fd).unwrap_or(libc::c_uint::MAX);
    let last = last.map_or(libc::c_uint::MAX, number);
    if last < number(first) {
        return Ok(());
    }
    // SAFETY: the caller never returns to the owners and drops none of them. musl has no function for this call.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, number(first), last, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Exits without running the exit handlers of the program that this process split from.
#[expect(unsafe_code, reason = "_exit(2) has no safe form")]
pub(crate) fn end_process(code: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for any child to exit. Returns its process id and raw status.
#[expect(unsafe_code, reason = "the raw status of wait(2) has no safe form")]
pub(crate) fn wait_for_any() -> io::Result<(i32, i32)> {
    // `__WALL` includes children that report their exit by another signal than `SIGCHLD`, or by none.
    let mut status: libc::c_int = 0;
    // SAFETY: the pointer is to a number that outlives the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok((pid, status)) }
}

/// Returns the kernel's version of Landlock, 0 without Landlock (`landlock_create_ruleset(2)`).
#[expect(
    unsafe_code,
    reason = "landlock_create_ruleset(2) has no safe form that tells the version"
)]
pub(crate) fn landlock_version() -> i32 {
    const VERSION_FLAG: libc::c_uint = 1;
    // SAFETY: with this flag the call reads no memory.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION_FLAG,
        )
    };
    i32::try_from(answer).unwrap_or(0).max(0)
}

/// True if the kernel can filter system calls by a program (`seccomp(2)`).
#[expect(unsafe_code, reason = "seccomp(2) has no safe form")]
pub(crate) fn has_seccomp_filters() -> bool {
    let errno = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the pointer is to a number that outlives the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const errno)
    };
    answer == 0
}

/// Installs a system call filter on this thread and its future children (`seccomp(2)`).
pub(crate) fn filter(program: &mut [libc::sock_filter]) -> io::Result<()> {
    install_filter(program, 0).map(drop)
}

#[expect(unsafe_code, reason = "seccomp(2) has no safe form")]
fn install_filter(
    program: &mut [libc::sock_filter],
    flags: libc::c_ulong,
) -> io::Result<libc::c_long> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    let operation = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the program outlives the call, which only reads it, and its length is the slice's.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Like [`filter`]. The returned descriptor receives the calls that the filter suspends.
#[expect(unsafe_code, reason = "a descriptor from a raw system call has no safe form")]
pub(crate) fn filter_with_listener(program: &mut [libc::sock_filter]) -> io::Result<OwnedFd> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // From Linux 5.19 on, this flag prevents signals from interrupting a call that is being answered. Otherwise the
    // call would be repeated.
    let installed =
        install_filter(program, listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
            .or_else(|_| install_filter(program, listener))?;
    let descriptor = RawFd::try_from(installed).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Waits for the next call suspended by the filter of `listener`.
#[expect(unsafe_code, reason = "the requests of seccomp(2) have no safe form")]
pub(crate) fn next_held_call(listener: &OwnedFd) -> io::Result<libc::seccomp_notif> {
    // SAFETY: the structure consists of numbers, and the kernel requires it zeroed.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
    // SAFETY: the request writes one such structure, which outlives the call.
    let answer = unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut call) };
    if answer == 0 { Ok(call) } else { Err(io::Error::last_os_error()) }
}

/// Returns true if the caller of a suspended call still waits for its answer. Then its process id cannot have been
/// reused.
#[expect(unsafe_code, reason = "the requests of seccomp(2) have no safe form")]
pub(crate) fn is_held(listener: &OwnedFd, id: u64) -> bool {
    let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID;
    // SAFETY: the request reads one number, which outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const id) == 0 }
}

/// Answers a suspended call with 0 or an error number. The kernel ignores the answer if the process has exited.
#[expect(unsafe_code, reason = "the requests of seccomp(2) have no safe form")]
pub(crate) fn answer_held_call(listener: &OwnedFd, id: u64, result: Result<(), Errno>) {
    let error = result.err().map_or(0, |errno| -errno.raw_os_error());
    let response = libc::seccomp_notif_resp { id, val: 0, error, flags: 0 };
    // SAFETY: the request reads one such structure, which outlives the call.
    let _answer = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response)
    };
}

/// Lets the kernel carry out a suspended call as the process made it.
#[expect(unsafe_code, reason = "the requests of seccomp(2) have no safe form")]
pub(crate) fn continue_held_call(listener: &OwnedFd, id: u64) {
    #[expect(clippy::cast_possible_truncation, reason = "the flag is 1")]
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let response = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: the request reads one such structure, which outlives the call.
    let _answer = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response)
    };
}

/// Answers a suspended call with a copy of the descriptor of `file`, in one step (Linux 5.14).
///
/// # Errors
/// The caller has exited, or has no descriptor left. The call is not answered.
#[expect(unsafe_code, reason = "the requests of seccomp(2) have no safe form")]
#[expect(clippy::cast_possible_truncation, reason = "the flag is 2")]
#[expect(clippy::cast_sign_loss, reason = "an open descriptor and a flag are not negative")]
pub(crate) fn answer_held_call_with_file(
    listener: &OwnedFd,
    id: u64,
    file: &OwnedFd,
    is_inherited: bool,
) -> io::Result<()> {
    let request = libc::seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
        srcfd: file.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if is_inherited { 0 } else { libc::O_CLOEXEC as u32 },
    };

    // SAFETY: the request reads one such structure, which outlives the call.
    let answer = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const request)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel wake the answering thread on the processor of the caller (Linux 6.6), which takes less than half
/// of the time. Older kernels ignore this.
#[expect(unsafe_code, reason = "the requests of seccomp(2) have no safe form")]
pub(crate) fn answer_on_the_same_processor(listener: &OwnedFd) {
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: this request takes a number and reads no memory.
    let _answer = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP)
    };
}

/// Returns the generation of a file's inode. `None` if the file system has none.
#[expect(unsafe_code, reason = "FS_IOC_GETVERSION has no safe form")]
pub(crate) fn inode_generation(file: &OwnedFd) -> Option<u32> {
    let mut generation: libc::c_long = 0;
    // SAFETY: the request writes at most one `long`, which outlives the call.
    let answer =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, &raw mut generation) };
    // The kernel writes 32 bits.
    (answer == 0).then(|| u32::try_from(generation & 0xffff_ffff).unwrap_or(0))
}

/// Fails if the process has several threads: a fork would copy locks that no thread releases.
pub(crate) fn require_single_thread() -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() == 1 {
        return Ok(());
    }
    Err(io::Error::other("a process with several threads cannot be split"))
}

/// Returns true if the error means that the name does not exist.
pub(crate) fn is_missing(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR)
}
