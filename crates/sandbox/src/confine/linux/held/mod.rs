//! Answers the system calls of commands that their filter ([`super::commands`]) suspends. A thread of process 1
//! does this for each filter: commands cannot kill process 1, and cannot read its memory or use its descriptors.
//!
//! - Symbolic links are created here, except in git directories ([`links`]).
//! - Changes at the top of git directories are carried out by [`git_writer`], because commands see these directories
//!   read-only. All other calls continue in the kernel.
//!
//! The thread has the rights of the worker, not of the caller. A command with fewer rights (safe mode) has more
//! filters: its changes of git directories continue in the kernel, and its filter refuses links before they are
//! suspended.

mod caller;
mod git_rules;
mod git_writer;
mod links;
mod own_files;

pub use git_rules::GitLayout;
pub(crate) use git_writer::TopMount;

use super::commands::{self, FCHMODAT2};
use super::error::{ConfineError, StepContext};
use super::sys;
use caller::{Caller, read_status};
use git_writer::{Answer, GitWriter, OpenArguments};
use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketFlags,
    SocketType, recvmsg, socketpair,
};
use rustix::thread::set_no_new_privs;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};

/// Maximum number of filters. A worker installs one, or a second one if two commands start at the same time.
const MAX_LISTENERS: usize = 4;

/// Number of filters that a command has and process 1 has not.
const FILTERS_OF_A_COMMAND: u32 = 1;

/// State for answering the calls of one worker's commands.
#[derive(Debug)]
pub(crate) struct HeldCalls {
    /// Mounts in which no links are created.
    pub(crate) link_free: BTreeSet<u64>,
    /// Git directories whose top is read-only, with writable mounts of them. Empty if the commands can write there.
    pub(crate) git: (GitLayout, Vec<TopMount>),
}

/// Returns true if this system can answer calls with files (Linux 5.14). Tries it on a thread of this process, which
/// keeps a filter afterwards.
pub(crate) fn works() -> bool {
    let (sender, receiver) = sync_channel(1);
    let opens = spawn("probe", move || {
        // A process without capabilities may install a filter only with this flag.
        let prepared = set_no_new_privs(true).map_err(std::io::Error::from);
        if let Ok(listener) = prepared.and_then(|()| commands::hold_writing_opens())
            && sender.send(listener).is_ok()
        {
            // Only the answer of the listener counts.
            rustix::fs::openat(CWD, PROBED, OFlags::WRONLY, Mode::empty()).ok();
        }
    });

    let listener = opens.ok().and_then(|()| receiver.recv().ok());
    listener.is_some_and(|listener| answers_probe(&listener).is_ok())
}

/// Path that the probe opens. It does not exist, so the kernel alone would not open it.
const PROBED: &str = "/quackd-probe/x";

/// Maximum wait for the call of the probe.
const PROBE_TIMEOUT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

fn answers_probe(listener: &OwnedFd) -> Result<(), Errno> {
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&PROBE_TIMEOUT))?;
    let errno = |error: &std::io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
    let call = sys::next_held_call(listener).map_err(|error| errno(&error))?;

    let caller = Caller::open(listener, &call)?;
    if caller.string(1)?.as_bytes() != PROBED.as_bytes() {
        return Err(Errno::INVAL);
    }

    // Any file serves as the answer. Real calls need the status too.
    let (file, _) = rustix::pipe::pipe()?;
    caller.status()?;
    sys::answer_held_call_with_file(listener, call.id, &file, false).map_err(|error| errno(&error))
}

/// Creates the connection by which a worker passes the listeners of its filters to process 1: the worker's end, then
/// the other.
pub(crate) fn connection() -> Result<(OwnedFd, OwnedFd), ConfineError> {
    let kind = SocketType::SEQPACKET;
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).step("make a socket pair")
}

impl HeldCalls {
    /// Answers calls on threads of this process until it exits. Called in process 1.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(self, connection: OwnedFd) -> std::io::Result<()> {
        // A new file gets the umask of the caller.
        rustix::process::umask(Mode::empty());
        let own = read_status(Path::new("/proc/self/status"))?;

        let (layout, tops) = self.git;
        let server = Arc::new(Server {
            link_free: self.link_free,
            filters: own.filters.saturating_add(FILTERS_OF_A_COMMAND),
            git: (!tops.is_empty()).then(|| GitWriter::new(layout, tops).into()),
        });

        spawn("listeners", move || {
            for _ in 0..MAX_LISTENERS {
                let Some(listener) = receive(&connection) else { return };
                let server = Arc::clone(&server);
                // Without a thread, the calls of the commands wait until the worker is killed.
                spawn("held-calls", move || server.serve(&listener)).ok();
            }
        })
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Receives the listener of a filter. `None` if the worker has exited.
fn receive(connection: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;

    let received = loop {
        match recvmsg(connection, &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
            Err(Errno::INTR) => {}
            received => break received.ok()?,
        }
    };

    // No byte means that the worker closed its end. A truncated message has lost its descriptor.
    if received.bytes == 0 || received.flags.contains(ReturnFlags::CTRUNC) {
        return None;
    }

    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

struct Server {
    link_free: BTreeSet<u64>,
    /// Number of filters of a command with all rights of the worker.
    filters: u32,
    #[expect(
        clippy::disallowed_types,
        reason = "threads of process 1, which has no actors, share it"
    )]
    git: Option<std::sync::Mutex<GitWriter>>,
}

impl Server {
    fn serve(&self, listener: &OwnedFd) {
        sys::answer_on_the_same_processor(listener);
        loop {
            match sys::next_held_call(listener) {
                Ok(call) => self.answer(listener, &call),
                // A signal interrupted the wait, or the caller was killed before its call was read.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {}
                Err(_) => return,
            }
        }
    }

    fn answer(&self, listener: &OwnedFd, call: &libc::seccomp_notif) {
        let operation = Operation::of(call);
        let answered = match operation {
            Some(Operation::Link { target, descriptor, path }) => {
                let made = Caller::open(listener, call).and_then(|caller| {
                    links::make(&caller, target, descriptor, path, &self.link_free)
                });
                made.map(|()| Answer::Done)
            }
            Some(operation) => self.change(listener, call, operation),
            None => Ok(Answer::Continue),
        };

        match answered {
            Ok(Answer::Continue) => sys::continue_held_call(listener, call.id),
            Ok(Answer::Done) => sys::answer_held_call(listener, call.id, Ok(())),
            Ok(Answer::Opened(file, created)) => {
                let is_inherited = operation.is_some_and(Operation::is_inherited);
                let answer =
                    sys::answer_held_call_with_file(listener, call.id, &file, is_inherited);
                if let (Err(error), created) = (answer, created) {
                    created.into_iter().for_each(git_writer::CreatedName::remove);
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    sys::answer_held_call(listener, call.id, Err(errno));
                }
            }
            Err(errno) => sys::answer_held_call(listener, call.id, Err(errno)),
        }
    }

    /// Carries out a change of a git directory. Leaves everything else to the kernel, and also what cannot be read:
    /// it finds a read-only mount.
    fn change(
        &self,
        listener: &OwnedFd,
        call: &libc::seccomp_notif,
        operation: Operation,
    ) -> Result<Answer, Errno> {
        let (Some(git), Ok(caller)) = (&self.git, Caller::open(listener, call)) else {
            return Ok(Answer::Continue);
        };
        // A panic ends this process, so no thread finds a poisoned lock.
        let mut git = git.lock().unwrap_or_else(PoisonError::into_inner);

        let path = |(descriptor, argument): Name| {
            let path = caller.absolute(descriptor, argument).ok().flatten();
            path.filter(|path| git.contains(path))
        };
        let Some(first) = path(operation.name()) else { return Ok(Answer::Continue) };
        let second = match operation.second_name().map(path) {
            Some(None) => return Ok(Answer::Continue),
            second => second.flatten(),
        };

        let Ok(status) = caller.status() else { return Ok(Answer::Continue) };
        caller.check()?;
        // Safe mode adds a filter. Process 1 must not write for its commands.
        if self.filters != status.filters {
            return Ok(Answer::Continue);
        }

        let done = carry_out(&mut git, operation, &first, second, status.umask);
        match done {
            // Links of the user.
            Err(Errno::LOOP | Errno::XDEV) => Ok(Answer::Continue),
            done => done,
        }
    }
}

fn carry_out(
    git: &mut GitWriter,
    operation: Operation,
    first: &Path,
    second: Option<PathBuf>,
    umask: u32,
) -> Result<Answer, Errno> {
    let new_mode = |mode: u32| Mode::from_raw_mode(mode & 0o777 & !umask);

    match (operation, second) {
        (Operation::Open { flags, mode, .. }, _) => {
            git.open(first, OpenArguments { flags, mode: new_mode(mode) })
        }
        (Operation::MakeDirectory { mode, .. }, _) => git.make_directory(first, new_mode(mode)),
        (Operation::Remove { is_directory, .. }, _) => git.remove(first, is_directory),
        (Operation::Rename { flags, .. }, Some(second)) => git.rename(first, &second, flags),
        (Operation::ChangeMode { mode, .. }, _) => {
            git.change_mode(first, Mode::from_raw_mode(mode & 0o777))
        }
        (Operation::Rename { .. } | Operation::Link { .. }, _) => Ok(Answer::Continue),
    }
}

/// The descriptor in which a path starts, and the argument with the path.
type Name = (u32, usize);

/// A suspended call.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Link { target: usize, descriptor: u32, path: usize },
    Open { name: Name, flags: OFlags, mode: u32 },
    MakeDirectory { name: Name, mode: u32 },
    Remove { name: Name, is_directory: bool },
    Rename { from: Name, to: Name, flags: RenameFlags },
    ChangeMode { name: Name, mode: u32 },
}

const HERE: u32 = libc::AT_FDCWD.cast_unsigned();

impl Operation {
    /// Returns the operation of a call. `None` for one with flags that only the kernel knows.
    fn of(call: &libc::seccomp_notif) -> Option<Self> {
        // These arguments have 32 bits. The caller may leave anything in the upper half of the register.
        let number = |argument: usize| {
            let value = call.data.args.get(argument).copied().unwrap_or_default();
            u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default()
        };

        let call_number = libc::c_long::from(call.data.nr);
        #[cfg(target_arch = "x86_64")]
        if let Some(operation) = Self::without_descriptor(call_number, number) {
            return operation;
        }
        match call_number {
            libc::SYS_symlinkat => Some(Self::Link { target: 0, descriptor: number(1), path: 2 }),
            libc::SYS_openat => Self::open((number(0), 1), number(2), number(3)),
            libc::SYS_mkdirat => {
                Some(Self::MakeDirectory { name: (number(0), 1), mode: number(2) })
            }
            libc::SYS_unlinkat => match number(2).cast_signed() {
                0 => Some(Self::Remove { name: (number(0), 1), is_directory: false }),
                libc::AT_REMOVEDIR => {
                    Some(Self::Remove { name: (number(0), 1), is_directory: true })
                }
                _ => None,
            },
            libc::SYS_renameat => Self::rename((number(0), 1), (number(2), 3), 0),
            libc::SYS_renameat2 => Self::rename((number(0), 1), (number(2), 3), number(4)),
            libc::SYS_fchmodat => Some(Self::ChangeMode { name: (number(0), 1), mode: number(2) }),
            FCHMODAT2 => (number(3).cast_signed() & !libc::AT_SYMLINK_NOFOLLOW == 0)
                .then(|| Self::ChangeMode { name: (number(0), 1), mode: number(2) }),
            _ => None,
        }
    }

    /// Returns the operation of a call that other architectures do not have.
    #[cfg(target_arch = "x86_64")]
    fn without_descriptor(
        call_number: libc::c_long,
        number: impl Fn(usize) -> u32,
    ) -> Option<Option<Self>> {
        let name = (HERE, 0);
        Some(match call_number {
            libc::SYS_symlink => Some(Self::Link { target: 0, descriptor: HERE, path: 1 }),
            libc::SYS_open => Self::open(name, number(1), number(2)),
            libc::SYS_creat => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
                Self::open(name, flags.bits(), number(1))
            }
            libc::SYS_mkdir => Some(Self::MakeDirectory { name, mode: number(1) }),
            libc::SYS_rmdir => Some(Self::Remove { name, is_directory: true }),
            libc::SYS_unlink => Some(Self::Remove { name, is_directory: false }),
            libc::SYS_rename => Self::rename(name, (HERE, 1), 0),
            libc::SYS_chmod => Some(Self::ChangeMode { name, mode: number(1) }),
            _ => return None,
        })
    }

    fn open(name: Name, flags: u32, mode: u32) -> Option<Self> {
        let flags = OFlags::from_bits_retain(flags);
        // `O_TMPFILE` contains `O_DIRECTORY`.
        (!flags.intersects(OFlags::PATH | OFlags::DIRECTORY)).then_some(Self::Open {
            name,
            flags,
            mode,
        })
    }

    fn rename(from: Name, to: Name, flags: u32) -> Option<Self> {
        let flags = RenameFlags::from_bits(flags)?;
        (!flags.contains(RenameFlags::WHITEOUT)).then_some(Self::Rename { from, to, flags })
    }

    fn name(self) -> Name {
        match self {
            Self::Link { descriptor, path, .. } => (descriptor, path),
            Self::Open { name, .. }
            | Self::MakeDirectory { name, .. }
            | Self::Remove { name, .. }
            | Self::Rename { from: name, .. }
            | Self::ChangeMode { name, .. } => name,
        }
    }

    fn second_name(self) -> Option<Name> {
        match self {
            Self::Rename { to, .. } => Some(to),
            _ => None,
        }
    }

    /// Returns true if a program that the caller becomes keeps the file of an `open`.
    fn is_inherited(self) -> bool {
        matches!(self, Self::Open { flags, .. } if !flags.contains(OFlags::CLOEXEC))
    }
}
