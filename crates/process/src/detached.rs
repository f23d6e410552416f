//! Starting the daemon in the background. Called by the command line; the daemon's side of the
//! separation (a session of its own, a closed stderr) stands here too.

use crate::harden::keep_descriptors_to_ourselves;
use crate::spawn::{discard, program, program_at};
use crate::{Exit, ProcessHandle, SelfExe, SpawnError};
use quackd_protocol::limits::WORKER_STDERR_BYTES;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A daemon that was started and may live longer than this process.
#[derive(Debug)]
pub struct DetachedChild {
    process: ProcessHandle,
    stderr: File,
    last_words: VecDeque<u8>,
}

impl DetachedChild {
    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// How it ended, or `None` while it runs. Never waits.
    ///
    /// # Errors
    /// Somebody else reaped it.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.process.try_reap()
    }

    /// Kills it.
    ///
    /// # Errors
    /// The system's.
    pub fn kill(&self) -> io::Result<()> {
        self.process.signal(nix::sys::signal::Signal::SIGKILL)
    }

    /// What it has written to stderr until now, at most the last [`WORKER_STDERR_BYTES`]. Never waits.
    /// Bytes that are not UTF-8 are replaced.
    pub fn stderr_so_far(&mut self) -> String {
        let mut chunk = [0; 4096];
        // At its end or without new bytes the read returns; a writer that never stops is left after
        // a bounded number of reads.
        for _ in 0..64 {
            let Ok(read @ 1..) = self.stderr.read(&mut chunk) else { break };
            self.last_words.extend(chunk.iter().take(read));
            let excess = self.last_words.len().saturating_sub(WORKER_STDERR_BYTES);
            self.last_words.drain(..excess);
        }
        String::from_utf8_lossy(self.last_words.make_contiguous()).into_owned()
    }
}

/// Starts `exe args…` as a daemon: stdin and stdout are `/dev/null`, stderr is a pipe, the environment is
/// inherited, `/` is the working directory. The child completes the separation itself with
/// [`become_session_leader`] and, once it serves, [`redirect_stderr_to_null`].
///
/// # Errors
/// See [`SpawnError`]. Nothing is left running then.
pub fn spawn_detached_blocking(exe: &SelfExe, args: &[&str]) -> Result<DetachedChild, SpawnError> {
    // A daemon must not hold what the caller's own caller waits to see closed.
    keep_descriptors_to_ourselves()?;
    // It gets no process group of its own: setsid() fails for the leader of a group.
    watched(program(exe, args)?)
}

/// Starts the program at `path` like [`spawn_detached_blocking`]: for a program that replaces this one.
///
/// # Errors
/// See [`SpawnError`]. Nothing is left running then.
pub fn spawn_other_blocking(path: &Path, args: &[&str]) -> Result<DetachedChild, SpawnError> {
    keep_descriptors_to_ourselves()?;
    watched(program_at(path, args))
}

fn watched(mut command: std::process::Command) -> Result<DetachedChild, SpawnError> {
    let mut child = command.spawn()?;
    let watch = |child: &mut std::process::Child| -> io::Result<DetachedChild> {
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stderr = OwnedFd::from(stderr);
        rustix::io::ioctl_fionbio(&stderr, true)?;
        let process = ProcessHandle::of_child(child.id())?;
        Ok(DetachedChild { process, stderr: File::from(stderr), last_words: VecDeque::new() })
    };
    watch(&mut child).map_err(|error| {
        discard(&mut child);
        error.into()
    })
}

/// Leaves the terminal and the process group of whoever started this process: Ctrl-C and a closed
/// terminal no longer reach it. A process that leads a group already stays where it is.
pub fn become_session_leader() {
    // EPERM is the only failure, and it means that nothing is to do (setsid(2)).
    let _is_leader = rustix::process::setsid();
}

/// Points stderr at `/dev/null`, when the program that read it is about to go away.
///
/// # Errors
/// `/dev/null` cannot be opened, or no descriptor is left.
pub fn redirect_stderr_to_null() -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
