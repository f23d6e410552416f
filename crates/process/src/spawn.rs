//! Starting workers. Called by the supervisor's main thread.

use crate::{ProcessHandle, SelfExe};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

/// The name under which the program runs, as `ps` shows it; its path is a descriptor's.
pub(crate) const PROGRAM_NAME: &str = "quack";

/// A worker that was started: its monitor, to be exact, which is our direct child and ends right after
/// the worker and exactly as the worker did ([`crate::split_off_monitor`]).
///
/// To end it, send TERM: the monitor kills the worker and everything below it at once. KILL takes the
/// worker along as well, but leaves its descendants to [`crate::sweep_strays_blocking`].
#[derive(Debug)]
pub struct SpawnedWorker {
    /// The child.
    pub process: ProcessHandle,
    /// Read end of the child's stderr. Non-blocking, close-on-exec.
    pub stderr: OwnedFd,
}

/// Why no process was started. One variant per decision that the caller makes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// This process or the machine has no file descriptor left: try again later.
    #[error("too many open files")]
    TooManyFiles(#[source] io::Error),
    /// This user or the machine has no process left: try again later.
    #[error("too many processes")]
    TooManyProcesses(#[source] io::Error),
    /// The program's file was replaced since this process started: restart. Not on Linux.
    #[error("the program was replaced on disk; restart the daemon")]
    Replaced,
    /// The launcher cannot be started: the configuration is wrong.
    #[error("cannot start the launcher {program}")]
    Launcher {
        /// The launcher.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// Anything else: it will not go away by itself.
    #[error("cannot start a process")]
    Io(#[source] io::Error),
}

impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(nix::libc::EMFILE | nix::libc::ENFILE) => Self::TooManyFiles(error),
            Some(nix::libc::EAGAIN) => Self::TooManyProcesses(error),
            _ => Self::Io(error),
        }
    }
}

/// What stands before a worker's command line: a program that ends by executing the rest of it, here or
/// elsewhere, and hands on stdin and stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The program, looked for in the `PATH` of `env`, and its arguments. Not empty.
    pub words: Vec<String>,
    /// The launcher's whole environment. The worker clears its own.
    pub env: Vec<(String, String)>,
}

/// Directories of the system's programs.
pub const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Returns a `PATH` in which no directory shadows the system's programs. Relative directories are left out.
#[must_use]
pub fn system_first(path: &str) -> String {
    let others = path.split(':').filter(|entry| entry.starts_with('/'));
    std::iter::once(SYSTEM_PATH).chain(others).collect::<Vec<_>>().join(":")
}

/// Starts `launcher… exe args…` in the same way as [`spawn_worker_blocking`]. The program is named by its
/// path, since a descriptor means nothing to a launcher: a new version on disk is what is started then.
///
/// # Errors
/// See [`SpawnError`]. Nothing is left running then.
pub fn spawn_launched_blocking(
    launcher: &Launcher,
    args: &[&str],
    stdin: OwnedFd,
) -> Result<SpawnedWorker, SpawnError> {
    let exe = std::env::current_exe()?;
    let (first, rest) =
        launcher.words.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    let mut command = std::process::Command::new(first);
    command.args(rest).arg(exe).args(args).current_dir("/");
    command.env_clear().envs(launcher.env.iter().map(|(name, value)| (name, value)));
    command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped());
    let spawned = command.spawn().map_err(|error| match SpawnError::from(error) {
        SpawnError::Io(source) => SpawnError::Launcher { program: first.clone(), source },
        other => other,
    });
    started(spawned?)
}

/// Starts `exe args…` as a worker: the given stdin (its control channel), stdout to `/dev/null`, stderr
/// to a pipe, an empty environment, `/` as working directory, in this process's group.
///
/// Takes about half a millisecond, independent of this process's size. Call it from the main thread
/// only: the child asks to be told of its parent's death, and the kernel means the parent *thread*.
///
/// # Errors
/// See [`SpawnError`]. Nothing is left running then.
pub fn spawn_worker_blocking(
    exe: &SelfExe,
    args: &[&str],
    stdin: OwnedFd,
) -> Result<SpawnedWorker, SpawnError> {
    let mut command = program(exe, args)?;
    started(command.env_clear().stdin(stdin).spawn()?)
}

/// Becomes another program, looked for in `PATH`, with the same descriptors and environment but for what `env`
/// sets. Returns why it could not.
pub fn become_program<'a>(
    program: &OsStr,
    arguments: Vec<OsString>,
    env: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
) -> io::Error {
    #[expect(clippy::disallowed_methods, reason = "this crate is where programs are started")]
    std::process::Command::new(program).args(arguments).envs(env).exec()
}

fn started(mut child: Child) -> Result<SpawnedWorker, SpawnError> {
    adopt(&mut child).map_err(|error| {
        discard(&mut child);
        error.into()
    })
}

/// The parts that every start of our own program has in common.
pub(crate) fn program(exe: &SelfExe, args: &[&str]) -> Result<std::process::Command, SpawnError> {
    if !exe.is_unchanged() {
        return Err(SpawnError::Replaced);
    }
    Ok(program_at(exe.path(), args))
}

/// Like [`program`], for another file.
#[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
pub(crate) fn program_at(path: &Path, args: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(path);
    command.arg0(PROGRAM_NAME).args(args).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn adopt(child: &mut Child) -> io::Result<SpawnedWorker> {
    let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let stderr = OwnedFd::from(stderr);
    rustix::io::ioctl_fionbio(&stderr, true)?;
    Ok(SpawnedWorker { process: ProcessHandle::of_child(child.id())?, stderr })
}

/// Ends a child that cannot be watched. It was started a moment ago, so the wait is short.
pub(crate) fn discard(child: &mut Child) {
    // Both can only fail because the child is gone, which is what is wanted.
    drop(child.kill());
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhaustion_is_told_apart_from_other_failures() {
        let of = |code| SpawnError::from(io::Error::from_raw_os_error(code));
        assert!(matches!(of(nix::libc::EMFILE), SpawnError::TooManyFiles(_)));
        assert!(matches!(of(nix::libc::ENFILE), SpawnError::TooManyFiles(_)));
        assert!(matches!(of(nix::libc::EAGAIN), SpawnError::TooManyProcesses(_)));
        assert!(matches!(of(nix::libc::ENOENT), SpawnError::Io(_)));
    }
}
