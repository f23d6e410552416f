//! The processes of one command, from its launch until none is left, even if the caller drops it earlier. Used by
//! [`crate::run`].

use crate::cgroup::{CommandCgroup, MemoryGroup};
use crate::command::CALL_VARIABLE;
use crate::members::{MEMBER_VARIABLE, Members, is_by_list, signal as signal_listed};
use crate::output::OutputEnds;
use crate::pipe_holders::holders;
use crate::platform::ExitWatch;
use crate::process_tree::{ProcessTree, has_variable, stat};
use crate::shell_registry::{self, CommandsMemory, ShellSlot};
use crate::sweep::{FIRST_PAUSE, LONGEST_PAUSE, SweepProgress, Sweeper, living_strays, send};
use crate::{
    Command, Exit, Group, Holder, LaunchError, ProcessHandle, SpawnThread, TerminalMaster, Usage,
};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which a background task tries to reap a shell that was dropped or does not die. A process that hangs in
/// the kernel for longer stays a zombie until this process exits.
const CLEANUP_LIMIT: Duration = Duration::from_secs(60);

/// Maximum time in which one round of freezing and killing looks for newly forked processes.
const FREEZE_LIMIT: Duration = Duration::from_secs(1);

/// Maximum number of processes that are checked for holding an output pipe.
const MAX_SUSPECTS: usize = 256;

/// A running command: its shell, which leads its own process group, and its descendants.
///
/// INVARIANT: until `is_reaped` the kernel cannot reuse the shell's number, neither for a process nor for a group. So
/// signals by number are safe.
#[derive(Debug)]
pub(crate) struct Shell {
    process: ProcessHandle,
    watch: ExitWatch,
    mark: ProcessMarker,
    /// The command's processes, on systems that find them in the list of all processes.
    listed: Option<Members>,
    /// Terminal whose session the shell leads.
    terminal: Option<TerminalMaster>,
    /// Taken when the shell is abandoned.
    place: Option<ShellSlot>,
    is_reaped: bool,
}

/// Stdin of a command without a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// `/dev/null`.
    Nothing,
    /// A pipe that the caller writes to.
    Pipe,
}

/// A command, the write end of its stdin if stdin is a pipe, and the ends of its output.
pub(crate) type Launched = (Shell, Option<OwnedFd>, OutputEnds);

/// Identifies the processes of a command.
#[derive(Debug, Clone)]
struct ProcessMarker {
    group: u32,
    /// `NAME=VALUE` in the environment of every descendant that did not remove it.
    variable: Vec<u8>,
    /// Control group in which all processes of the command were started.
    leaf: Option<Arc<CommandCgroup>>,
}

impl ProcessMarker {
    /// Returns whether an orphan belongs to this command. Its control group decides, if it has one. An orphan without
    /// any mark goes to the last running command: only then no other command can own it. An orphan in the process
    /// group of another command is left to that command, which would count it too.
    fn fits(&self, orphan: u32) -> bool {
        if let Some(is_ours) = self.leaf.as_ref().and_then(|leaf| leaf.holds(orphan)) {
            return is_ours;
        }
        let group = stat(orphan).ok().map(|stat| stat.group);
        group == Some(self.group)
            || has_variable(orphan, &self.variable)
            || shell_registry::is_last(self.group) && !group.is_some_and(shell_registry::contains)
    }

    /// Kills the command's orphans, one step. The control group goes first: a process killed there cannot have forked
    /// since.
    fn sweep(&self, sweeper: &mut Sweeper) -> SweepProgress {
        let in_leaf = self.leaf.as_ref().map_or(Ok(0), |leaf| leaf.kill(sweeper.killed()));
        let left = sweeper.step(shell_registry::contains, |pid| self.fits(pid));
        match (in_leaf, left) {
            (Ok(0), Ok(SweepProgress::Nothing)) => SweepProgress::Nothing,
            (Err(_), Ok(SweepProgress::Nothing)) | (_, Err(_)) => SweepProgress::Unknown,
            _ => SweepProgress::Dying,
        }
    }
}

impl Shell {
    /// Starts the command with the given stdin.
    ///
    /// # Errors
    /// See [`LaunchError`]. No process is left running after an error.
    pub(crate) fn launch(command: &Command, input: Input) -> Result<Launched, LaunchError> {
        let explain = |error| LaunchError::explain(error, command);
        let place = ShellSlot::reserve()
            .ok_or_else(|| LaunchError::TooManyProcesses(io::ErrorKind::QuotaExceeded.into()))?;

        let by_list = is_by_list().then(Members::before_start);
        let listed = by_list.transpose().map_err(LaunchError::Io)?;
        // Without a control group, for example because no descriptor is left, the marks identify the processes.
        let group = command.group.as_ref().filter(|_| listed.is_none());
        let leaf = group.and_then(|group| group.leaf().ok()).map(Arc::new);

        let program = prepare(command, input, listed.as_ref()).map_err(explain)?;
        let (mut child, leaf) =
            launch_in(leaf, group, program, command.spawn_thread.as_deref()).map_err(explain)?;

        // Recorded at once, so that no sweep of another command takes the shell for an orphan.
        place.hold(child.id());
        command.limits.impose_on(child.id());
        match Self::adopt(&mut child, place, command, leaf) {
            Ok((mut shell, stdin, output)) => {
                shell.listed = listed.map(|listed| listed.of_group(shell.pid()));
                Ok((shell, stdin, output))
            }
            Err(error) => {
                // The child has not run long enough to start processes outside of its group.
                signal_group(child.id(), Signal::SIGKILL);
                crate::spawn::discard(&mut child);
                Err(explain(error))
            }
        }
    }

    fn adopt(
        child: &mut Child,
        place: ShellSlot,
        command: &Command,
        leaf: Option<Arc<CommandCgroup>>,
    ) -> io::Result<Launched> {
        let process = ProcessHandle::of_child(child.id())?;
        let watch = process.watch()?;
        let terminal = command.terminal.as_ref().map(|terminal| terminal.master().clone());
        let output = match (terminal.clone(), child.stdout.take(), child.stderr.take()) {
            (Some(master), ..) => OutputEnds::Terminal(master),
            (None, Some(stdout), Some(stderr)) => {
                OutputEnds::Pipes { stdout: stdout.into(), stderr: stderr.into() }
            }
            _ => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        if let Some(terminal) = &terminal {
            terminal.note_leader(child.id());
        }

        let variable = format!("{CALL_VARIABLE}={}", command.tag).into_bytes();
        let mark = ProcessMarker { group: child.id(), variable, leaf };
        let place = Some(place);
        let shell = Self { process, watch, mark, listed: None, terminal, place, is_reaped: false };
        Ok((shell, child.stdin.take().map(OwnedFd::from), output))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Resolves when the shell has exited. Does not reap it, so that its group keeps its number.
    pub(crate) async fn exited(&self) {
        if self.watch.exited().await.is_err() {
            // The runtime is shutting down and drops the awaiting task.
            std::future::pending::<()>().await;
        }
    }

    /// Records that the shell has exited or was killed.
    pub(crate) fn note_end(&self) {
        if let Some(place) = &self.place {
            place.end();
        }
    }

    /// Sends TERM to every process of this command, including stopped ones, or HUP if it has a terminal, as at the close
    /// of a window: shells ignore TERM there. Returns the number of processes found.
    pub(crate) fn terminate(&mut self) -> u32 {
        let request = if self.terminal.is_some() { Signal::SIGHUP } else { Signal::SIGTERM };
        if let Some(listed) = &mut self.listed {
            return terminate_listed(listed, self.mark.group, request);
        }
        // Count before the signal, because it may end a process before it is counted.
        let escaped = ProcessTree::now().map(|lineage| lineage.descendants(&self.roots()));
        let mut escaped = escaped.unwrap_or_default();
        escaped.retain(|member| stat(member.pid).is_ok_and(|stat| !stat.has_ended));

        let n_found = u32::try_from(escaped.len()).unwrap_or(u32::MAX);
        // The group as a whole gets the signal in one call. Others get theirs one by one, and none
        // gets it twice.
        signal_group(self.mark.group, request);
        escaped.retain(|member| stat(member.pid).is_ok_and(|stat| stat.group != self.mark.group));
        for member in &escaped {
            send(*member, request);
        }

        // A stopped process gets the signal only when it continues.
        signal_group(self.mark.group, Signal::SIGCONT);
        for member in escaped {
            send(member, Signal::SIGCONT);
        }
        n_found
    }

    /// Kills every process of this command at once. The sweep kills the processes that are forked in between.
    pub(crate) fn kill(&mut self) {
        // Any of these steps can fail, for example without a free descriptor. The kill of the group needs nothing.
        let mut sweeper = Sweeper::new(Instant::now() + FREEZE_LIMIT);
        if let Some(listed) = &mut self.listed {
            listed.kill(|_| true, sweeper.killed(), Instant::now() + FREEZE_LIMIT).ok();
            signal_group(self.mark.group, Signal::SIGKILL);
            return;
        }

        if let Some(leaf) = &self.mark.leaf {
            leaf.kill(sweeper.killed()).ok();
        }
        sweeper.freeze_and_kill(&self.roots()).ok();
        signal_group(self.mark.group, Signal::SIGKILL);
    }

    /// Returns the shell and the orphans of this command.
    fn roots(&self) -> Vec<u32> {
        let mut roots = self.strays();
        roots.push(self.process.pid());
        roots
    }

    /// Returns the running orphans of this command.
    fn strays(&self) -> Vec<u32> {
        living_strays(shell_registry::contains, |pid| self.mark.fits(pid)).unwrap_or_default()
    }

    pub(crate) fn has_strays(&mut self) -> bool {
        match &mut self.listed {
            Some(listed) => listed.look_beside_shell().is_ok_and(|processes| !processes.is_empty()),
            None => !self.strays().is_empty(),
        }
    }

    /// Returns whether an empty list of processes shows that none is left. In the list of all processes one may be
    /// missing that hides.
    pub(crate) fn knows_all(&self) -> bool {
        self.listed.is_none()
    }

    /// Kills what the shell left behind, one step. If orphans cannot be listed, only the process group is killed.
    pub(crate) fn sweep(&mut self, sweeper: &mut Sweeper) -> SweepProgress {
        let left = sweep(&self.mark, self.listed.as_mut(), sweeper);
        signal_group(self.mark.group, Signal::SIGKILL);
        left
    }

    /// Returns the known running processes of this command: descendants of the shell, its orphans, and the processes
    /// in its control group. Stops searching at about `limit`.
    pub(crate) fn processes(&mut self, limit: usize) -> BTreeSet<u32> {
        if let Some(listed) = &mut self.listed {
            let processes = listed.look().unwrap_or_default();
            return processes.into_iter().map(|process| process.pid).take(limit).collect();
        }

        let lineage = ProcessTree::now();
        let members = lineage.map(|lineage| lineage.descendants_up_to(&self.roots(), limit));
        let mut processes: BTreeSet<u32> =
            members.unwrap_or_default().into_iter().map(|member| member.pid).collect();

        if let Some(leaf) = &self.mark.leaf {
            processes.extend(leaf.processes());
        }

        processes.retain(|pid| stat(*pid).is_ok_and(|stat| !stat.has_ended));
        processes
    }

    /// Returns true if the command has more than `limit` processes and its control group does not limit them.
    pub(crate) fn exceeds(&mut self, limit: u32) -> bool {
        let is_counted = self.mark.leaf.as_ref().is_some_and(|leaf| leaf.is_counted());
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        !is_counted && limit < self.processes(limit.saturating_add(1)).len()
    }

    /// Records the memory of this command in KiB. Returns that of all commands of this process, as last recorded.
    pub(crate) fn note_memory(&self, kb: u64) -> CommandsMemory {
        self.place.as_ref().map(|place| place.note_memory(kb)).unwrap_or_default()
    }

    /// Returns the group that limits the memory of this command. `None` if the kernel does not limit it, or if the
    /// command could not start in its control group.
    pub(crate) fn memory_group(&self) -> Option<&MemoryGroup> {
        self.mark.leaf.as_ref().and_then(|leaf| leaf.memory())
    }

    /// Returns true if this process has no other command, not even one that has just ended.
    pub(crate) fn is_only(&self) -> bool {
        shell_registry::is_only(self.pid())
    }

    /// Returns the processes of this command that hold one of these pipes.
    pub(crate) fn holders(&mut self, pipes: &[u64]) -> Vec<Holder> {
        holders(self.processes(MAX_SUSPECTS), pipes)
    }

    /// Reaps the shell, which has exited. A shell that hangs in the kernel counts as killed.
    ///
    /// # Errors
    /// The shell was reaped elsewhere.
    pub(crate) fn reap(mut self) -> io::Result<(Exit, Usage)> {
        self.leave_terminal();
        let exit = self.process.try_reap();
        self.is_reaped = !matches!(exit, Ok(None));
        let usage = self.process.usage().unwrap_or_default();
        Ok((exit?.unwrap_or(Exit::Signal(nix::libc::SIGKILL)), usage))
    }

    /// Ends signals to the foreground of the terminal, before the shell's number can be reused.
    fn leave_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.note_no_leader();
        }
    }
}

impl Drop for Shell {
    /// The caller dropped the command, or the shell does not die. Kills it now and reaps it in the background.
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        self.kill();
        self.leave_terminal();
        self.note_end();

        // Without a runtime, dropping the value reaps the shell once.
        let abandoned = AbandonedShell {
            process: self.process.clone(),
            mark: self.mark.clone(),
            listed: self.listed.take(),
            _place: self.place.take(),
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(abandoned.clean_up()));
        }
    }
}

/// A killed command whose caller is gone.
struct AbandonedShell {
    process: ProcessHandle,
    mark: ProcessMarker,
    listed: Option<Members>,
    /// Held until the shell is reaped.
    _place: Option<ShellSlot>,
}

impl AbandonedShell {
    async fn clean_up(mut self) {
        let until = Instant::now() + CLEANUP_LIMIT;
        let mut sweeper = Sweeper::new(until);
        let mut pause = FIRST_PAUSE;
        while Instant::now() < until {
            // Before the sweep: a shell that dies after it leaves children that the sweep has not seen. An error means that the
            // shell was already reaped.
            let is_gone = !matches!(self.process.try_reap(), Ok(None));
            if let Some(listed) = self.listed.as_mut().filter(|_| is_gone) {
                listed.note_reaped();
            }

            let left = sweep(&self.mark, self.listed.as_mut(), &mut sweeper);
            if is_gone && left != SweepProgress::Dying {
                return;
            }

            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }
}

impl Drop for AbandonedShell {
    /// Without a runtime, or during its shutdown, this is the only chance to reap the shell.
    fn drop(&mut self) {
        self.process.try_reap().ok();
    }
}

/// Kills what a shell left behind, one step.
fn sweep(
    mark: &ProcessMarker,
    listed: Option<&mut Members>,
    sweeper: &mut Sweeper,
) -> SweepProgress {
    let Some(listed) = listed else { return mark.sweep(sweeper) };
    let until = Instant::now() + FREEZE_LIMIT;
    let left = listed.sweep(sweeper.killed(), until);
    // Where they become children of this process, only this process can reap them.
    reap_ended_orphans();
    left
}

/// Sends the signal to every process of a command, including stopped ones. Returns the number of processes found.
fn terminate_listed(listed: &mut Members, group: u32, request: Signal) -> u32 {
    let mut processes = listed.look().unwrap_or_default();
    let n_found = u32::try_from(processes.len()).unwrap_or(u32::MAX);

    processes.retain(|process| process.group != group);
    for signal in [request, Signal::SIGCONT] {
        signal_group(group, signal);
        for process in &processes {
            signal_listed(process, signal);
        }
    }
    n_found
}

/// Signals a process group. A group without processes is not an error.
fn signal_group(group: u32, signal: Signal) {
    if let Ok(group) = i32::try_from(group) {
        killpg(Pid::from_raw(group), signal).ok();
    }
}

/// Reaps orphans that exited while commands run, so that a long command cannot fill the process table.
pub(crate) fn reap_ended_orphans() {
    // Without a list of the children, a later call reaps them.
    living_strays(shell_registry::contains, |_| false).ok();
}

/// Starts the command, on the spawn thread if the worker has one.
fn launch_in(
    leaf: Option<Arc<CommandCgroup>>,
    group: Option<&Arc<Group>>,
    program: std::process::Command,
    spawn_thread: Option<&SpawnThread>,
) -> io::Result<(Child, Option<Arc<CommandCgroup>>)> {
    let group = group.cloned();
    match spawn_thread {
        Some(thread) => thread.run(move || spawn_in(leaf, group.as_deref(), program))?,
        None => spawn_in(leaf, group.as_deref(), program),
    }
}

/// Starts the command from inside its control group, so that no process of it ever ran outside. If this thread cannot
/// enter that group, starts it in the session's group, which at least counts it, or in neither.
fn spawn_in(
    leaf: Option<Arc<CommandCgroup>>,
    group: Option<&Group>,
    mut program: std::process::Command,
) -> io::Result<(Child, Option<Arc<CommandCgroup>>)> {
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
fn prepare(
    command: &Command,
    input: Input,
    listed: Option<&Members>,
) -> io::Result<std::process::Command> {
    let mut program = std::process::Command::new(&command.program);
    program
        .args(&command.args)
        .env_clear()
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .env(CALL_VARIABLE, &command.tag)
        .envs(listed.map(|listed| (MEMBER_VARIABLE, listed.value())))
        .current_dir(&command.cwd);

    if let Some(terminal) = &command.terminal {
        terminal.attach(&mut program)?;
        return Ok(program);
    }

    let stdin = match input {
        Input::Nothing => Stdio::null(),
        Input::Pipe => Stdio::piped(),
    };
    program.process_group(0).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(program)
}
