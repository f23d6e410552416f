//! One background job: starts the command, collects its output, and keeps its result.

use super::log::{OutputRange, RecentOutput, count};
use crate::bash_text::ceiling_kind;
use crate::denials::{DenialDetector, Found};
use crate::terminals::{Terminal, TerminalSetup, recording_path};
use quackd_process::{
    Captured, Command, EndedBy, Exit, Finished, LaunchError, Live, SpillTarget, Spilled,
    TerminalMaster, TerminalSlave,
};
use quackd_protocol::denial::Denial;
use quackd_protocol::limits::{
    DEADLINE_GRACE, ENDED_JOB_MEMORY_BYTES, MAX_JOB_COMMAND_BYTES, MAX_SPILL_BYTES,
};
use quackd_protocol::mask::cut_at_word;
use quackd_protocol::terminal::TerminalExit;
use quackd_protocol::worker::{EndedJob, JobInfo};
use quackd_terminal::FEED_BYTES;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

/// Prefix and suffix of the job number in file names.
pub(super) const FILE_PREFIX: &str = "job-";
pub(super) const FILE_SUFFIX: &str = ".log";

/// Prefix of the number in the id of a job with a terminal. Ids of others begin like their files.
pub(super) const TERMINAL_PREFIX: &str = "term-";

/// Size of the buffer between reads, in bytes: the size of a pipe. It is emptied after every read.
const LIVE_ROOM: usize = 64 * 1024;

/// A background job.
#[derive(Debug)]
pub(crate) struct BackgroundJob {
    pub(crate) id: String,
    /// First line of the command.
    pub(crate) command: String,
    pub(crate) started: Instant,
    /// Maximum run time.
    pub(crate) limit: Duration,
    /// File with the complete output.
    pub(crate) file: PathBuf,
    /// Terminal of the command, if it has one.
    pub(crate) terminal: Option<Arc<Terminal>>,
    live: Live,
    cancel: CancellationToken,
    /// Knows the denials until the job has ended.
    finder: Weak<DenialDetector>,
    state: watch::Sender<JobState>,
}

#[derive(Debug, Default)]
struct JobState {
    recent: RecentOutput,
    end: Option<JobEnd>,
}

/// The end of a job.
#[derive(Debug, Clone)]
pub(crate) struct JobEnd {
    pub(crate) at: Instant,
    /// Result of the command, without its output. `None` if it is unknown.
    pub(crate) finished: Option<Finished>,
    /// Likely denials, until they are reported.
    denials: Vec<Denial>,
    /// Explanation of the denials for the answer text.
    pub(crate) denied: Option<String>,
    /// Changes to watched files, until they are reported.
    audit: Vec<String>,
    /// Report of the end for the supervisor, until it is sent.
    report: Option<Box<EndedJob>>,
}

/// Snapshot of a job.
#[derive(Debug, Clone)]
pub(crate) struct JobSnapshot {
    /// Position at which the requested part of the output begins.
    pub(crate) position: u64,
    /// Output in memory from that position on.
    pub(crate) in_memory: OutputRange,
    pub(crate) total: u64,
    pub(crate) end: Option<JobEnd>,
}

/// Future of a running command.
pub(super) type Running =
    Pin<Box<dyn Future<Output = Result<Finished, LaunchError>> + Send + 'static>>;

impl BackgroundJob {
    /// Starts the job's command, on a terminal if there is one.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(super) fn launch(
        number: u64,
        line: &str,
        run_dir: &Path,
        command: Command,
        finder: &Arc<DenialDetector>,
        opened: Option<(TerminalSetup, (TerminalMaster, TerminalSlave))>,
    ) -> Result<(Self, Running), LaunchError> {
        let (terminal, slave) = match opened {
            Some((setup, (master, slave))) => {
                let terminal = Terminal::new(master, setup, recording_path(run_dir, number));
                (Some(Arc::new(terminal)), Some(Arc::new(slave)))
            }
            None => (None, None),
        };

        let name = format!("{FILE_PREFIX}{number}{FILE_SUFFIX}");
        let prefix = if terminal.is_some() { TERMINAL_PREFIX } else { FILE_PREFIX };
        let job = Self {
            id: format!("{prefix}{number}"),
            command: first_line(line),
            started: Instant::now(),
            limit: command.deadline,
            file: run_dir.join(&name),
            terminal,
            live: Live::with_room(LIVE_ROOM),
            cancel: command.cancel.clone(),
            finder: Arc::downgrade(finder),
            state: watch::Sender::new(JobState::default()),
        };

        let spill = SpillTarget {
            dir: run_dir.to_owned(),
            name,
            max_bytes: MAX_SPILL_BYTES,
            // The table deletes old files: it contains the running jobs.
            max_files: usize::MAX,
            min_free: command.limits.min_free,
            threshold: 0,
            at_once: true,
        };

        let mut running: Running = Box::pin(quackd_process::run(Command {
            // A killed job gets the same grace period as a job that reaches its deadline.
            abort_grace: DEADLINE_GRACE,
            spill: Some(spill),
            live: Some(job.live.clone()),
            terminal: slave,
            ..command
        }));

        // The first poll launches the command, before it waits for anything, so a failure is returned to the
        // caller.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match running.as_mut().poll(&mut context) {
            Poll::Pending => Ok((job, running)),
            Poll::Ready(Ok(finished)) => Ok((job, Box::pin(async { Ok(finished) }))),
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Collects the output of the job until it ends.
    pub(super) async fn attend(&self, running: Running, finder: &DenialDetector) {
        let finished = self.follow(running).await;
        // Output that arrived after the last piece was collected.
        self.take().await;
        let Found { denials, line, .. } = match &finished {
            Ok(finished) => finder.find(finished).await,
            Err(_) => Found::default(),
        };

        let changes = finder.look_at_watched(finished.as_ref().ok()).await;
        let denied = changes.after(line);

        // The state and the file have the output already.
        let finished = finished.ok().map(|finished| Finished {
            stdout: Captured::default(),
            stderr: Captured::default(),
            ..finished
        });

        let spilled = finished.as_ref().and_then(|finished| finished.spill.clone());
        let report = Some(Box::new(self.ended_job(finished.as_ref(), &denials)));

        self.state.send_modify(|state| {
            let end = JobEnd::now(finished, denials, denied);
            state.end(JobEnd { audit: changes.list, report, ..end });
        });
        if let Some(terminal) = &self.terminal {
            terminal.end(self.terminal_exit());
        }
        // Only after the end, because readers of a running job treat the whole file as output. Not awaited: a
        // hung disk must not delay the report of the end.
        if let Some(spilled) = spilled {
            let total = self.state.borrow().recent.total;
            drop(tokio::task::spawn_blocking(move || note_gap_blocking(&spilled, total)));
        }
    }

    /// Collects the output, and types the input, until the command has ended.
    async fn follow(&self, mut running: Running) -> Result<Finished, LaunchError> {
        // Kept while output is collected, because a dropped one loses the piece that it is typing.
        let typing = self.type_input();
        tokio::pin!(typing);

        loop {
            tokio::select! {
                // The output is last, because there can always be more.
                biased;
                finished = &mut running => return finished,
                never = &mut typing => match never {},
                () = self.live.changed() => self.take().await,
            }
        }
    }

    /// Takes the output since the last call. Meanwhile the command is not read, so nothing is lost, and other tasks run.
    async fn take(&self) {
        let piece = self.live.take();
        if !piece.bytes.is_empty() {
            self.state.send_modify(|state| state.recent.push(&piece));
        }

        match &self.terminal {
            Some(terminal) => {
                for bytes in piece.bytes.chunks(FEED_BYTES) {
                    terminal.feed(bytes);
                    yield_now().await;
                }
            }
            None => yield_now().await,
        }
    }

    /// Types what waits for the terminal, if there is one.
    async fn type_input(&self) -> Infallible {
        match &self.terminal {
            Some(terminal) => terminal.type_input().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the name of the output file in the run directory.
    pub(super) fn file_name(&self) -> String {
        let name = self.file.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.borrow().end.is_none()
    }

    /// Explains what the network denied to the running job so far.
    pub(crate) fn denied_so_far(&self) -> Option<String> {
        self.finder.upgrade()?.network_so_far()
    }

    /// Returns a snapshot with up to `max` bytes of the output in memory from `position` on. Without a
    /// position, it contains the last `max` bytes.
    pub(crate) fn look(&self, position: Option<u64>, max: usize) -> JobSnapshot {
        let state = self.state.borrow();
        let total = state.recent.total;
        let position = position.unwrap_or_else(|| total.saturating_sub(count(max)));
        let in_memory = state.recent.read(position, max);
        JobSnapshot { position, in_memory, total, end: state.end.clone() }
    }

    /// Returns the size of the output in bytes, and the end of the job.
    pub(crate) fn glance(&self) -> (u64, Option<JobEnd>) {
        let state = self.state.borrow();
        (state.recent.total, state.end.clone())
    }

    /// Waits until more than `total` bytes were printed, or the job has ended.
    pub(crate) async fn more_than(&self, total: u64) {
        let is_news = |state: &JobState| total < state.recent.total || state.end.is_some();
        // Cannot fail: the sender is `self`.
        self.state.subscribe().wait_for(is_news).await.ok();
    }

    /// Waits until the job has ended and its processes are gone.
    pub(crate) async fn ended(&self) {
        // As above.
        self.state.subscribe().wait_for(|state| state.end.is_some()).await.ok();
    }

    /// Stops the job with TERM, and with KILL after the grace period.
    pub(crate) fn kill(&self) {
        self.cancel.cancel();
    }

    /// Returns the report for the supervisor.
    pub(super) fn info(&self) -> JobInfo {
        let terminal = self.terminal.as_ref().map(|terminal| terminal.first_size());
        JobInfo { id: self.id.clone(), command: self.command.clone(), terminal }
    }

    /// Returns the end of the command for the viewers of its terminal.
    fn terminal_exit(&self) -> TerminalExit {
        let (_, end) = self.glance();
        let Some(finished) = end.and_then(|end| end.finished) else {
            let reason = Some("its exit status is unknown".to_owned());
            return TerminalExit { reason, ..TerminalExit::default() };
        };
        let reason = match finished.ended_by {
            EndedBy::Itself => None,
            EndedBy::Deadline => Some("it reached its time limit".to_owned()),
            EndedBy::Abort => Some("it was ended by a client".to_owned()),
            EndedBy::Processes | EndedBy::Memory => None,
        };
        let reason = finished.ceiling.map(|ceiling| ceiling.to_string()).or(reason);
        let (exit_code, signal) = code_and_signal(finished.exit);
        TerminalExit { exit_code, signal, reason, daemon_ends: false }
    }

    /// Waits until the supervisor has all messages of the terminal, if there is one.
    pub(super) async fn terminal_over(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.over().await;
        }
    }

    /// Whether the supervisor has to treat the job as running: it must hear of the end of a terminal first.
    pub(super) fn is_running_for_supervisor(&self) -> bool {
        self.is_running() || self.terminal.as_ref().is_some_and(|terminal| !terminal.is_over())
    }

    fn ended_job(&self, finished: Option<&Finished>, denials: &[Denial]) -> EndedJob {
        let ended_by = finished.map(|finished| finished.ended_by);
        let (exit_code, signal) =
            finished.map_or((None, None), |finished| code_and_signal(finished.exit));

        EndedJob {
            info: self.info(),
            exit_code,
            signal,
            timed_out: ended_by == Some(EndedBy::Deadline),
            aborted: ended_by == Some(EndedBy::Abort),
            ceiling: finished.and_then(|finished| finished.ceiling).map(ceiling_kind),
            duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            denials: denials.to_vec(),
        }
    }

    /// Whether the end is not reported yet.
    pub(super) fn has_report(&self) -> bool {
        !self.is_running_for_supervisor()
            && self.state.borrow().end.as_ref().is_some_and(|end| end.report.is_some())
    }

    /// Returns the report of the end once.
    pub(super) fn take_report(&self) -> Option<EndedJob> {
        let mut report = None;
        self.state.send_if_modified(|state| {
            report = state.end.as_mut().and_then(|end| end.report.take());
            // Receivers wait for output and the end, which stay the same.
            false
        });
        report.map(|report| *report)
    }

    /// Returns the size of the output file in bytes, or 0 if the job is running or has no file.
    pub(super) fn file_bytes(&self) -> u64 {
        let state = self.state.borrow();
        state.end.as_ref().and_then(JobEnd::spilled).map_or(0, |spilled| spilled.bytes)
    }

    /// Returns the likely denials once, because the supervisor counts each report.
    pub(super) fn take_denials(&self) -> Vec<Denial> {
        let mut denials = Vec::new();
        self.state.send_if_modified(|state| {
            denials =
                state.end.as_mut().map(|end| std::mem::take(&mut end.denials)).unwrap_or_default();
            false
        });
        denials
    }

    /// Returns the changes to the watched files at the end, once.
    pub(super) fn take_audit(&self) -> Vec<String> {
        let mut audit = Vec::new();
        self.state.send_if_modified(|state| {
            audit =
                state.end.as_mut().map(|end| std::mem::take(&mut end.audit)).unwrap_or_default();
            false
        });
        audit
    }

    /// Removes the file from the job and returns its path.
    pub(super) fn forget_file(&self) -> Option<PathBuf> {
        let mut file = None;
        self.state.send_if_modified(|state| {
            let finished = state.end.as_mut().and_then(|end| end.finished.as_mut());
            file = finished.and_then(|finished| finished.spill.take()).map(|spilled| spilled.path);
            false
        });
        file
    }
}

impl JobState {
    fn end(&mut self, end: JobEnd) {
        // A complete file replaces the copy in memory.
        let is_in_file = end.spilled().is_some_and(|spilled| spilled.complete);
        self.recent.shrink_to(if is_in_file { 0 } else { ENDED_JOB_MEMORY_BYTES });
        self.end = Some(end);
    }
}

impl JobEnd {
    fn now(finished: Option<Finished>, denials: Vec<Denial>, denied: Option<String>) -> Self {
        Self { at: Instant::now(), finished, denials, denied, audit: Vec::new(), report: None }
    }

    /// Returns the output file, if output was written.
    pub(crate) fn spilled(&self) -> Option<&Spilled> {
        self.finished.as_ref()?.spill.as_ref()
    }
}

/// Returns the exit code, and the signal that ended a command.
fn code_and_signal(exit: Exit) -> (Option<i32>, Option<i32>) {
    match exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    }
}

/// Appends a note about the missing output to the file.
fn note_gap_blocking(spilled: &Spilled, total: u64) {
    let missing = total.saturating_sub(spilled.bytes);
    if missing == 0 {
        return;
    }

    // A command may have replaced the file.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = OpenOptions::new().append(true).custom_flags(flags).open(&spilled.path);

    // If the disk is full, the answers of job_output report the gap anyway.
    file.and_then(|mut file| {
        writeln!(file, "\n[... {missing} more bytes of output were not written]")
    })
    .ok();
}

/// Returns the first line of a command, for lists.
fn first_line(line: &str) -> String {
    let first = line.trim_start().lines().next().unwrap_or_default();
    cut_at_word(first, MAX_JOB_COMMAND_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_process::Usage;

    impl BackgroundJob {
        /// Creates an ended job with a file of `bytes` bytes.
        pub(in super::super) fn ended_with(number: u64, bytes: u64) -> Self {
            let path = PathBuf::from(format!("{FILE_PREFIX}{number}{FILE_SUFFIX}"));
            let job = Self {
                id: format!("{FILE_PREFIX}{number}"),
                command: String::new(),
                started: Instant::now(),
                limit: Duration::ZERO,
                file: path.clone(),
                terminal: None,
                live: Live::default(),
                cancel: CancellationToken::new(),
                finder: Weak::new(),
                state: watch::Sender::new(JobState::default()),
            };
            let finished = Finished {
                exit: Exit::Code(0),
                usage: Usage::default(),
                ended_by: EndedBy::Itself,
                ceiling: None,
                stdout: Captured::default(),
                stderr: Captured::default(),
                background_ended: 0,
                stopped: 0,
                is_gone: true,
                survivors: 0,
                output_open: false,
                output_held_by: Vec::new(),
                duration: Duration::ZERO,
                spill: Some(Spilled { path, bytes, complete: true, disk_is_low: false }),
            };
            let end = JobEnd::now(Some(finished), Vec::new(), None);
            job.state.send_modify(|state| state.end(end));
            job
        }
    }

    #[test]
    fn a_command_is_called_by_its_first_line() {
        assert_eq!(first_line("\n  npm run dev \nmore"), "npm run dev ");
        assert_eq!(first_line(""), "");
        let long = "é".repeat(MAX_JOB_COMMAND_BYTES);
        assert_eq!(first_line(&format!("x{long}")).len(), MAX_JOB_COMMAND_BYTES - 1);
    }
}
