//! The process of one command, with all that it started: from its launch until nothing of it is left,
//! also when the caller loses interest in between. Used by [`crate::run`].

use crate::cgroup::Leaf;
use crate::command::CALL_VARIABLE;
use crate::handle::ExitWatch;
use crate::holders::holders;
use crate::in_flight::{self, Place};
use crate::lineage::{Lineage, has_variable, stat};
use crate::sweep::{FIRST_PAUSE, LONGEST_PAUSE, Left, Sweeper, living_strays, send};
use crate::{Command, Exit, Group, Holder, LaunchError, ProcessHandle, Usage};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a background task looks after a shell that was abandoned or does not die. What hangs in
/// the kernel for longer stays our zombie until this process ends.
const CLEANUP_LIMIT: Duration = Duration::from_secs(60);

/// How long one round of freezing and killing may look for newly forked processes.
const FREEZE_LIMIT: Duration = Duration::from_secs(1);

/// Processes that are asked whether they hold an output.
const MAX_SUSPECTS: usize = 256;

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

/// What a command reads on stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// `/dev/null`.
    Nothing,
    /// A pipe of ours.
    Pipe,
}

/// A command, the write end of its stdin if that is a pipe, and the read ends of its stdout and stderr.
pub(crate) type Launched = (Shell, Option<OwnedFd>, OwnedFd, OwnedFd);

/// By what a command's processes are recognised.
#[derive(Debug, Clone)]
struct Mark {
    group: u32,
    /// `NAME=VALUE` in the environment of every descendant that did not remove it.
    variable: Vec<u8>,
    /// The control group in which all of it was born.
    leaf: Option<Arc<Leaf>>,
}

impl Mark {
    /// Whether an orphan of ours is this command's. Its control group says so, if it has one. One without
    /// any mark goes to the last command that runs: only then it is certain that nobody else misses it. What
    /// another command is just ending is left to that one, which would count it too.
    fn fits(&self, orphan: u32) -> bool {
        if let Some(is_ours) = self.leaf.as_ref().and_then(|leaf| leaf.holds(orphan)) {
            return is_ours;
        }
        let group = stat(orphan).ok().map(|stat| stat.group);
        group == Some(self.group)
            || has_variable(orphan, &self.variable)
            || in_flight::is_last(self.group) && !group.is_some_and(in_flight::contains)
    }

    /// One step of ending the command's orphans, for which the leaf is asked first: what is killed there
    /// cannot have forked meanwhile.
    fn sweep(&self, sweeper: &mut Sweeper) -> Left {
        let in_leaf = self.leaf.as_ref().map_or(Ok(0), |leaf| leaf.kill(sweeper.killed()));
        let left = sweeper.step(in_flight::contains, |pid| self.fits(pid));
        match (in_leaf, left) {
            (Ok(0), Ok(Left::Nothing)) => Left::Nothing,
            (Err(_), Ok(Left::Nothing)) | (_, Err(_)) => Left::Unknown,
            _ => Left::Dying,
        }
    }
}

impl Shell {
    /// Starts the command. Returns the read ends of its stdout and stderr.
    ///
    /// # Errors
    /// See [`LaunchError`]. Nothing is left running then.
    pub(crate) fn launch(command: &Command) -> Result<(Self, OwnedFd, OwnedFd), LaunchError> {
        let (shell, _no_input, stdout, stderr) = Self::launch_with(command, Input::Nothing)?;
        Ok((shell, stdout, stderr))
    }

    /// The same, with something to read on stdin, whose write end is the second value.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn launch_with(command: &Command, input: Input) -> Result<Launched, LaunchError> {
        let (program, cwd) = (Path::new(&command.program), &command.cwd);
        let explain = |error| LaunchError::explain(error, program, cwd);
        let place = Place::reserve()
            .ok_or_else(|| LaunchError::TooManyProcesses(io::ErrorKind::QuotaExceeded.into()))?;
        // Without a leaf, for lack of descriptors for example, the marks serve.
        let leaf = command.group.as_ref().and_then(|group| group.leaf().ok()).map(Arc::new);
        let (mut child, leaf) = launch_in(leaf, command, input).map_err(explain)?;
        place.hold(child.id());
        command.limits.impose_on(child.id());
        match Self::adopt(&mut child, place, command, leaf) {
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
        leaf: Option<Arc<Leaf>>,
    ) -> io::Result<Launched> {
        let process = ProcessHandle::of_child(child.id())?;
        let watch = ExitWatch::new(&process)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let variable = format!("{CALL_VARIABLE}={}", command.tag).into_bytes();
        let mark = Mark { group: child.id(), variable, leaf };
        let shell = Self { process, watch, mark, place: Some(place), is_reaped: false };
        Ok((shell, child.stdin.take().map(OwnedFd::from), stdout.into(), stderr.into()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
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
        if let Some(leaf) = &self.mark.leaf {
            drop(leaf.kill(sweeper.killed()));
        }
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
        let left = self.mark.sweep(sweeper);
        signal_group(self.mark.group, Signal::SIGKILL);
        left
    }

    /// The processes of this command that run, as far as they are known: those below the shell and its
    /// orphans, and those of the leaf. At most about `limit` are looked for.
    pub(crate) fn processes(&self, limit: usize) -> BTreeSet<u32> {
        let lineage = Lineage::now();
        let members = lineage.map(|lineage| lineage.descendants_up_to(&self.roots(), limit));
        let mut found: BTreeSet<u32> =
            members.unwrap_or_default().into_iter().map(|member| member.pid).collect();
        if let Some(leaf) = &self.mark.leaf {
            found.extend(leaf.processes());
        }
        found.retain(|pid| stat(*pid).is_ok_and(|stat| !stat.has_ended));
        found
    }

    /// Whether the command has more than `limit` processes and nobody else keeps it from that.
    pub(crate) fn exceeds(&self, limit: u32) -> bool {
        let is_counted = self.mark.leaf.as_ref().is_some_and(|leaf| leaf.is_counted());
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        !is_counted && limit < self.processes(limit.saturating_add(1)).len()
    }

    /// Which processes of this command hold one of these pipes.
    pub(crate) fn holders(&self, pipes: &[u64]) -> Vec<Holder> {
        holders(self.processes(MAX_SUSPECTS), pipes)
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
            let left = self.mark.sweep(&mut sweeper);
            // An error means that it is not there to be reaped any more.
            let is_gone = !matches!(self.process.try_reap(), Ok(None));
            if is_gone && left != Left::Dying {
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

/// Starts the command, on the launching thread if the worker has one.
fn launch_in(
    leaf: Option<Arc<Leaf>>,
    command: &Command,
    input: Input,
) -> io::Result<(Child, Option<Arc<Leaf>>)> {
    let (program, group) = (prepare(command, input), command.group.clone());
    match &command.spawn_thread {
        Some(thread) => thread.run(move || spawn_in(leaf, group.as_deref(), program))?,
        None => spawn_in(leaf, group.as_deref(), program),
    }
}

/// Starts the command from within its leaf, so that nothing of it was ever elsewhere. If it cannot be entered
/// the command is started outside, where it is at least counted if that can be had.
fn spawn_in(
    leaf: Option<Arc<Leaf>>,
    group: Option<&Group>,
    mut program: std::process::Command,
) -> io::Result<(Child, Option<Arc<Leaf>>)> {
    let started = leaf.as_ref().and_then(|leaf| {
        let _inside = leaf.enter().ok()?;
        Some(program.spawn())
    });
    if let Some(child) = started {
        return Ok((child?, leaf));
    }
    let _inside = group.and_then(|group| group.enter().ok());
    Ok((program.spawn()?, None))
}

#[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
fn prepare(command: &Command, input: Input) -> std::process::Command {
    let stdin = match input {
        Input::Nothing => Stdio::null(),
        Input::Pipe => Stdio::piped(),
    };
    let mut program = std::process::Command::new(&command.program);
    program
        .args(&command.args)
        .env_clear()
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .env(CALL_VARIABLE, &command.tag)
        .current_dir(&command.cwd)
        .process_group(0)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    program
}
