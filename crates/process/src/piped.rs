//! A program that is talked to for as long as it lives: started as a command is, with its own process group,
//! control group and marks, but with pipes that the caller reads and writes. Used by the Pi worker.

use crate::shell::{Input, Shell, reap_ended_orphans};
use crate::{Command, Exit, LaunchError};
use std::io;
use std::os::fd::OwnedFd;

/// A running program. Dropping it kills the program and everything that is known to be its.
#[derive(Debug)]
pub struct Piped {
    shell: Shell,
    pid: u32,
}

/// The ends of a program's pipes that are the caller's. Non-blocking, close-on-exec.
#[derive(Debug)]
pub struct Pipes {
    /// What the program reads.
    pub stdin: OwnedFd,
    /// What it prints.
    pub stdout: OwnedFd,
    /// What it complains of.
    pub stderr: OwnedFd,
}

/// Starts a program. Of `command` what is said of time, spilling and watching is not looked at: nobody but the
/// caller ends it.
///
/// This process must be a sub-reaper, see [`crate::run`]. Needs a tokio runtime with I/O.
///
/// # Errors
/// See [`LaunchError`]. Nothing is left running then.
pub fn launch_piped(command: &Command) -> Result<(Piped, Pipes), LaunchError> {
    let (shell, stdin, stdout, stderr) = Shell::launch_with(command, Input::Pipe)?;
    let pid = shell.pid();
    let pipes = stdin.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe)).and_then(|stdin| {
        for end in [&stdin, &stdout, &stderr] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(Pipes { stdin, stdout, stderr })
    });
    Ok((Piped { shell, pid }, pipes.map_err(LaunchError::Io)?))
}

impl Piped {
    /// The program's process id, for people.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Resolves when the program has ended. What it started may still run, and hold its pipes.
    pub async fn exited(&self) {
        self.shell.exited().await;
    }

    /// Asks the program and everything that it started to end (TERM). Stopped processes get it too.
    pub fn terminate(&self) {
        let _n_found = self.shell.terminate();
    }

    /// Kills the program and everything that it started.
    pub fn kill(&self) {
        self.shell.kill();
    }

    /// Reaps what lost its parent and has ended. To be called now and then, so that a program that lives for
    /// long cannot fill the process table.
    pub fn reap_orphans(&self) {
        reap_ended_orphans();
    }

    /// How the program ended. To be called once [`Piped::exited`] has resolved; what is left of its processes
    /// is killed first.
    ///
    /// # Errors
    /// Somebody else reaped it.
    pub fn end(self) -> io::Result<Exit> {
        self.shell.kill();
        self.shell.note_end();
        self.shell.reap().map(|(exit, _usage)| exit)
    }
}
