//! Input and output of [`crate::run`]: the command, its limits, its result and its errors.

use crate::cgroup::MemoryGroup;
use crate::{
    Captured, CommandInput, Exit, Flow, Group, Limits, Live, SpawnThread, SpillTarget, Spilled,
    TerminalSlave, Usage,
};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The variable that marks a command and all its descendants with the command's tag.
pub const CALL_VARIABLE: &str = "QUACKD_CALL";

/// Longest argument or variable that the kernel takes, and the total that it takes with every limit of the stack, in
/// bytes (execve(2)).
const MAX_ARGUMENT_BYTES: usize = 128 * 1024;

/// A command to run. The `shell` in what follows is the process of `program` itself.
#[derive(Debug, Clone)]
pub struct Command {
    /// Path of the program. Use a path with a slash: a bare name is searched in the command's own PATH, which makes
    /// the start slower.
    pub program: OsString,
    /// Arguments without the program's name. The kernel allows 128 KiB for each.
    pub args: Vec<OsString>,
    /// The working directory.
    pub cwd: PathBuf,
    /// Complete environment, except [`CALL_VARIABLE`], which is added.
    pub env: Vec<(String, String)>,
    /// Running time after which the command is stopped, at most one day unless it has a terminal. Suspended time does not
    /// count.
    pub deadline: Duration,
    /// Time between TERM and KILL when the deadline has passed.
    pub grace: Duration,
    /// Time between TERM and KILL when the caller cancels.
    pub abort_grace: Duration,
    /// Time between TERM and KILL for processes that outlive a command that exited by itself. Zero kills them at
    /// once.
    pub leave: Duration,
    /// Stops the command when cancelled.
    pub cancel: CancellationToken,
    /// Id of the call, unique among the commands of this process. Identifies descendants that left the process group.
    pub tag: String,
    /// File for long output. `None` keeps only the two ends of each stream.
    pub spill: Option<SpillTarget>,
    /// Buffer for a watcher of the running command.
    pub live: Option<Live>,
    /// Reader of the whole output. While it is behind, the command waits to print.
    pub flow: Option<Flow>,
    /// Input of the command. `None`: it reads `/dev/null`.
    pub input: Option<CommandInput>,
    /// Terminal of the command: stdin, stdout, stderr and controlling terminal of its own session. `input` is then
    /// ignored, both streams count as stdout, and the command gets HUP in place of TERM. [`crate::run`] drops its value
    /// after the start; the output ends when no other clone and no process is left that has it.
    pub terminal: Option<Arc<TerminalSlave>>,
    /// Resource limits.
    pub limits: Limits,
    /// Control group of the session, in which the command gets its own group. With `None`, only descent and marks
    /// identify the command's processes.
    pub group: Option<Arc<Group>>,
    /// Thread that launches the command. `None` launches it on the calling thread.
    pub spawn_thread: Option<Arc<SpawnThread>>,
}

impl Command {
    /// Returns the group that limits the memory of the session. `None` if the kernel does not limit it.
    pub(crate) fn memory_group(&self) -> Option<&MemoryGroup> {
        self.group.as_ref().and_then(|group| group.memory())
    }

    /// Returns true if the arguments and the environment may be longer than the kernel allows.
    fn may_be_too_long(&self) -> bool {
        let args = self.args.iter().map(|arg| arg.len());
        let env = self.env.iter().map(|(name, value)| name.len().saturating_add(value.len()));
        MAX_ARGUMENT_BYTES <= args.chain(env).fold(0, usize::saturating_add)
    }
}

/// Reason for the end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// The shell exited without a deadline, an abort or a limit.
    Itself,
    /// The deadline passed.
    Deadline,
    /// The caller canceled it.
    Abort,
    /// The command had more processes than [`Limits::processes`].
    Processes,
    /// The session had more memory than [`Limits::memory`], and this command had most of it.
    Memory,
}

/// Ceiling that ended a command. Displays as one sentence without a full stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ceiling {
    /// The commands of the session together exceeded [`Limits::memory`].
    SessionMemory {
        /// The limit in bytes.
        limit: u64,
        /// Memory of this command in bytes, more than that of any other.
        used: u64,
    },
    /// The control group of the session was full, and the kernel killed a process. The command ended by itself.
    SessionMemoryReached {
        /// [`Limits::memory`] in bytes.
        limit: u64,
        /// True if no other command ran, so that the process was one of this command.
        is_own: bool,
    },
    /// The control group of the session is full without any process: files in memory and shared memory segments. The
    /// kernel kills each new process.
    SessionMemoryFull,
    /// Memory ran out, and the kernel killed processes. Probable: the kernel reports their number, not which.
    Memory,
    /// The command exceeded [`Limits::processes`].
    Processes {
        /// The limit.
        limit: u32,
    },
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionMemory { limit, used } => write!(
                f,
                "Memory limit of the session, {} MiB (limits.session_memory_mb), exceeded; this command had most, {} \
                 MiB, and was ended",
                limit >> 20,
                used >> 20
            ),
            Self::SessionMemoryReached { limit, is_own } => {
                let whose = if *is_own { " of this command" } else { ", probably of this command" };
                let mb = limit >> 20;
                write!(
                    f,
                    "Memory limit of the session, {mb} MiB (limits.session_memory_mb), reached: the kernel killed a \
                     process{whose}"
                )
            }
            Self::SessionMemoryFull => write!(
                f,
                "The memory of the session is full: files in /tmp and /dev/shm, shared memory segments; \
                 `quack restart` frees it"
            ),
            Self::Memory => {
                write!(f, "Memory ran out while the command ran; the kernel probably killed it")
            }
            Self::Processes { limit } => {
                write!(f, "Process limit of {limit} exceeded; the command was ended")
            }
        }
    }
}

/// A process that holds an output pipe of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Process id in the namespace of this process.
    pub pid: u32,
    /// Command line or name, at most [`HOLDER_BYTES`] of text without control characters. The process chooses it, and
    /// it may be empty.
    pub command: String,
}

/// Maximum number of reported holders of an output.
pub const MAX_HOLDERS: usize = 8;

/// Maximum length of a holder's `command` in bytes.
pub const HOLDER_BYTES: usize = 60;

/// Result of a command after it and all its processes ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Exit status of the shell.
    pub exit: Exit,
    /// Resources used by the shell and the processes that it had waited for. Excludes background processes.
    pub usage: Usage,
    /// Reason for the end.
    pub ended_by: EndedBy,
    /// Ceiling that ended the command.
    pub ceiling: Option<Ceiling>,
    /// Kept standard output.
    pub stdout: Captured,
    /// Kept standard error.
    pub stderr: Captured,
    /// Processes that outlived a shell that exited by itself, and were killed. Always 0 after a deadline or an abort.
    pub background_ended: u32,
    /// Number of processes when the command was stopped, including its shell. 0 if it exited by itself.
    pub stopped: u32,
    /// True if certainly no process is left. False if a process hangs in the kernel, and always on macOS.
    pub is_gone: bool,
    /// Number of known surviving processes. They hang in the kernel or run with credentials that this process may not
    /// signal. 0 if `is_gone`.
    pub survivors: u32,
    /// True if a process still held an output pipe when the shell had exited by itself and the time to forward the
    /// last output had passed. After any kind of end: true if a pipe was still held when all of the command's
    /// processes were gone. Later output is lost.
    pub output_open: bool,
    /// Known holders of the output pipes: at most [`MAX_HOLDERS`] processes of this command, killed since. Linux
    /// only.
    pub output_held_by: Vec<Holder>,
    /// Time from the call until the shell, its processes and its output ended.
    pub duration: Duration,
    /// File with the output, if the output was long and the file could be written.
    pub spill: Option<Spilled>,
}

/// Error of running a command. One variant per decision of the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The working directory is missing, is no directory or may not be entered: tell the caller.
    #[error("cannot enter the working directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The program is missing or cannot be executed: the installation is wrong.
    #[error("cannot execute {}", path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// An argument, or all of them with the environment, is longer than the kernel allows.
    #[error("the command is too long")]
    TooLong,
    /// The control group of the session has no memory for a process: tell the caller how to free it.
    #[error(
        "the memory of the session is full: files in /tmp and /dev/shm, shared memory segments; \
         `quack restart` frees it"
    )]
    SessionMemory,
    /// This process or the machine has no file descriptor left: try again later.
    #[error("too many open files")]
    TooManyFiles(#[source] io::Error),
    /// This user or the machine has no process left: try again later.
    #[error("too many processes")]
    TooManyProcesses(#[source] io::Error),
    /// The caller cancelled before the command was started: it did not run.
    #[error("aborted before it was started")]
    Aborted,
    /// Another waiter reaped the command. It did run.
    #[error("the exit status of the command was lost")]
    StatusLost(#[source] io::Error),
    /// Anything else, for example a NUL byte in an argument.
    #[error("cannot start the command")]
    Io(#[source] io::Error),
}

impl LaunchError {
    /// Classifies the error of starting `command`. The system reports a bad directory and a bad program alike, so the
    /// directory is checked again.
    pub(crate) fn explain(error: io::Error, command: &Command) -> Self {
        use nix::libc;

        let (cwd, memory) = (&command.cwd, command.memory_group());
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyFiles(error),
            // fork(2) reports every limit on processes so.
            Some(libc::EAGAIN) => Self::TooManyProcesses(error),
            Some(libc::E2BIG) if memory.is_none() || command.may_be_too_long() => Self::TooLong,
            // The kernel reports it also if it has no memory for the copy of the arguments.
            Some(libc::E2BIG) => Self::SessionMemory,
            Some(libc::ENOMEM) if memory.is_some_and(|memory| memory.is_full(&command.limits)) => {
                Self::SessionMemory
            }
            Some(
                libc::ENOENT
                | libc::ENOTDIR
                | libc::EACCES
                | libc::EPERM
                | libc::ELOOP
                | libc::ENAMETOOLONG
                | libc::EISDIR
                | libc::ENOEXEC
                | libc::ETXTBSY,
            ) => match enter(cwd) {
                Err(source) => Self::Directory { path: cwd.clone(), source },
                Ok(()) => Self::Program { path: command.program.clone().into(), source: error },
            },
            _ => Self::Io(error),
        }
    }
}

fn enter(directory: &Path) -> io::Result<()> {
    if !directory.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(rustix::fs::access(directory, rustix::fs::Access::EXEC_OK)?)
}
