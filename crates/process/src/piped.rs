//! Runs a program whose pipes the caller reads and writes. Like a command, it gets its own process group, control
//! group and marks. Used by the Pi worker.

use crate::output::OutputEnds;
use crate::shell::{Input, Shell, reap_ended_orphans};
use crate::{Command, Exit, LaunchError};
use std::io;
use std::os::fd::OwnedFd;

/// A running program. Dropping it kills the program and all its known processes.
#[derive(Debug)]
pub struct Piped {
    shell: Shell,
    pid: u32,
}

/// The caller's ends of a program's pipes. Non-blocking, close-on-exec.
#[derive(Debug)]
pub struct Pipes {
    /// Write end of the program's stdin.
    pub stdin: OwnedFd,
    /// Read end of the program's stdout.
    pub stdout: OwnedFd,
    /// Read end of the program's stderr.
    pub stderr: OwnedFd,
}

/// Starts a program, which must have no terminal. Ignores the fields of `command` about time, spilling and watching:
/// only the caller stops the program.
///
/// This process must be a sub-reaper, see [`crate::run`]. Needs a tokio runtime with I/O.
///
/// # Errors
/// See [`LaunchError`]. No process is left running after an error.
pub fn launch_piped(command: &Command) -> Result<(Piped, Pipes), LaunchError> {
    let (shell, stdin, output) = Shell::launch(command, Input::Pipe)?;
    let pid = shell.pid();
    let (Some(stdin), OutputEnds::Pipes { stdout, stderr }) = (stdin, output) else {
        return Err(LaunchError::Io(io::ErrorKind::BrokenPipe.into()));
    };

    let pipes = Pipes { stdin, stdout, stderr };
    for end in [&pipes.stdin, &pipes.stdout, &pipes.stderr] {
        rustix::io::ioctl_fionbio(end, true).map_err(|errno| LaunchError::Io(errno.into()))?;
    }
    Ok((Piped { shell, pid }, pipes))
}

impl Piped {
    /// Returns the process id of the program. For display only.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Resolves when the program has exited. Its descendants may still run and hold its pipes.
    pub async fn exited(&self) {
        self.shell.exited().await;
    }

    /// Sends TERM to the program and all its processes, including stopped ones.
    pub fn terminate(&mut self) {
        let _n_found = self.shell.terminate();
    }

    /// Kills the program and all its processes.
    pub fn kill(&mut self) {
        self.shell.kill();
    }

    /// Reaps exited orphans. Call it periodically, so that a long-running program cannot fill the process table.
    pub fn reap_orphans(&self) {
        reap_ended_orphans();
    }

    /// Returns the exit status of the program. Call it after [`Piped::exited`] has resolved. Kills the remaining
    /// processes first.
    ///
    /// # Errors
    /// The program was reaped elsewhere.
    pub fn end(mut self) -> io::Result<Exit> {
        self.shell.kill();
        self.shell.note_end();
        self.shell.reap().map(|(exit, _usage)| exit)
    }
}
