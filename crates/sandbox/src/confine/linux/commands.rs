//! The additional system call filter of commands. It is installed on the thread that launches commands, and they
//! inherit it.
//!
//! - `openat2` fails with ENOSYS: its flags and its mode are in memory, which a filter cannot read. It could create a
//!   set-id file. Programs fall back to `openat`, whose flags and mode are arguments. File tools need `openat2`.
//! - Calls that create symbolic links, or can change a name in a git directory, wait for process 1 ([`super::held`]).

use super::error::{ConfineError, StepContext};
use super::sys;
use nix::libc;
use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Setting that controls whether one process may read the memory of another. 0 and 1 allow it for descendants.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// `fchmodat2`, which the `libc` crate does not have for every architecture.
pub(crate) const FCHMODAT2: libc::c_long = 452;

/// The filter of a worker's commands.
#[derive(Debug, Clone, Default)]
pub struct CommandFilter {
    held: Option<HeldFilter>,
}

/// Calls that process 1 answers.
#[derive(Debug, Clone)]
struct HeldFilter {
    /// Passes the listener to process 1.
    connection: Arc<OwnedFd>,
    /// True to hold calls that can change git directories, false to hold only those that create links.
    has_changes: bool,
}

impl CommandFilter {
    /// Creates a filter whose calls process 1 answers. `connection` leads to it.
    pub(crate) fn answered(connection: OwnedFd, has_changes: bool) -> Self {
        Self { held: Some(HeldFilter { connection: Arc::new(connection), has_changes }) }
    }

    /// Returns true if this system lets process 1 read the arguments of commands. Otherwise links in git directories
    /// are only found and removed when a command ends, and files in them are protected one by one.
    #[must_use]
    pub fn can_hold_calls() -> bool {
        let scope = fs::read_to_string(PTRACE_SCOPE).ok();
        // Without Yama, a process may read the memory of the user's other processes.
        scope.and_then(|scope| scope.trim().parse().ok()).is_none_or(|scope: u32| scope <= 1)
    }

    /// Installs the filter on this thread and on the processes and threads that it starts from now on. It cannot be
    /// removed.
    ///
    /// # Errors
    /// The kernel refuses. Then this thread must not start a command.
    pub fn apply_to_thread(&self) -> Result<(), ConfineError> {
        let step = "filter the system calls of commands";
        let Some(HeldFilter { connection, has_changes }) = &self.held else {
            return sys::filter(&mut program(&[])).step(step);
        };

        let held = if *has_changes { [LINKS, CHANGES].concat() } else { LINKS.to_vec() };
        let listener = sys::filter_with_listener(&mut program(&held)).step(step)?;
        pass(connection, &listener).step(step)
    }
}

/// Holds the `openat` calls of this thread that can write, to find out whether that works here.
///
/// # Errors
/// The kernel refuses, for example because another filter has a listener.
pub(crate) fn hold_writing_opens() -> io::Result<OwnedFd> {
    sys::filter_with_listener(&mut program(&[HeldCall::IfWriting(libc::SYS_openat, 2)]))
}

/// Passes the listener of a filter to process 1.
fn pass(connection: &OwnedFd, listener: &OwnedFd) -> io::Result<()> {
    let descriptors = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }

    // An empty message would look like the end of the connection.
    Ok(sendmsg(connection, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL).map(drop)?)
}

/// A call to suspend.
#[derive(Debug, Clone, Copy)]
enum HeldCall {
    Always(libc::c_long),
    /// Only if the flags in this argument allow writing.
    IfWriting(libc::c_long, u32),
}

/// Calls that create symbolic links.
const LINKS: &[HeldCall] = &[
    #[cfg(target_arch = "x86_64")]
    HeldCall::Always(libc::SYS_symlink),
    HeldCall::Always(libc::SYS_symlinkat),
];

/// Calls that can change a name in a git directory. Git makes no hard links there, and sets no times.
const CHANGES: &[HeldCall] = &[
    HeldCall::IfWriting(libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    HeldCall::IfWriting(libc::SYS_open, 1),
    #[cfg(target_arch = "x86_64")]
    HeldCall::Always(libc::SYS_creat),
    #[cfg(target_arch = "x86_64")]
    HeldCall::Always(libc::SYS_rename),
    HeldCall::Always(libc::SYS_renameat),
    HeldCall::Always(libc::SYS_renameat2),
    #[cfg(target_arch = "x86_64")]
    HeldCall::Always(libc::SYS_unlink),
    HeldCall::Always(libc::SYS_unlinkat),
    #[cfg(target_arch = "x86_64")]
    HeldCall::Always(libc::SYS_mkdir),
    HeldCall::Always(libc::SYS_mkdirat),
    #[cfg(target_arch = "x86_64")]
    HeldCall::Always(libc::SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    HeldCall::Always(libc::SYS_chmod),
    HeldCall::Always(libc::SYS_fchmodat),
    HeldCall::Always(FCHMODAT2),
];

/// Flags of `open` with which a call can write or create.
const WRITING: libc::c_int = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;

/// Builds the filter. It need not check the architecture: the worker's filter is also in force, and kills or refuses
/// calls of another architecture.
fn program(held: &[HeldCall]) -> Vec<libc::sock_filter> {
    let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let answer = |action| sock(libc::BPF_RET | libc::BPF_K, 0, action);
    let mut program = vec![sock(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    // Each block skips itself if the call is another one.
    let mut block = |call: libc::c_long, instructions: &[libc::sock_filter]| {
        let number = u32::try_from(call).unwrap_or(u32::MAX);
        let length = u8::try_from(instructions.len()).unwrap_or(0);
        program.push(sock(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, length, number));
        program.extend_from_slice(instructions);
    };

    block(libc::SYS_openat2, &[answer(no_such_call)]);
    for call in held {
        match *call {
            HeldCall::Always(call) => block(call, &[answer(libc::SECCOMP_RET_USER_NOTIF)]),
            HeldCall::IfWriting(call, argument) => block(
                call,
                &[
                    sock(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, lower_half_of(argument)),
                    sock(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 1, WRITING.unsigned_abs()),
                    answer(libc::SECCOMP_RET_USER_NOTIF),
                    answer(libc::SECCOMP_RET_ALLOW),
                ],
            ),
        }
    }

    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program
}

/// Returns the offset of the lower 32 bits of an argument in `seccomp_data`.
fn lower_half_of(argument: u32) -> u32 {
    let upper_first = if cfg!(target_endian = "big") { 4 } else { 0 };
    16 + 8 * argument + upper_first
}

/// Creates an instruction. A jump skips `jf` instructions if its condition does not hold.
fn sock(code: u32, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf, k }
}
