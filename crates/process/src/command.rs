//! What a caller of [`crate::run`] says and is told.

use crate::{Captured, Exit, Flow, Group, Limits, Live, SpawnThread, Spilled, Usage};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The variable that marks a command and all its descendants with the command's tag.
pub const CALL_VARIABLE: &str = "QUACKD_CALL";

/// A command to run. The `shell` in what follows is the process of `program` itself.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program. With a slash in it; a bare name would be searched in the command's own PATH, at
    /// the price of a slower start.
    pub program: OsString,
    /// Its arguments, without the program's name. The kernel allows 128 KiB for each.
    pub args: Vec<OsString>,
    /// The working directory.
    pub cwd: PathBuf,
    /// The whole environment, but for [`CALL_VARIABLE`], which is added.
    pub env: Vec<(String, String)>,
    /// Running time after which the command is ended, at most a day. Time that the machine sleeps does
    /// not count.
    pub deadline: Duration,
    /// Time between TERM and KILL when the deadline has passed.
    pub grace: Duration,
    /// Time between TERM and KILL when the caller cancels.
    pub abort_grace: Duration,
    /// Time between TERM and KILL for processes that outlive a command that ended by itself. Zero: they are killed at
    /// once.
    pub leave: Duration,
    /// Ends the command when cancelled.
    pub cancel: CancellationToken,
    /// The call's id: unique among the commands of this process. Descendants that left the process
    /// group are recognised by it.
    pub tag: String,
    /// Where long output goes as a whole; `None` keeps only its two ends.
    pub spill: Option<SpillTarget>,
    /// Whoever wants to see the output while the command runs.
    pub live: Option<Live>,
    /// Reader of the whole output. While it is behind, the command waits to print.
    pub flow: Option<Flow>,
    /// What it may use.
    pub limits: Limits,
    /// The control group of this session, in which the command gets a place of its own; `None` where there
    /// is none. Then descent and marks alone tell what is the command's.
    pub group: Option<Arc<Group>>,
    /// The thread that launches it; `None` launches it on the calling thread.
    pub spawn_thread: Option<Arc<SpawnThread>>,
}

/// Where, and from what length on, the whole output is written to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillTarget {
    /// An existing private directory.
    pub dir: PathBuf,
    /// Name of the file to create; a plain file name that does not exist yet. The part up to and with its
    /// first `-` names the family of spill files to which `max_files` applies.
    pub name: String,
    /// Largest file, in bytes. What follows is not written.
    pub max_bytes: u64,
    /// Files of the family that are kept, the new one included; the oldest are deleted.
    pub max_files: usize,
    /// What has to be free on the disk, in bytes: with less nothing is written, and what is being written ends.
    pub min_free: u64,
    /// Bytes of both streams together above which the file is written, at most 1 MiB.
    pub threshold: usize,
    /// Whether each piece is written when it comes, for those who read the file meanwhile. Otherwise some are
    /// gathered first.
    pub at_once: bool,
}

/// What ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// Nothing of ours.
    Itself,
    /// Its deadline.
    Deadline,
    /// Its caller.
    Abort,
    /// It had more processes than [`Limits::processes`].
    Processes,
}

/// A process that holds an output pipe of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number, as this process sees it.
    pub pid: u32,
    /// What it calls itself: at most [`HOLDER_BYTES`] of text without control characters. It is the
    /// process's own word, and may be empty.
    pub command: String,
}

/// Most processes that are named as holders of an output.
pub const MAX_HOLDERS: usize = 8;

/// Longest name of a holder, in bytes.
pub const HOLDER_BYTES: usize = 60;

/// A command that has ended, and everything that it started with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How the shell ended.
    pub exit: Exit,
    /// What the shell used, with everything that it had waited for. What ran in the background is not in
    /// it.
    pub usage: Usage,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// Processes that still ran when the shell had ended by itself, and were killed. Always 0 after a
    /// deadline or an abort, and outside Linux, where they are killed by group but cannot be counted.
    pub background_ended: u32,
    /// Processes that ran when the command was stopped, its shell among them. 0 if it ended by itself, and
    /// outside Linux.
    pub stopped: u32,
    /// Whether it is known that nothing is left. False if something hangs in the kernel, and outside Linux.
    pub is_gone: bool,
    /// Processes that are known to be still there: they hang in the kernel, or run with credentials that
    /// this process may not signal. 0 if `is_gone`.
    pub survivors: u32,
    /// Whether somebody still held an output pipe when the shell had ended by itself and the time to hand
    /// on the last of it had passed; or, however it ended, when all of its processes were gone. What came
    /// through it later is lost.
    pub output_open: bool,
    /// Who that was, as far as it is known: at most [`MAX_HOLDERS`] processes of this command, which have
    /// been ended since. Linux only.
    pub output_held_by: Vec<Holder>,
    /// Time from the call to the end of the shell, its processes and its output.
    pub duration: Duration,
    /// The file with the whole output, if it was long and could be written.
    pub spill: Option<Spilled>,
}

/// Why a command was not run. One variant per decision that the caller makes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The working directory is missing, is no directory or may not be entered: tell the caller.
    #[error("cannot enter the working directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The program is missing or cannot be executed: the installation is wrong.
    #[error("cannot execute {}", path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An argument, or all of them with the environment, is longer than the kernel allows.
    #[error("the command is too long")]
    TooLong,
    /// This process or the machine has no file descriptor left: try again later.
    #[error("too many open files")]
    TooManyFiles(#[source] io::Error),
    /// This user or the machine has no process left: try again later.
    #[error("too many processes")]
    TooManyProcesses(#[source] io::Error),
    /// The caller cancelled before the command was started: it did not run.
    #[error("aborted before it was started")]
    Aborted,
    /// Somebody else took the exit status: the command did run.
    #[error("the exit status of the command was lost")]
    StatusLost(#[source] io::Error),
    /// Anything else, for example a NUL byte in an argument.
    #[error("cannot start the command")]
    Io(#[source] io::Error),
}

impl LaunchError {
    /// Explains why `program` could not be started in `cwd`. The system reports a bad directory and a
    /// bad program alike, so the directory is looked at again.
    pub(crate) fn explain(error: io::Error, program: &Path, cwd: &Path) -> Self {
        use nix::libc;

        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyFiles(error),
            Some(libc::EAGAIN) => Self::TooManyProcesses(error),
            Some(libc::E2BIG) => Self::TooLong,
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
                Err(source) => Self::Directory { path: cwd.to_owned(), source },
                Ok(()) => Self::Program { path: program.to_owned(), source: error },
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
