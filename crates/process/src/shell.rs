//! The process of one command, with all that it started: from its launch until nothing of it is left,
//! also when the caller loses interest in between. Used by [`crate::run`].

use crate::command::CALL_VARIABLE;
use crate::handle::ExitWatch;
use crate::in_flight::{self, Place};
use crate::lineage::{Lineage, has_variable, stat};
use crate::sweep::{FIRST_PAUSE, LONGEST_PAUSE, Left, Sweeper, living_strays, send};
use crate::{Command, Exit, LaunchError, ProcessHandle, Usage};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long a background task looks after a shell that was abandoned or does not die. What hangs in
/// the kernel for longer stays our zombie until this process ends.
const CLEANUP_LIMIT: Duration = Duration::from_secs(60);

/// How long one round of freezing and killing may look for newly forked processes.
const FREEZE_LIMIT: Duration = Duration::from_secs(1);

/// How eagerly the kernel ends a command when memory is short: before every worker.
#[cfg(target_os = "linux")]
const COMMAND_OOM_SCORE: &str = "500";

/// A running command: its shell, which leads a process group of its own, and its descendants.
///
/// INVARIANT: until `is_reaped` the shell's number belongs to it, as a process and as a group, so
/// signals by number are safe.
#[derive(Debug)]
pub(crate) struct Shell {
    process: ProcessHandle,
    watch: ExitWatch,
    mark: Mark,
    /// Taken when the shell is abandoned.
    place: Option<Place>,
    is_reaped: bool,
}

/// By what a command's processes are recognised.
#[derive(Debug, Clone)]
struct Mark {
    group: u32,
    /// `NAME=VALUE` in the environment of every descendant that did not remove it.
    variable: Vec<u8>,
}

impl Mark {
    /// Whether an orphan of ours is this command's. One without any mark goes to the last command
    /// that runs: only then it is certain that nobody else misses it.
    fn fits(&self, orphan: u32) -> bool {
        in_flight::is_last(self.group)
            || stat(orphan).is_ok_and(|stat| stat.group == self.group)
            || has_variable(orphan, &self.variable)
    }
}

impl Shell {
    /// Starts the command. Returns the read ends of its stdout and stderr.
    ///
    /// # Errors
    /// See [`LaunchError`]. Nothing is left running then.
    pub(crate) fn launch(command: &Command) -> Result<(Self, OwnedFd, OwnedFd), LaunchError> {
        let (program, cwd) = (Path::new(&command.program), &command.cwd);
        let explain = |error| LaunchError::explain(error, program, cwd);
        let place = Place::reserve()
            .ok_or_else(|| LaunchError::TooManyProcesses(io::ErrorKind::QuotaExceeded.into()))?;
        let mut child = spawn(command).map_err(explain)?;
        place.hold(child.id());
        prefer_for_out_of_memory(child.id());
        match Self::adopt(&mut child, place, command) {
            Ok(launched) => Ok(launched),
            Err(error) => {
                // It had no time to start more than members of its group.
                signal_group(child.id(), Signal::SIGKILL);
                crate::spawn::discard(&mut child);
                Err(explain(error))
            }
        }
    }

    fn adopt(
        child: &mut Child,
        place: Place,
        command: &Command,
    ) -> io::Result<(Self, OwnedFd, OwnedFd)> {
        let process = ProcessHandle::of_child(child.id())?;
        let watch = ExitWatch::new(&process)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let variable = format!("{CALL_VARIABLE}={}", command.tag).into_bytes();
        let mark = Mark { group: child.id(), variable };
        let shell = Self { process, watch, mark, place: Some(place), is_reaped: false };
        Ok((shell, stdout.into(), stderr.into()))
    }

    /// Resolves when the shell has ended. It is not reaped, so that its group keeps its number.
    pub(crate) async fn exited(&self) {
        if self.watch.exited().await.is_err() {
            // The runtime is shutting down, and with it whoever awaits this.
            std::future::pending::<()>().await;
        }
    }

    /// Notes that the shell has ended or was killed.
    pub(crate) fn note_end(&self) {
        if let Some(place) = &self.place {
            place.end();
        }
    }

    /// Asks everything of this command to end, stopped processes too. Says how many processes it found.
    pub(crate) fn terminate(&self) -> u32 {
        // Looked for first: a process may end by TERM before it is counted.
        let escaped = Lineage::now().map(|lineage| lineage.descendants(&self.roots()));
        let mut escaped = escaped.unwrap_or_default();
        escaped.retain(|one| stat(one.pid).is_ok_and(|stat| !stat.has_ended));
        let n_found = u32::try_from(escaped.len()).unwrap_or(u32::MAX);
        signal_group(self.mark.group, Signal::SIGTERM);
        escaped.retain(|one| stat(one.pid).is_ok_and(|stat| stat.group != self.mark.group));
        for member in &escaped {
            send(*member, Signal::SIGTERM);
        }
        signal_group(self.mark.group, Signal::SIGCONT);
        for member in escaped {
            send(member, Signal::SIGCONT);
        }
        n_found
    }

    /// Kills everything of this command at once. What it forks meanwhile is left to the sweep.
    pub(crate) fn kill(&self) {
        // Without /proc or a free descriptor only the group can be killed.
        let mut sweeper = Sweeper::new(Instant::now() + FREEZE_LIMIT);
        drop(sweeper.freeze_and_kill(&self.roots()));
        signal_group(self.mark.group, Signal::SIGKILL);
    }

    /// The shell, and the orphans of this command.
    fn roots(&self) -> Vec<u32> {
        let mut roots = self.strays();
        roots.push(self.process.pid());
        roots
    }

    /// Orphans of this command that still run.
    fn strays(&self) -> Vec<u32> {
        living_strays(in_flight::contains, |pid| self.mark.fits(pid)).unwrap_or_default()
    }

    pub(crate) fn has_strays(&self) -> bool {
        !self.strays().is_empty()
    }

    /// One step of ending what the shell left behind. Without knowledge of orphans the group is all
    /// that can be ended.
    pub(crate) fn sweep(&self, sweeper: &mut Sweeper) -> Left {
        let left = sweeper.step(in_flight::contains, |pid| self.mark.fits(pid));
        signal_group(self.mark.group, Signal::SIGKILL);
        left.unwrap_or(Left::Nothing)
    }

    /// Reaps the shell, which has ended. If it hangs in the kernel it counts as killed.
    ///
    /// # Errors
    /// Somebody else reaped it.
    pub(crate) fn reap(mut self) -> io::Result<(Exit, Usage)> {
        let exit = self.process.try_reap();
        self.is_reaped = !matches!(exit, Ok(None));
        let usage = self.process.usage().unwrap_or_default();
        Ok((exit?.unwrap_or(Exit::Signal(nix::libc::SIGKILL)), usage))
    }
}

impl Drop for Shell {
    /// Whoever ran the command lost interest, or it does not die: kill it now, reap it when it is dead.
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        self.kill();
        self.note_end();
        let abandoned = Abandoned {
            process: self.process.clone(),
            mark: self.mark.clone(),
            _place: self.place.take(),
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(abandoned.clean_up()));
        }
    }
}

/// A killed command that nobody waits for.
struct Abandoned {
    process: ProcessHandle,
    mark: Mark,
    /// Held until the shell is reaped.
    _place: Option<Place>,
}

impl Abandoned {
    async fn clean_up(self) {
        let until = Instant::now() + CLEANUP_LIMIT;
        let mut sweeper = Sweeper::new(until);
        let mut pause = FIRST_PAUSE;
        while Instant::now() < until {
            let left = sweeper.step(in_flight::contains, |pid| self.mark.fits(pid));
            // An error means that it is not there to be reaped any more.
            let is_gone = !matches!(self.process.try_reap(), Ok(None));
            if is_gone && left.unwrap_or(Left::Nothing) == Left::Nothing {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }
}

impl Drop for Abandoned {
    /// Without a runtime, or when it ends, there is only this one chance.
    fn drop(&mut self) {
        drop(self.process.try_reap());
    }
}

/// A group without processes is no error: that is what is wanted.
fn signal_group(group: u32, signal: Signal) {
    if let Ok(group) = i32::try_from(group) {
        let _signalled = killpg(Pid::from_raw(group), signal);
    }
}

/// Reaps orphans that ended while commands run, so that a long command cannot fill the process table.
pub(crate) fn reap_ended_orphans() {
    drop(living_strays(in_flight::contains, |_| false));
}

#[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
fn spawn(command: &Command) -> io::Result<Child> {
    std::process::Command::new(&command.program)
        .args(&command.args)
        .env_clear()
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .env(CALL_VARIABLE, &command.tag)
        .current_dir(&command.cwd)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

#[cfg(target_os = "linux")]
fn prefer_for_out_of_memory(pid: u32) {
    // A read-only /proc forbids it, and what the command starts before this line keeps the worker's
    // value; neither is the worse for it.
    drop(std::fs::write(format!("/proc/{pid}/oom_score_adj"), COMMAND_OOM_SCORE));
}

#[cfg(not(target_os = "linux"))]
fn prefer_for_out_of_memory(_: u32) {}
