//! Starts workers. Called by the supervisor's main thread.

use crate::{ProcessHandle, SelfExe};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

/// Process name in `ps`. The path of the executable is a descriptor's and would be no help.
pub(crate) const PROGRAM_NAME: &str = "quack";

/// A started child process, such as a worker or an agent. The direct child is its monitor, which exits right after the
/// process and with the same status ([`crate::split_off_monitor`]).
///
/// To stop the process, send TERM: the monitor kills it and all descendants at once. KILL also kills the process, but
/// leaves the descendants to [`crate::sweep_strays_blocking`].
#[derive(Debug)]
pub struct SpawnedChild {
    /// The direct child.
    pub process: ProcessHandle,
    /// Read end of the child's stderr. Non-blocking, close-on-exec.
    pub stderr: OwnedFd,
}

/// Error of starting a process. One variant per decision of the caller.
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
        /// Error of the system.
        source: io::Error,
    },
    /// The template of workers has not answered a request: try again with another one.
    #[error("the template of workers does not answer")]
    Template(#[source] io::Error),
    /// Any other failure, which a retry does not fix.
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

/// Prefix of a worker's command line: a program that finally executes the rest of the line, here or elsewhere, and
/// passes on stdin and stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The program, searched in the `PATH` of `env`, and its arguments. Not empty.
    pub words: Vec<String>,
    /// Complete environment of the launcher. The worker clears its own.
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

/// Starts `launcher… exe args…` like [`spawn_worker_blocking`]. The launcher gets the path of the program, because a
/// descriptor has no meaning for it. So it starts a new version if the file was replaced.
///
/// # Errors
/// See [`SpawnError`]. No process is left running after an error.
pub fn spawn_launched_blocking(
    launcher: &Launcher,
    args: &[&str],
    stdin: OwnedFd,
) -> Result<SpawnedChild, SpawnError> {
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
/// Takes about 0.5 ms, independent of the size of this process. Call it only from the main thread: the child requests
/// a signal on its parent's death, and for the kernel the parent is a *thread*.
///
/// # Errors
/// See [`SpawnError`]. No process is left running after an error.
pub fn spawn_worker_blocking(
    exe: &SelfExe,
    args: &[&str],
    stdin: OwnedFd,
) -> Result<SpawnedChild, SpawnError> {
    let mut command = program(exe, args)?;
    started(command.env_clear().stdin(stdin).spawn()?)
}

/// Replaces this process by another program, searched in `PATH`. Descriptors and environment stay, except the
/// variables in `env`. Returns only on failure, with the error.
pub fn become_program<'a>(
    program: &OsStr,
    arguments: Vec<OsString>,
    env: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
) -> io::Error {
    #[expect(clippy::disallowed_methods, reason = "this crate is where programs are started")]
    std::process::Command::new(program).args(arguments).envs(env).exec()
}

fn started(mut child: Child) -> Result<SpawnedChild, SpawnError> {
    adopt(&mut child).map_err(|error| {
        discard(&mut child);
        error.into()
    })
}

/// Prepares a start of quackd's own program.
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

fn adopt(child: &mut Child) -> io::Result<SpawnedChild> {
    let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let stderr = OwnedFd::from(stderr);
    rustix::io::ioctl_fionbio(&stderr, true)?;
    Ok(SpawnedChild { process: ProcessHandle::of_child(child.id())?, stderr })
}

/// Kills and reaps a child that cannot be watched. The wait is short, because the child has just started.
pub(crate) fn discard(child: &mut Child) {
    // Both fail only if the child is already gone.
    child.kill().ok();
    child.wait().ok();
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
