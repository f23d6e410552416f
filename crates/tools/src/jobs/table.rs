//! Table of a session's jobs, with its limits and retention, and the reports of it for the supervisor.

use super::job::{BackgroundJob, FILE_PREFIX, FILE_SUFFIX, TERMINAL_PREFIX};
use crate::call_limits::{CallLimits, StopCause};
use crate::denials::DenialDetector;
use crate::terminals::{Terminal, TerminalSetup, recording_number, write_opener_blocking};
use quackd_process::{
    Command, KeptTerminal, LaunchError, TerminalMaster, TerminalSlave, open_terminal,
};
use quackd_protocol::limits::{
    MAX_ENDED_JOBS, MAX_ENDED_JOBS_BYTES, MAX_JOBS_PER_SESSION, MAX_TERMINALS_PER_SESSION,
};
use quackd_protocol::worker::{EndedJob, JobInfo, MAX_LISTED};
use quackd_terminal::TerminalSize;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{OnceCell, watch};
use tokio::task::spawn_blocking;

/// Largest number of an earlier worker's job that is continued. Commands can write into the directory.
const MAX_NUMBER: u64 = 1_000_000;

/// Maximum number of directory entries read when the files of an earlier worker are deleted.
const MAX_ENTRIES: usize = 4096;

/// Background jobs of a session. Clones share the jobs.
#[derive(Debug, Clone)]
pub struct Jobs {
    run_dir: PathBuf,
    /// Set once the files of an earlier worker are deleted. Its jobs had the same numbers.
    cleared: Arc<OnceCell<()>>,
    table: watch::Sender<Table>,
    /// The only terminal, if no others can be opened.
    kept: Option<Arc<KeptTerminal>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Number of the last started job.
    last: u64,
    /// Number of the last job of an earlier worker.
    earlier: u64,
    jobs: BTreeMap<u64, Arc<BackgroundJob>>,
    /// Terminals that were not handed out yet. The worker takes each at once.
    new_terminals: VecDeque<NewTerminal>,
}

/// A terminal that was started, for the one who passes its messages on.
#[derive(Debug)]
pub struct NewTerminal {
    /// Id of its job.
    pub id: String,
    /// The terminal.
    pub terminal: Arc<Terminal>,
}

/// Reason why a job was not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FindError {
    #[error("Background job '{0}' ended too long ago; the last {MAX_ENDED_JOBS} are remembered")]
    Forgotten(String),
    #[error("No background job '{0}'; jobs end with their session's worker")]
    Unknown(String),
}

impl Jobs {
    /// Creates an empty table. The output of jobs is stored in `run_dir`. `kept` is the only terminal, if no others can be
    /// opened.
    pub(crate) fn kept_at(run_dir: &Path, kept: Option<KeptTerminal>) -> Self {
        let (run_dir, cleared) = (run_dir.to_owned(), Arc::default());
        let (table, kept) = (watch::Sender::new(Table::default()), kept.map(Arc::new));
        Self { run_dir, cleared, table, kept }
    }

    /// Returns a receiver for reports of the running jobs.
    #[must_use]
    pub fn reports(&self) -> JobReports {
        JobReports(self.table.subscribe())
    }

    /// Whether the limit of jobs that the supervisor treats as running is reached.
    pub(crate) fn is_full(&self) -> bool {
        MAX_JOBS_PER_SESSION <= self.table.borrow().running_for_supervisor().count()
    }

    /// Whether the limit of terminals that the supervisor treats as running is reached.
    pub(crate) fn has_all_terminals(&self) -> bool {
        let table = self.table.borrow();
        let terminals = table.running_for_supervisor().filter(|job| job.terminal.is_some());
        let limit = if self.has_one_terminal() { 1 } else { MAX_TERMINALS_PER_SESSION };
        limit <= terminals.count()
    }

    /// Whether all terminals are the same one, which is used one after the other.
    pub(crate) fn has_one_terminal(&self) -> bool {
        self.kept.is_some()
    }

    /// Returns the id of the terminal that was started last.
    pub(crate) fn last_terminal(&self) -> Option<String> {
        let table = self.table.borrow();
        table.jobs.values().rfind(|job| job.terminal.is_some()).map(|job| job.id.clone())
    }

    /// Waits for a terminal that was started, and returns each once.
    pub async fn next_terminal(&self) -> NewTerminal {
        let mut changes = self.table.subscribe();
        loop {
            let mut new = None;
            self.table.send_if_modified(|table| {
                new = table.new_terminals.pop_front();
                // No report depends on it.
                false
            });
            if let Some(new) = new {
                return new;
            }
            // Cannot fail: the sender is `self`.
            changes.changed().await.ok();
        }
    }

    /// Returns the terminal of the job with this id.
    #[must_use]
    pub fn terminal(&self, id: &str) -> Option<Arc<Terminal>> {
        let number: u64 = id.strip_prefix(TERMINAL_PREFIX)?.parse().ok()?;
        self.table.borrow().jobs.get(&number)?.terminal.clone()
    }

    /// Prepares the directory once: deletes the files of an earlier worker, and continues its numbers: a number means one job of the session.
    ///
    /// # Errors
    /// The disk does not answer in time, or the call was canceled.
    pub(crate) async fn clear(&self, bounds: &CallLimits) -> Result<(), StopCause> {
        let run_dir = self.run_dir.clone();
        let clear = || async {
            let earlier = bounds.run_blocking(move || clear_blocking(&run_dir)).await?;
            self.table.send_if_modified(|table| {
                (table.last, table.earlier) = (earlier, earlier);
                false
            });
            Ok(())
        };

        // Concurrent calls wait for the first one. If it fails, the next call tries again.
        self.cleared.get_or_try_init(clear).await.copied()
    }

    /// Starts a job, on a terminal if `setup` describes one. The caller must not await anything between
    /// [`Jobs::is_full`] and this call.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(crate) fn start(
        &self,
        line: &str,
        command: Command,
        finder: DenialDetector,
        setup: Option<TerminalSetup>,
    ) -> Result<Arc<BackgroundJob>, LaunchError> {
        let number = self.table.borrow().last + 1;
        let finder = Arc::new(finder);
        let opened = match setup {
            Some(setup) => Some((setup, self.open_terminal(setup).map_err(LaunchError::Io)?)),
            None => None,
        };
        let (job, running) =
            BackgroundJob::launch(number, line, &self.run_dir, command, &finder, opened)?;
        let job = Arc::new(job);

        // A job that could not be launched takes no number.
        self.table.send_modify(|table| {
            table.last = number;
            table.jobs.insert(number, Arc::clone(&job));
            let new =
                job.terminal.clone().map(|terminal| NewTerminal { id: job.id.clone(), terminal });
            table.new_terminals.extend(new);
        });

        let (jobs, attended) = (self.clone(), Arc::clone(&job));
        // The task is dropped with the runtime when the worker exits, which kills the command.
        tokio::spawn(async move {
            attended.attend(running, &finder).await;
            // The report of the end follows the last message of the terminal.
            attended.terminal_over().await;
            jobs.forget_oldest();
        });
        Ok(job)
    }

    fn open_terminal(&self, setup: TerminalSetup) -> io::Result<(TerminalMaster, TerminalSlave)> {
        let TerminalSize { cols, rows } = setup.size;
        match &self.kept {
            Some(kept) => kept.reopen(cols, rows),
            None => open_terminal(cols, rows),
        }
    }

    /// Sends HUP to the programs on terminals, and KILL after the grace period. Waits until they have ended.
    pub async fn hang_up(&self) {
        let mut jobs = self.all();
        jobs.retain(|job| job.terminal.is_some());
        jobs.iter().for_each(|job| job.kill());
        for job in jobs {
            job.ended().await;
        }
    }

    /// Returns all jobs, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<BackgroundJob>> {
        self.table.borrow().jobs.values().cloned().collect()
    }

    /// Finds a job by `job-3`, `term-3` or `3`.
    pub(crate) fn find(&self, reference: &str) -> Result<Arc<BackgroundJob>, FindError> {
        let prefixes = [FILE_PREFIX, TERMINAL_PREFIX];
        let digits = prefixes.iter().find_map(|prefix| reference.strip_prefix(prefix));
        let digits = digits.unwrap_or(reference);
        let number: Option<u64> = digits.parse().ok();
        let table = self.table.borrow();
        if let Some(job) = number.and_then(|number| table.jobs.get(&number)) {
            return Ok(Arc::clone(job));
        }

        let named: String = reference.chars().take(100).collect();
        match number {
            Some(number) if table.earlier < number && number <= table.last => {
                Err(FindError::Forgotten(named))
            }
            _ => Err(FindError::Unknown(named)),
        }
    }

    /// Handles the end of a job: notifies receivers, and removes jobs and files beyond the limits.
    fn forget_oldest(&self) {
        let mut files = Vec::new();
        self.table.send_modify(|table| files = table.forget_oldest());
        if !files.is_empty() {
            // Not awaited, without an error: the next worker deletes the files that stay.
            let delete = move || files.iter().for_each(|file| drop(std::fs::remove_file(file)));
            drop(spawn_blocking(delete));
        }
    }
}

impl Table {
    /// Jobs that reports list as running: the supervisor kills a worker that reports too many.
    fn running_for_supervisor(&self) -> impl Iterator<Item = &Arc<BackgroundJob>> {
        self.jobs.values().filter(|job| job.is_running_for_supervisor())
    }

    /// Removes the oldest ended jobs beyond the limits, and returns the files to delete.
    fn forget_oldest(&mut self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        // Newest first, because the newest jobs are kept.
        let ended: Vec<u64> =
            self.jobs.iter().rev().filter(|(_, job)| !job.is_running()).map(|(n, _)| *n).collect();

        let mut bytes = 0;
        for (i, number) in ended.iter().enumerate() {
            let Some(job) = self.jobs.get(number) else { continue };
            bytes += job.file_bytes();
            if MAX_ENDED_JOBS <= i {
                files.extend(job.forget_file());
                self.jobs.remove(number);
            // The newest job keeps its output, regardless of its size.
            } else if 0 < i && MAX_ENDED_JOBS_BYTES < bytes {
                files.extend(job.forget_file());
            }
        }

        files
    }
}

/// Report for the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReport {
    /// Running jobs, oldest first.
    pub running: Vec<JobInfo>,
    /// Jobs that have exited and were not reported yet, at most [`MAX_LISTED`]. The next report has further ones.
    pub ended: Vec<EndedJob>,
}

/// Receiver for reports of the jobs.
#[derive(Debug, Clone)]
pub struct JobReports(watch::Receiver<Table>);

impl JobReports {
    /// Waits until a report is due. Never returns after the jobs are dropped.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether something has changed since the last report.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Returns the next report. `None` if nothing changed since the last report.
    pub fn take(&mut self) -> Option<JobReport> {
        let is_due = self.is_due();
        let table = self.0.borrow_and_update();
        is_due.then(|| {
            // A job that exits during the report is in the next one.
            let ended = table.jobs.values().filter(|job| job.has_report()).take(MAX_LISTED);
            let ended = ended.filter_map(|job| job.take_report()).collect();
            let running = table.running_for_supervisor().map(|job| job.info()).collect();
            JobReport { running, ended }
        })
    }
}

/// Deletes the files of jobs, and returns the largest number of one, at most [`MAX_NUMBER`]. Writes the program for
/// commands on terminals. Errors are ignored.
fn clear_blocking(run_dir: &Path) -> u64 {
    // Without it, a program shows the address itself.
    write_opener_blocking(run_dir).ok();
    let mut last = 0;
    let Ok(entries) = run_dir.read_dir() else { return last };

    for entry in entries.take(MAX_ENTRIES).flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        // A recording stays, and its number is not given again.
        last = last.max(recording_number(name).unwrap_or_default());
        let number = name.strip_prefix(FILE_PREFIX).and_then(|name| name.strip_suffix(FILE_SUFFIX));
        if let Some(number) = number {
            last = last.max(number.parse().unwrap_or_default());
            // A file that stays does no harm: no later job gets its number.
            std::fs::remove_file(entry.path()).ok();
        }
    }

    last.min(MAX_NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::limits::MAX_SPILL_BYTES;

    fn forgotten(ended: &[u64]) -> (Vec<u64>, Vec<String>) {
        let numbered = (1..).zip(ended);
        let jobs = numbered
            .map(|(n, bytes)| (n, Arc::new(BackgroundJob::ended_with(n, *bytes))))
            .collect();
        let mut table = Table { jobs, ..Table::default() };
        let files = table.forget_oldest();
        let files = files.iter().map(|file| file.display().to_string()).collect();
        (table.jobs.keys().copied().collect(), files)
    }

    #[test]
    fn the_oldest_files_go_when_all_together_are_too_long() {
        assert_eq!(forgotten(&[MAX_SPILL_BYTES; 8]), ((1..=8).collect(), Vec::new()));
        let files = ["job-2.log", "job-1.log"].map(str::to_owned).to_vec();
        assert_eq!(forgotten(&[MAX_SPILL_BYTES; 10]), ((1..=10).collect(), files));
        // A file that alone exceeds the total limit is kept while it is the newest.
        let one = [1, MAX_ENDED_JOBS_BYTES + 1];
        assert_eq!(forgotten(&one), (vec![1, 2], vec!["job-1.log".to_owned()]));
    }

    #[test]
    fn the_oldest_jobs_go_with_their_files_when_there_are_too_many() {
        let (kept, files) = forgotten(&[1; MAX_ENDED_JOBS + 1]);
        assert_eq!((kept.len(), kept[0], files), (MAX_ENDED_JOBS, 2, vec!["job-1.log".to_owned()]));
    }
}
