//! Finds and ends the processes of one command with what macOS has: a list of processes with their parents, groups and
//! start times, and the environments of this user's processes. There an orphan becomes a child of process 1, so descent
//! does not find it. Used by [`crate::shell`] and for the commands of a dead worker; on Linux only in tests of tier M.
//!
//! A process is a member if one of these holds:
//! - it is in the process group of the command, whose number belongs to the shell until that is reaped;
//! - the command's entry is in its environment;
//! - its parent is a member;
//! - it was a member in an earlier look.
//!
//! Processes of other users, and those that existed before the command, never are. A process that removed the entry from
//! its environment and whose parents exited before any look is not found.

use crate::pid::to_pid;
use crate::platform::{HAS_PROC, has_entry, process_facts, processes, signal_if};
use crate::process_facts::ProcessFacts;
use crate::sweep::SweepProgress;
use crate::{ProcessHandle, SweepReport};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Variable whose value identifies a command among all commands of the machine: `OWNER.WORKER.STARTED.NUMBER.`, with the
/// daemon's state directory (`DEVICE:INODE`), and the process id and start time of the process that runs the command.
pub(crate) const MEMBER_VARIABLE: &str = "QUACKD_COMMAND";

/// Maximum number of environments that one scan reads. The next scan reads the rest.
const MAX_READS: usize = 4096;

/// Maximum number of passes that look for processes forked during earlier passes. Each pass stops all that it finds.
const MAX_PASSES: usize = 64;

/// Pause between two checks of killed processes.
const PAUSE: Duration = Duration::from_millis(2);

static BY_LIST: AtomicBool = AtomicBool::new(false);

/// The state directory of this process's daemon, as commands carry it.
static OWNER: OnceLock<String> = OnceLock::new();

/// Marks the commands of this process with the daemon's state directory, so that the next daemon of that directory can end
/// them and no other daemon does. Call it before the first command and before [`end_commands_blocking`]. A second call
/// changes nothing.
///
/// # Errors
/// The directory cannot be read.
pub fn mark_commands_with(state_dir: &Path) -> io::Result<()> {
    let found = state_dir.metadata()?;
    OWNER.get_or_init(|| format!("{:x}:{:x}", found.dev(), found.ino()));
    Ok(())
}

/// Returns the first part of the mark. A process without a daemon, as in tests, has none.
fn owner() -> &'static str {
    OWNER.get().map_or("-", String::as_str)
}

/// Lets this process find the processes of its commands as on macOS, without control groups and adoption: for tests of
/// tier M on Linux. Call it before the first command.
pub fn find_processes_by_list() {
    BY_LIST.store(true, Ordering::SeqCst);
}

/// Returns true if the processes of commands are found in the list of processes.
pub(crate) fn is_by_list() -> bool {
    !HAS_PROC || BY_LIST.load(Ordering::SeqCst)
}

/// The processes of one command, or of all commands of one worker.
#[derive(Debug, Clone)]
pub(crate) struct Members {
    /// Process group of the command. `None` before the start, and for the commands of a worker.
    group: Option<u32>,
    /// `NAME=VALUE` in the environment of members, or the begin of it.
    entry: Vec<u8>,
    user: u32,
    /// Start times of the processes that earlier looks found, and whether they are members.
    seen: BTreeMap<u32, (u64, bool)>,
}

impl Members {
    /// Describes the processes of a command that is about to be started. Processes that exist now
    /// are never members.
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub(crate) fn before_start() -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let this = process_facts(std::process::id()).ok_or(io::ErrorKind::NotFound)?;
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let mut members =
            Self::with_entry(&format!("{}.{}.{}.{number}.", owner(), this.pid, this.started));

        let others =
            processes()?.into_values().map(|process| (process.pid, (process.started, false)));
        members.seen.extend(others);
        Ok(members)
    }

    /// Describes the processes of the commands of a worker that has exited.
    pub(crate) fn of_worker(pid: u32, started: u64) -> Self {
        Self::with_entry(&format!("{}.{pid}.{started}.", owner()))
    }

    /// Describes the processes of the commands of all workers of this process's daemon.
    fn of_daemon() -> Self {
        Self::with_entry(&format!("{}.", owner()))
    }

    fn with_entry(value: &str) -> Self {
        Self {
            group: None,
            entry: format!("{MEMBER_VARIABLE}={value}").into_bytes(),
            user: rustix::process::getuid().as_raw(),
            seen: BTreeMap::new(),
        }
    }

    /// Returns the value of [`MEMBER_VARIABLE`] for the command.
    pub(crate) fn value(&self) -> String {
        let value = self.entry.get(MEMBER_VARIABLE.len().saturating_add(1)..);
        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
    }

    /// Sets the process group of the started command.
    pub(crate) fn of_group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Records that the shell was reaped: the number of its group may belong to other processes
    /// from now on.
    pub(crate) fn note_reaped(&mut self) {
        self.group = None;
    }

    /// Returns the running members without the shell.
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub(crate) fn look_beside_shell(&mut self) -> io::Result<Vec<ProcessFacts>> {
        let mut found = self.look()?;
        found.retain(|process| Some(process.pid) != self.group);
        Ok(found)
    }

    /// Returns the running members.
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub(crate) fn look(&mut self) -> io::Result<Vec<ProcessFacts>> {
        let all = processes()?;
        self.seen
            // A number that another process has now is unknown again.
            .retain(|pid, (started, _)| all.get(pid).is_some_and(|now| now.started == *started));

        let (mut members, mut unknown) = (Vec::new(), BTreeMap::new());
        let mut reads = MAX_READS;

        for (&pid, process) in &all {
            match self.is_member(process, &mut reads) {
                Some(true) => members.push(*process),
                // Also if its parent is a member: a stray command can start a daemon.
                _ if pid == std::process::id() => (),
                Some(false) if self.seen.contains_key(&pid) || process.user != self.user => (),
                is_member => {
                    unknown.insert(pid, (*process, is_member.is_some()));
                }
            }
        }

        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (process, _) in unknown.values() {
            children.entry(process.parent).or_default().push(process.pid);
        }

        let mut next = 0;
        while let Some(parent) = members.get(next).map(|member| member.pid) {
            next += 1;
            let found = children.remove(&parent).unwrap_or_default();
            members.extend(
                found.iter().filter_map(|pid| unknown.remove(pid)).map(|(process, _)| process),
            );
        }

        let others = unknown.into_values().filter(|(_, is_known)| *is_known);
        self.seen.extend(others.map(|(process, _)| (process.pid, (process.started, false))));
        self.seen.extend(members.iter().map(|process| (process.pid, (process.started, true))));

        members.retain(|process| !process.has_ended);
        Ok(members)
    }

    /// Returns whether a process is a member by itself. `None` if that cannot be decided yet.
    fn is_member(&self, process: &ProcessFacts, reads: &mut usize) -> Option<bool> {
        if let Some((_, is_member)) = self.seen.get(&process.pid) {
            return Some(*is_member);
        }
        if process.user != self.user || process.pid <= 1 || process.pid == std::process::id() {
            return Some(false);
        }
        if self.group == Some(process.group) {
            return Some(true);
        }
        *reads = reads.checked_sub(1)?;
        has_entry(process.pid, &self.entry)
    }

    /// Kills the running members that are `meant`, and adds those that were killed to `killed`. Stops them all first, in
    /// passes until one finds no new process: a stopped process cannot fork.
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub(crate) fn kill(
        &mut self,
        meant: impl Fn(&ProcessFacts) -> bool,
        killed: &mut BTreeSet<u32>,
        until: Instant,
    ) -> io::Result<()> {
        let mut stopped: BTreeMap<u32, ProcessFacts> = BTreeMap::new();
        for _ in 0..MAX_PASSES {
            let mut found = match self.look() {
                Ok(found) => found,
                Err(error) if stopped.is_empty() => return Err(error),
                // The stopped processes must not stay stopped.
                Err(_) => break,
            };
            found.retain(|process| {
                meant(process)
                    && stopped.get(&process.pid).is_none_or(|was| was.started != process.started)
            });
            if found.is_empty() {
                break;
            }
            for process in found {
                signal(&process, Signal::SIGSTOP);
                stopped.insert(process.pid, process);
            }
            if until <= Instant::now() {
                break;
            }
        }

        // After all are stopped, so that none can fork while others are killed.
        for process in stopped.values() {
            if signal(process, Signal::SIGKILL) {
                killed.insert(process.pid);
            }
        }
        Ok(())
    }

    /// Kills what the shell left behind, one step. Never waits.
    pub(crate) fn sweep(&mut self, killed: &mut BTreeSet<u32>, until: Instant) -> SweepProgress {
        let shell = self.group;
        let is_left = |process: &ProcessFacts| Some(process.pid) != shell;
        match self.look_beside_shell().map(|found| found.is_empty()) {
            Ok(true) => SweepProgress::Nothing,
            Ok(false) if self.kill(is_left, killed, until).is_ok() => SweepProgress::Dying,
            _ => SweepProgress::Unknown,
        }
    }

    /// Kills all members. Blocks for at most `limit` plus one pass. A process that removed the entry is not found.
    pub(crate) fn end_blocking(mut self, limit: Duration) -> SweepReport {
        let (until, mut killed) = (Instant::now() + limit, BTreeSet::new());
        let mut left = self.sweep(&mut killed, until);
        while left == SweepProgress::Dying && Instant::now() < until {
            #[expect(clippy::disallowed_methods, reason = "a blocking function, and it says so")]
            std::thread::sleep(PAUSE);
            left = self.sweep(&mut killed, until);
        }

        let verified_empty = left == SweepProgress::Nothing;
        SweepReport { killed: u32::try_from(killed.len()).unwrap_or(u32::MAX), verified_empty }
    }
}

/// Kills the running commands of a worker that has exited, on macOS. `None` on Linux, where nothing is killed: a monitor
/// does that, or the supervisor, which orphans have as their parent ([`crate::sweep_strays_blocking`]). Also `None` if the
/// worker exited before its start time was read, so that it ran no command.
///
/// Blocks for at most `limit` plus one pass over the processes. The report is not verified if the processes cannot be
/// listed or the limit passed.
#[must_use]
pub fn end_commands_blocking(worker: &ProcessHandle, limit: Duration) -> Option<SweepReport> {
    let started = worker.identity().started()?;
    Some(Members::of_worker(worker.pid(), started).end_blocking(limit))
}

/// Kills the commands that an earlier daemon of the directory of [`mark_commands_with`] left, whose workers died with it.
/// Call it before this daemon has a worker. Does nothing where commands are not found by list, unless `in_tests_of_macos`.
///
/// Blocks for at most `limit` plus one pass over the processes. The report is not verified if the processes cannot be
/// listed or the limit passed.
#[must_use]
pub fn end_left_commands_blocking(limit: Duration, in_tests_of_macos: bool) -> Option<SweepReport> {
    let is_by_list = is_by_list() || in_tests_of_macos;
    (is_by_list && OWNER.get().is_some()).then(|| Members::of_daemon().end_blocking(limit))
}

/// Signals a process if its number, start time and user are still those of the process that was found. Returns true if it
/// was running and the signal was sent.
pub(crate) fn signal(process: &ProcessFacts, signal: Signal) -> bool {
    let Ok(pid) = to_pid(process.pid) else { return false };
    signal_if(pid, signal, || {
        process_facts(process.pid).is_some_and(|now| {
            now.started == process.started && now.user == process.user && !now.has_ended
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// Starts a program that sleeps, with an entry in its environment.
    #[expect(clippy::disallowed_methods, reason = "a child to look at")]
    fn sleeper(value: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("600").env(MEMBER_VARIABLE, value).stdin(Stdio::null());
        command.spawn().unwrap()
    }

    /// Value of a worker that does not exist.
    fn value(number: u32) -> (u64, String) {
        let started = u64::from(number) << 32;
        (started, format!("{}.{}.{started}.0.", owner(), std::process::id()))
    }

    fn pids(found: &[ProcessFacts]) -> Vec<u32> {
        found.iter().map(|one| one.pid).collect()
    }

    #[test]
    fn the_commands_of_a_dead_worker_are_found_by_their_environment_and_ended() {
        let (started, mine) = value(1);
        let mut children = [sleeper(&mine), sleeper(&mine), sleeper(&value(2).1)];
        let members = Members::of_worker(std::process::id(), started);
        let found = pids(&members.clone().look().unwrap());
        assert_eq!(found.len(), 2, "{found:?}");
        let report = members.end_blocking(Duration::from_secs(60));
        assert_eq!(report, SweepReport { killed: 2, verified_empty: true });
        let [first, second, other] = &mut children;
        for child in [first, second] {
            assert!(!child.wait().unwrap().success());
        }
        assert!(other.try_wait().unwrap().is_none(), "another worker's");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn this_process_is_never_a_member_even_if_its_parent_is() {
        let parent = std::os::unix::process::parent_id();
        let facts = process_facts(parent).unwrap();
        let mut members = Members::of_worker(std::process::id(), 5);
        members.seen.insert(parent, (facts.started, true));
        let found = pids(&members.look().unwrap());
        assert!(found.contains(&parent) && !found.contains(&std::process::id()), "{found:?}");
    }

    #[test]
    fn a_process_with_another_start_time_or_user_is_not_signalled() {
        let (_, mine) = value(3);
        let mut child = sleeper(&mine);
        let facts = process_facts(child.id()).unwrap();
        let later = ProcessFacts { started: facts.started + 1, ..facts };
        let foreign = ProcessFacts { user: facts.user + 1, ..facts };
        assert!(!signal(&later, Signal::SIGKILL) && !signal(&foreign, Signal::SIGKILL));
        assert!(child.try_wait().unwrap().is_none());
        assert!(signal(&facts, Signal::SIGKILL));
        child.wait().unwrap();
        assert!(!signal(&facts, Signal::SIGKILL), "gone");
    }

    #[test]
    fn a_number_that_was_used_again_is_no_member_and_neither_is_what_existed_before() {
        let (started, mine) = value(4);
        let mut old = sleeper(&mine);
        let facts = process_facts(old.id()).unwrap();
        let mut members = Members::of_worker(std::process::id(), started + 1);
        members.seen.insert(old.id(), (facts.started + 1, true));
        assert_eq!(members.look().unwrap(), []);

        let mut members = Members::before_start().unwrap();
        assert_eq!(members.seen.get(&old.id()), Some(&(facts.started, false)));
        let mut new = sleeper(&members.value());
        assert_eq!(pids(&members.look().unwrap()), [new.id()]);
        for child in [&mut old, &mut new] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
