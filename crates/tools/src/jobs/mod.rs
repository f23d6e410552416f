//! Background jobs: commands that go on after the call that started them.
//!
//! Owns: the table of a session's jobs, how many there may be, and what is forgotten when. A job ends by
//! itself, at its time limit, by `job_kill`, or with its worker: nothing of it outlives the process.
//! Called by: [`crate::bash`] to start one, [`crate::execute`] for the three tools; the worker tells its
//! supervisor which jobs run ([`JobReports`]).
//!
//! In reading order: [`job`] is one job, [`log`] what it has printed, [`tools`] and [`text`] the answers.

mod job;
mod log;
mod text;
mod tools;

pub(crate) use tools::{job_kill, job_output, jobs, start};

use crate::bounds::{Bounds, Cutoff};
use crate::denied::Finder;
use job::Job;
use quackd_process::Command;
use quackd_protocol::limits::{MAX_ENDED_JOBS, MAX_ENDED_JOBS_BYTES, MAX_JOBS_PER_SESSION};
use quackd_protocol::worker::JobInfo;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{OnceCell, watch};
use tokio::task::spawn_blocking;

/// What the files of jobs are called before and after the number.
const FILE_PREFIX: &str = "job-";
const FILE_SUFFIX: &str = ".log";

/// Directory entries looked at when the files of an earlier worker are deleted.
const MAX_ENTRIES: usize = 4096;

/// A session's background jobs. Clones are the same jobs.
#[derive(Debug, Clone)]
pub struct Jobs {
    run_dir: PathBuf,
    /// Set once the files of an earlier worker, whose jobs had the same numbers, are gone.
    cleared: Arc<OnceCell<()>>,
    table: watch::Sender<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of the last job that was started.
    last: u64,
    jobs: BTreeMap<u64, Arc<Job>>,
}

/// Why there is no such job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FindError {
    #[error("Background job '{0}' ended too long ago; the last {MAX_ENDED_JOBS} are remembered")]
    Forgotten(String),
    #[error("No background job '{0}'; jobs end with their session's worker")]
    Unknown(String),
}

impl Jobs {
    /// No jobs yet. The output of those to come is kept in `run_dir`.
    pub(crate) fn kept_at(run_dir: &Path) -> Self {
        let (run_dir, cleared) = (run_dir.to_owned(), Arc::default());
        Self { run_dir, cleared, table: watch::Sender::new(Table::default()) }
    }

    /// For whoever tells others which jobs run.
    #[must_use]
    pub fn reports(&self) -> JobReports {
        JobReports(self.table.subscribe())
    }

    /// Whether as many jobs run as may.
    pub(crate) fn is_full(&self) -> bool {
        MAX_JOBS_PER_SESSION <= self.table.borrow().running().count()
    }

    /// Deletes what an earlier worker left, once: its jobs had the same names.
    ///
    /// # Errors
    /// The disk does not answer in time, or the call was cancelled.
    pub(crate) async fn clear(&self, bounds: &Bounds) -> Result<(), Cutoff> {
        let run_dir = self.run_dir.clone();
        let clear = || bounds.run_blocking(move || clear_blocking(&run_dir));
        self.cleared.get_or_try_init(clear).await.copied()
    }

    /// Starts a job and gives its number. Between [`Jobs::is_full`] and this nothing may be awaited.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(crate) fn start(
        &self,
        line: &str,
        command: Command,
        finder: Finder,
    ) -> Result<Arc<Job>, quackd_process::LaunchError> {
        let number = self.table.borrow().last + 1;
        let (job, running) = Job::launch(number, line, &self.run_dir, command)?;
        let job = Arc::new(job);
        self.table.send_modify(|table| {
            table.last = number;
            table.jobs.insert(number, Arc::clone(&job));
        });
        let (jobs, attended) = (self.clone(), Arc::clone(&job));
        // Dropped with the runtime when the worker ends, and the command is killed then.
        tokio::spawn(async move {
            attended.attend(running, &finder).await;
            jobs.forget_oldest();
        });
        Ok(job)
    }

    /// Every job that is known, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Job>> {
        self.table.borrow().jobs.values().cloned().collect()
    }

    /// The job that a caller means by `job-3`, or by `3`.
    pub(crate) fn find(&self, reference: &str) -> Result<Arc<Job>, FindError> {
        let digits = reference.strip_prefix(FILE_PREFIX).unwrap_or(reference);
        let number: Option<u64> = digits.parse().ok();
        let table = self.table.borrow();
        if let Some(job) = number.and_then(|number| table.jobs.get(&number)) {
            return Ok(Arc::clone(job));
        }
        let shown: String = reference.chars().take(100).collect();
        match number {
            Some(1..) if number <= Some(table.last) => Err(FindError::Forgotten(shown)),
            _ => Err(FindError::Unknown(shown)),
        }
    }

    /// Takes note of a job's end: others are told, and what is too old or too long is forgotten.
    fn forget_oldest(&self) {
        let mut files = Vec::new();
        self.table.send_modify(|table| files = table.forget_oldest());
        if !files.is_empty() {
            let delete = move || files.iter().for_each(|file| drop(std::fs::remove_file(file)));
            drop(spawn_blocking(delete));
        }
    }
}

impl Table {
    fn running(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values().filter(|job| job.is_running())
    }

    /// Forgets the oldest ended jobs beyond the limits, and gives the files that are not wanted any more.
    fn forget_oldest(&mut self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        // The newest first: they are kept.
        let ended: Vec<u64> =
            self.jobs.iter().rev().filter(|(_, job)| !job.is_running()).map(|(n, _)| *n).collect();
        let mut bytes = 0;
        for (i, number) in ended.iter().enumerate() {
            let Some(job) = self.jobs.get(number) else { continue };
            bytes += job.file_bytes();
            if MAX_ENDED_JOBS <= i {
                files.extend(job.forget_file());
                self.jobs.remove(number);
            } else if 0 < i && MAX_ENDED_JOBS_BYTES < bytes {
                files.extend(job.forget_file());
            }
        }
        files
    }
}

/// Which jobs run, for whoever tells others.
#[derive(Debug, Clone)]
pub struct JobReports(watch::Receiver<Table>);

impl JobReports {
    /// Waits until there is something to tell. Never returns once the jobs are gone.
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

    /// The jobs that run now, oldest first. Nothing if the last report said so already.
    pub fn take(&mut self) -> Option<Vec<JobInfo>> {
        let is_due = self.is_due();
        let table = self.0.borrow_and_update();
        is_due.then(|| table.running().map(|job| job.info()).collect())
    }
}

/// A file that cannot be deleted costs the job of its name its own; there is nobody to tell.
fn clear_blocking(run_dir: &Path) {
    let Ok(entries) = run_dir.read_dir() else { return };
    for entry in entries.take(MAX_ENTRIES).flatten() {
        let is_job = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(FILE_PREFIX) && name.ends_with(FILE_SUFFIX));
        if is_job {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::limits::MAX_SPILL_BYTES;

    fn forgotten(ended: &[u64]) -> (Vec<u64>, Vec<String>) {
        let numbered = (1..).zip(ended);
        let jobs = numbered.map(|(n, bytes)| (n, Arc::new(Job::ended_with(n, *bytes)))).collect();
        let mut table = Table { last: 0, jobs };
        let files = table.forget_oldest();
        let files = files.iter().map(|file| file.display().to_string()).collect();
        (table.jobs.keys().copied().collect(), files)
    }

    #[test]
    fn the_oldest_files_go_when_all_together_are_too_long() {
        assert_eq!(forgotten(&[MAX_SPILL_BYTES; 8]), ((1..=8).collect(), Vec::new()));
        let files = ["job-2.log", "job-1.log"].map(str::to_owned).to_vec();
        assert_eq!(forgotten(&[MAX_SPILL_BYTES; 10]), ((1..=10).collect(), files));
        // What is as long as all may be is kept as long as it is the newest.
        let one = [1, MAX_ENDED_JOBS_BYTES + 1];
        assert_eq!(forgotten(&one), (vec![1, 2], vec!["job-1.log".to_owned()]));
    }

    #[test]
    fn the_oldest_jobs_go_with_their_files_when_there_are_too_many() {
        let (kept, files) = forgotten(&[1; MAX_ENDED_JOBS + 1]);
        assert_eq!((kept.len(), kept[0], files), (MAX_ENDED_JOBS, 2, vec!["job-1.log".to_owned()]));
    }
}
