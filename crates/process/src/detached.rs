//! Starts the daemon, programs of the desktop and the guard of the terminal in the background. Called by the command line.
//! Also contains the daemon's side of the separation: a new session and a closed stderr.

use crate::harden::keep_descriptors_to_ourselves;
use crate::spawn::{discard, program, program_at};
use crate::{Exit, ProcessHandle, SelfExe, SpawnError};
use quackd_protocol::limits::WORKER_STDERR_BYTES;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

/// A started daemon that may outlive this process.
#[derive(Debug)]
pub struct DetachedChild {
    process: ProcessHandle,
    stderr: File,
    last_words: VecDeque<u8>,
}

impl DetachedChild {
    /// Returns the process id, for logs and display.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the exit status, or `None` while the daemon runs. Never waits.
    ///
    /// # Errors
    /// The daemon was reaped elsewhere.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.process.try_reap()
    }

    /// Kills the daemon.
    ///
    /// # Errors
    /// The system refuses the signal.
    pub fn kill(&self) -> io::Result<()> {
        self.process.signal(nix::sys::signal::Signal::SIGKILL)
    }

    /// Returns the stderr of the daemon until now, at most the last [`WORKER_STDERR_BYTES`]. Never waits. Replaces
    /// bytes that are not UTF-8.
    pub fn stderr_so_far(&mut self) -> String {
        let mut chunk = [0; 4096];
        // The read returns at the end or without new bytes. The loop is bounded, because a writer may never stop.
        for _ in 0..64 {
            let Ok(read @ 1..) = self.stderr.read(&mut chunk) else { break };
            self.last_words.extend(chunk.iter().take(read));
            let excess = self.last_words.len().saturating_sub(WORKER_STDERR_BYTES);
            self.last_words.drain(..excess);
        }
        String::from_utf8_lossy(self.last_words.make_contiguous()).into_owned()
    }
}

/// Starts `exe args…` as a daemon: stdin and stdout are `/dev/null`, stderr is a pipe, the environment is inherited,
/// and the working directory is `/`. The child completes the separation with [`become_session_leader`] and, once it
/// serves, [`redirect_stderr_to_null`].
///
/// # Errors
/// See [`SpawnError`]. No process is left running after an error.
pub fn spawn_detached_blocking(exe: &SelfExe, args: &[&str]) -> Result<DetachedChild, SpawnError> {
    // A daemon must not keep pipes open that the caller's parent waits on.
    keep_descriptors_to_ourselves()?;
    // The child stays in this process group: setsid() fails for the leader of a group.
    watched(program(exe, args)?)
}

/// Starts the program at `path` like [`spawn_detached_blocking`]: for a program that replaces this one.
///
/// # Errors
/// See [`SpawnError`]. No process is left running after an error.
pub fn spawn_other_blocking(path: &Path, args: &[&str]) -> Result<DetachedChild, SpawnError> {
    keep_descriptors_to_ourselves()?;
    watched(program_at(path, args))
}

/// Starts a program of the desktop, searched in `PATH`: in its own session without a terminal, with `/dev/null` as stdin,
/// stdout and stderr, `/` as working directory, and the inherited environment. It may outlive this process. A thread reaps
/// it.
///
/// # Errors
/// The program cannot be started.
#[expect(unsafe_code, reason = "code between fork and exec has no safe form")]
#[expect(clippy::disallowed_methods, reason = "no vfork-like spawn makes a session")]
pub fn spawn_on_desktop_blocking(program: &str, args: &[&str]) -> io::Result<()> {
    keep_descriptors_to_ourselves()?;
    let mut command = std::process::Command::new(program);
    command.args(args).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the function makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(leave_session) };
    reap_in_background(command.spawn()?)
}

/// Starts `exe args…` as the guard of the terminal on stdin and stdout. Returns the non-blocking write end of a pipe, which is
/// the guard's stdin and ends with this process. The guard's stdout is that of this process, and its stderr is the stdin of
/// this process. The guard calls [`become_session_leader`]. A thread reaps it.
///
/// # Errors
/// See [`SpawnError`].
pub fn spawn_terminal_guard_blocking(exe: &SelfExe, args: &[&str]) -> Result<OwnedFd, SpawnError> {
    keep_descriptors_to_ourselves()?;
    let terminal = io::stdin().as_fd().try_clone_to_owned()?;
    let mut command = program(exe, args)?;
    command.stdin(Stdio::piped()).stdout(Stdio::inherit()).stderr(terminal);
    let mut child = command.spawn()?;
    let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe).map_err(io::Error::from)?;
    reap_in_background(child)?;

    let pipe = OwnedFd::from(pipe);
    rustix::io::ioctl_fionbio(&pipe, true).map_err(io::Error::from)?;
    Ok(pipe)
}

/// Without the thread, the ended child stays a zombie until this process exits.
fn reap_in_background(mut child: Child) -> io::Result<()> {
    std::thread::Builder::new().name("reap".to_owned()).spawn(move || child.wait()).map(drop)
}

/// Leads a new session. Runs between fork and exec.
fn leave_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

fn watched(mut command: std::process::Command) -> Result<DetachedChild, SpawnError> {
    let mut child = command.spawn()?;

    let watch = |child: &mut Child| -> io::Result<DetachedChild> {
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stderr = OwnedFd::from(stderr);
        // `stderr_so_far` must not wait.
        rustix::io::ioctl_fionbio(&stderr, true)?;
        let process = ProcessHandle::of_child(child.id())?;
        Ok(DetachedChild { process, stderr: File::from(stderr), last_words: VecDeque::new() })
    };

    watch(&mut child).map_err(|error| {
        discard(&mut child);
        error.into()
    })
}

/// Leaves the terminal and the process group of the parent, so that Ctrl-C and a closed terminal no longer reach this
/// process. A process that already leads a group stays in it.
pub fn become_session_leader() {
    // EPERM is the only failure. It means that this process already leads a group (setsid(2)).
    rustix::process::setsid().ok();
}

/// Redirects stderr to `/dev/null`, before the program that reads it exits.
///
/// # Errors
/// `/dev/null` cannot be opened, or no descriptor is left.
pub fn redirect_stderr_to_null() -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
