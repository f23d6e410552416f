//! The template of workers: a process that has loaded the program and waits, so that a worker is a fork of it instead
//! of a new start of the program. That saves the time for loading and relocating the program, and the workers share
//! the memory that relocation writes.
//!
//! The template has one thread, no environment and no secret. Its only input are requests of the supervisor, each with
//! the standard input and the standard error of a new worker. The new process is a child of the supervisor, not of the
//! template (`CLONE_PARENT`, clone(2)): the supervisor watches, signals and reaps it as if it had started the program.
//! The template exits when the supervisor closes the channel, and the kernel kills it when the supervisor exits.
//!
//! All forks of one template have the same address layout. So the supervisor replaces a template after
//! [`Template::FORKS`] workers, and after a worker that may have died by an attack on its memory.

use super::monitor::require_single_thread;
use super::{SelfExe, die_with_parent, set_process_name};
use crate::exit_as::end_process;
use crate::{ProcessHandle, SpawnError, SpawnedChild, rank_above_parent, spawn_worker_blocking};
use nix::libc;
use nix::sys::signal::Signal;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Timeout of one fork. A template that does not answer is replaced.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Descriptors in a request: standard input and standard error of the new worker.
const PASSED: usize = 2;

/// A running template, held by the supervisor.
#[derive(Debug)]
pub struct Template {
    process: ProcessHandle,
    socket: OwnedFd,
    /// Kept open, so that the template can report a panic.
    _stderr: OwnedFd,
    left: u32,
}

impl Template {
    /// Maximum number of workers that one template starts.
    pub const FORKS: u32 = 128;

    /// Starts `exe args…` like [`spawn_worker_blocking`], with a channel as standard input. The program must call
    /// [`serve_template`] before the first fork is requested; the caller may tell it so through [`AsFd::as_fd`].
    ///
    /// # Errors
    /// See [`SpawnError`].
    pub fn start_blocking(exe: &SelfExe, args: &[&str]) -> Result<Self, SpawnError> {
        let stream = SocketType::STREAM;
        let (socket, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, stream, SocketFlags::CLOEXEC, None)
                .map_err(io::Error::from)?;

        // A template that hangs must not block the supervisor.
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(ANSWER_LIMIT)).map_err(io::Error::from)?;
        }

        let SpawnedChild { process, stderr } = spawn_worker_blocking(exe, args, theirs)?;
        Ok(Self { process, socket, _stderr: stderr, left: Self::FORKS })
    }

    /// Returns the process id of the template, for display.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns whether the template has started as many workers as it may.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// Forks a worker with this `stdin`. Call it only from the thread that started the template, which becomes the
    /// worker's parent.
    ///
    /// # Errors
    /// `TooManyFiles` and `TooManyProcesses` are those of the machine. `Io`: the template has not got the request, so
    /// `stdin` may be used otherwise. `Template`: an unknown child may exist, with `stdin`. After these two the template
    /// must not be used again.
    pub fn fork_blocking(&mut self, stdin: BorrowedFd<'_>) -> Result<SpawnedChild, SpawnError> {
        let (stderr, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        rustix::io::ioctl_fionbio(&stderr, true).map_err(io::Error::from)?;

        send(&self.socket, [stdin, theirs.as_fd()])
            .map_err(|errno| SpawnError::Io(errno.into()))?;

        let mut answer = [0; 4];
        let (n, _) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::WAITALL)
            .map_err(|errno| SpawnError::Template(errno.into()))?;
        if n != answer.len() {
            return Err(SpawnError::Template(io::ErrorKind::UnexpectedEof.into()));
        }

        self.left = self.left.saturating_sub(1);
        match u32::try_from(i32::from_le_bytes(answer)) {
            Ok(pid) => Ok(SpawnedChild { process: watch(pid)?, stderr }),
            Err(_) => Err(io::Error::from_raw_os_error(-i32::from_le_bytes(answer)).into()),
        }
    }

    /// Kills the template and reaps it. Its workers go on.
    pub fn end_blocking(self) {
        // The template has just slept in a read, so it exits at once. Both fail only if it has exited before.
        self.process.signal(Signal::SIGKILL).ok();
        nix::sys::wait::waitpid(raw(self.process.pid()), None).ok();
    }
}

/// The channel to the template.
impl AsFd for Template {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn raw(pid: u32) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.cast_signed())
}

/// Returns a handle of a new child, or kills it.
fn watch(pid: u32) -> io::Result<ProcessHandle> {
    ProcessHandle::of_child(pid).inspect_err(|_no_descriptor| {
        // The child was not reaped, so no other process has its number.
        nix::sys::signal::kill(raw(pid), Signal::SIGKILL).ok();
        nix::sys::wait::waitpid(raw(pid), None).ok();
    })
}

fn send(socket: &OwnedFd, descriptors: [BorrowedFd<'_>; PASSED]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS);
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&[1])], &mut control, flags).map(drop)
}

/// Receives the descriptors of the next worker. `None` if the supervisor has closed the channel.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<[OwnedFd; PASSED]>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let message = loop {
        let mut into = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };

    if message.bytes == 0 {
        return Ok(None);
    }

    let mut descriptors = Vec::new();
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = ancillary {
            descriptors.extend(received);
        }
    }
    descriptors.try_into().map(Some).map_err(|_other| io::ErrorKind::InvalidData.into())
}

/// Serves as a template: forks for each request on standard input. Returns in each fork, with the new worker's standard
/// input and standard error. In the template itself, returns only with an error; it exits at the end of the input.
///
/// # Errors
/// The process has several threads, or the input is no request.
pub fn serve_template() -> io::Result<()> {
    require_single_thread()?;
    die_with_parent()?;
    set_process_name("quack-template");

    // Without `/proc` each worker reports it.
    rank_above_parent().ok();

    loop {
        let Some([stdin, stderr]) = receive(rustix::stdio::stdin())? else { end_process(0) };
        let answer = match clone_sibling() {
            Ok(None) => {
                rustix::stdio::dup2_stdin(&stdin)?;
                rustix::stdio::dup2_stderr(&stderr)?;
                return Ok(());
            }
            Ok(Some(pid)) => pid,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        };

        rustix::io::write(rustix::stdio::stdin(), &answer.to_le_bytes())?;
    }
}

/// Forks. The child's parent is the parent of this process. Returns the child's process id in this process, and `None`
/// in the child. The caller must have one thread.
#[expect(unsafe_code, reason = "clone(2) has no safe form")]
#[expect(clippy::cast_possible_truncation, reason = "the kernel's process numbers have 22 bits")]
fn clone_sibling() -> io::Result<Option<i32>> {
    let flags = libc::c_long::from(libc::CLONE_PARENT);
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
