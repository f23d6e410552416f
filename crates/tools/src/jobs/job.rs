//! One background job: started, watched while it runs, remembered when it has ended.

use super::log::{Recent, Stretch, count};
use super::{FILE_PREFIX, FILE_SUFFIX};
use crate::denied::{Finder, Found};
use quackd_process::{Captured, Command, Finished, LaunchError, Live, SpillTarget, Spilled};
use quackd_protocol::denial::Denial;
use quackd_protocol::limits::{
    DEADLINE_GRACE, ENDED_JOB_MEMORY_BYTES, MAX_JOB_COMMAND_BYTES, MAX_SPILL_BYTES,
};
use quackd_protocol::worker::JobInfo;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Bytes that are kept until they are taken, which is after every read: what a pipe holds.
const LIVE_ROOM: usize = 64 * 1024;

/// A background job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    /// The first line of its command.
    pub(crate) command: String,
    pub(crate) started: Instant,
    /// Its running time, at most.
    pub(crate) limit: Duration,
    /// Its processes at the same time, at most.
    pub(crate) processes: u32,
    /// Where its whole output goes.
    pub(crate) file: PathBuf,
    live: Live,
    cancel: CancellationToken,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    recent: Recent,
    end: Option<Ended>,
}

/// The end of a job.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) at: Instant,
    /// How it ended, without its output; `None` if nobody knows.
    pub(crate) finished: Option<Finished>,
    /// What is likely to have been denied to it, until that was told.
    denials: Vec<Denial>,
    /// The line about that.
    pub(crate) denied: Option<String>,
    /// What it made of the watched files, until that was told.
    audit: Vec<String>,
}

/// A job as it is at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Where the wanted part of the output begins.
    pub(crate) position: u64,
    /// What memory has of the output from there on.
    pub(crate) in_memory: Stretch,
    pub(crate) total: u64,
    pub(crate) end: Option<Ended>,
}

/// A job's command while it runs.
pub(super) type Running =
    Pin<Box<dyn Future<Output = Result<Finished, LaunchError>> + Send + 'static>>;

impl Job {
    /// Starts the job's command.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn launch(
        number: u64,
        line: &str,
        run_dir: &Path,
        command: Command,
    ) -> Result<(Self, Running), LaunchError> {
        let name = format!("{FILE_PREFIX}{number}{FILE_SUFFIX}");
        let job = Self {
            id: format!("{FILE_PREFIX}{number}"),
            command: first_line(line),
            started: Instant::now(),
            limit: command.deadline,
            processes: command.limits.processes,
            file: run_dir.join(&name),
            live: Live::with_room(LIVE_ROOM),
            cancel: command.cancel.clone(),
            state: watch::Sender::new(State::default()),
        };
        let spill = SpillTarget {
            dir: run_dir.to_owned(),
            name,
            max_bytes: MAX_SPILL_BYTES,
            // Which of them go is decided by the table, which knows who still runs.
            max_files: usize::MAX,
            min_free: command.limits.min_free,
            threshold: 0,
            at_once: true,
        };
        let mut running: Running = Box::pin(quackd_process::run(Command {
            // Whoever ends a job gives it the time that a deadline gives.
            abort_grace: DEADLINE_GRACE,
            spill: Some(spill),
            live: Some(job.live.clone()),
            ..command
        }));
        // A command is launched when it is polled first, before it waits for anything: a failure is told to
        // whoever starts the job.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match running.as_mut().poll(&mut context) {
            Poll::Pending => Ok((job, running)),
            Poll::Ready(Ok(finished)) => Ok((job, Box::pin(async { Ok(finished) }))),
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Stays with the job until it has ended and takes what it prints.
    pub(super) async fn attend(&self, mut running: Running, finder: &Finder) {
        let finished = tokio::select! {
            biased;
            finished = &mut running => finished,
            never = self.collect() => match never {},
        };
        self.take();
        let Found { denials, line } = match &finished {
            Ok(finished) => finder.find(finished).await,
            Err(_) => Found::default(),
        };
        let told = finder.look_at_watched().await;
        let denied = told.after(line);
        let finished = finished.ok().map(|finished| Finished {
            stdout: Captured::default(),
            stderr: Captured::default(),
            ..finished
        });
        let spilled = finished.as_ref().and_then(|finished| finished.spill.clone());
        self.state.send_modify(|state| {
            state.end(Ended { audit: told.list, ..Ended::now(finished, denials, denied) });
        });
        // Not before: whoever reads the output of a running job takes all of the file for output. Not waited
        // for: a disk that hangs must not keep the end from being told.
        if let Some(spilled) = spilled {
            let total = self.state.borrow().recent.total;
            drop(tokio::task::spawn_blocking(move || note_gap_blocking(&spilled, total)));
        }
    }

    async fn collect(&self) -> Infallible {
        loop {
            self.live.changed().await;
            self.take();
        }
    }

    fn take(&self) {
        let piece = self.live.take();
        if !piece.bytes.is_empty() {
            self.state.send_modify(|state| state.recent.push(&piece));
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.borrow().end.is_none()
    }

    /// The job as it is now, with up to `max` bytes of what memory has from `position` on. Without a position
    /// it is where the last `max` bytes begin.
    pub(crate) fn look(&self, position: Option<u64>, max: usize) -> Seen {
        let state = self.state.borrow();
        let total = state.recent.total;
        let position = position.unwrap_or_else(|| total.saturating_sub(count(max)));
        let in_memory = state.recent.read(position, max);
        Seen { position, in_memory, total, end: state.end.clone() }
    }

    /// How much it has printed, and its end.
    pub(crate) fn glance(&self) -> (u64, Option<Ended>) {
        let state = self.state.borrow();
        (state.recent.total, state.end.clone())
    }

    /// Waits until more than `total` bytes were printed, or the job has ended.
    pub(crate) async fn more_than(&self, total: u64) {
        let is_news = |state: &State| total < state.recent.total || state.end.is_some();
        // Cannot fail: the sender is `self`.
        drop(self.state.subscribe().wait_for(is_news).await);
    }

    /// Waits until the job has ended, and nothing of it is left.
    pub(crate) async fn ended(&self) {
        drop(self.state.subscribe().wait_for(|state| state.end.is_some()).await);
    }

    /// Ends the job: TERM, and KILL after the grace.
    pub(crate) fn kill(&self) {
        self.cancel.cancel();
    }

    /// What the supervisor is told.
    pub(super) fn info(&self) -> JobInfo {
        JobInfo { id: self.id.clone(), command: self.command.clone() }
    }

    /// Bytes of its file, if it has ended and still has one.
    pub(super) fn file_bytes(&self) -> u64 {
        let state = self.state.borrow();
        state.end.as_ref().and_then(Ended::spilled).map_or(0, |spilled| spilled.bytes)
    }

    /// What is likely to have been denied to it, once: the supervisor counts what it is told.
    pub(super) fn take_denials(&self) -> Vec<Denial> {
        let mut denials = Vec::new();
        self.state.send_if_modified(|state| {
            denials =
                state.end.as_mut().map(|end| std::mem::take(&mut end.denials)).unwrap_or_default();
            false
        });
        denials
    }

    /// What became of the watched files at its end, once.
    pub(super) fn take_audit(&self) -> Vec<String> {
        let mut audit = Vec::new();
        self.state.send_if_modified(|state| {
            audit =
                state.end.as_mut().map(|end| std::mem::take(&mut end.audit)).unwrap_or_default();
            false
        });
        audit
    }

    /// Gives the file away; the job has none from now on.
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

impl State {
    fn end(&mut self, end: Ended) {
        let is_in_file = end.spilled().is_some_and(|spilled| spilled.complete);
        self.recent.shrink_to(if is_in_file { 0 } else { ENDED_JOB_MEMORY_BYTES });
        self.end = Some(end);
    }
}

impl Ended {
    fn now(finished: Option<Finished>, denials: Vec<Denial>, denied: Option<String>) -> Self {
        Self { at: Instant::now(), finished, denials, denied, audit: Vec::new() }
    }

    /// Its file, if there was anything to write and it could be written.
    pub(crate) fn spilled(&self) -> Option<&Spilled> {
        self.finished.as_ref()?.spill.as_ref()
    }
}

/// Says at the end of a file what is not in it.
fn note_gap_blocking(spilled: &Spilled, total: u64) {
    let missing = total.saturating_sub(spilled.bytes);
    if missing == 0 {
        return;
    }
    // A command may have put something else in its place.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = OpenOptions::new().append(true).custom_flags(flags).open(&spilled.path);
    // On a full disk the answers of job_output say so all the same.
    drop(file.and_then(|mut file| {
        writeln!(file, "\n[... {missing} more bytes of output were not written]")
    }));
}

/// What a command is called in lists.
fn first_line(line: &str) -> String {
    let first = line.trim_start().lines().next().unwrap_or_default();
    let cut = first.floor_char_boundary(MAX_JOB_COMMAND_BYTES);
    first.get(..cut).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_process::{EndedBy, Exit, Usage};

    impl Job {
        /// A job that has ended and has a file of so many bytes.
        pub(in super::super) fn ended_with(number: u64, bytes: u64) -> Self {
            let path = PathBuf::from(format!("{FILE_PREFIX}{number}{FILE_SUFFIX}"));
            let job = Self {
                id: format!("{FILE_PREFIX}{number}"),
                command: String::new(),
                started: Instant::now(),
                limit: Duration::ZERO,
                processes: 0,
                file: path.clone(),
                live: Live::default(),
                cancel: CancellationToken::new(),
                state: watch::Sender::new(State::default()),
            };
            let finished = Finished {
                exit: Exit::Code(0),
                usage: Usage::default(),
                ended_by: EndedBy::Itself,
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
            let end = Ended::now(Some(finished), Vec::new(), None);
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
