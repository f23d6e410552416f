//! The background jobs of a session's worker, as the worker reports them.
//!
//! The worker is not trusted. The number of reports is bounded by the number of calls, and their size is limited.

use crate::pool::snapshot::JobSnapshot;
use quackd_protocol::limits::{
    JOB_REPORTS_PER_CALL, MAX_JOB_COMMAND_BYTES, MAX_JOB_ID_BYTES, MAX_JOB_REPORTS,
    MAX_JOBS_PER_SESSION,
};
use quackd_protocol::worker::{EndedJob, JobInfo};
use std::rc::Rc;
use std::time::Instant;

/// Number of reports that a worker may send before its first call. A working one sends none.
const FIRST_REPORTS: u32 = 4;

/// The jobs of one worker process.
#[derive(Debug)]
pub(super) struct ReportedJobs {
    running: Rc<[JobSnapshot]>,
    /// Number of reports that the worker may still send.
    reports_left: u32,
}

impl Default for ReportedJobs {
    fn default() -> Self {
        Self { running: Rc::default(), reports_left: FIRST_REPORTS }
    }
}

impl ReportedJobs {
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    /// Ids, oldest first.
    pub(super) fn ids(&self) -> Vec<&str> {
        self.running.iter().map(|job| job.info.id.as_str()).collect()
    }

    pub(super) fn any(&self) -> bool {
        !self.running.is_empty()
    }

    /// Allows more reports after a call was sent: the call may start a job, which ends later.
    pub(super) fn call_sent(&mut self) {
        self.reports_left = MAX_JOB_REPORTS.min(self.reports_left + JOB_REPORTS_PER_CALL);
    }

    /// Updates the list of running jobs from the worker's report.
    ///
    /// # Errors
    /// The reason why the report is invalid. The worker must be killed.
    pub(super) fn report(
        &mut self,
        running: Vec<JobInfo>,
        ended: &[EndedJob],
        now: Instant,
    ) -> Result<(), &'static str> {
        let left = self.reports_left.checked_sub(1).ok_or("too many reports on jobs")?;
        if MAX_JOBS_PER_SESSION < running.len() {
            return Err("more jobs than there may be");
        }
        let is_long = |job: &JobInfo| {
            MAX_JOB_ID_BYTES < job.id.len() || MAX_JOB_COMMAND_BYTES < job.command.len()
        };
        if running.iter().chain(ended.iter().map(|job| &job.info)).any(is_long) {
            return Err("a job of too many words");
        }
        self.reports_left = left;
        let since = |id: &str| self.running.iter().find(|job| job.info.id == id).map(|j| j.since);
        let running = running.into_iter();
        self.running = running
            .map(|info| JobSnapshot { since: since(&info.id).unwrap_or(now), info })
            .collect();
        Ok(())
    }

    /// Removes all jobs, because the worker is gone.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The running jobs, oldest first.
    pub(super) fn snapshot(&self) -> Rc<[JobSnapshot]> {
        Rc::clone(&self.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn job(id: &str) -> JobInfo {
        JobInfo { id: id.to_owned(), command: format!("run {id}"), terminal: None }
    }

    #[test]
    fn a_job_is_as_old_as_the_first_report_of_it() {
        let (mut jobs, start) = (ReportedJobs::default(), Instant::now());
        let later = start + Duration::from_secs(2);
        assert_eq!(jobs.report(vec![job("job-1")], &[], start), Ok(()));
        assert_eq!(jobs.report(vec![job("job-1"), job("job-2")], &[], later), Ok(()));
        let shown = jobs.snapshot();
        let shown: Vec<_> = shown.iter().map(|job| (job.info.clone(), job.since)).collect();
        assert_eq!(shown, [(job("job-1"), start), (job("job-2"), later)]);
        assert_eq!(jobs.report(vec![job("job-2")], &[], later), Ok(()));
        assert_eq!((jobs.count(), jobs.any()), (1, true));
        jobs.clear();
        assert_eq!((jobs.count(), jobs.any()), (0, false));
    }

    #[test]
    fn reports_are_paid_for_by_calls() {
        let (mut jobs, now) = (ReportedJobs::default(), Instant::now());
        for _ in 0..FIRST_REPORTS {
            assert_eq!(jobs.report(Vec::new(), &[], now), Ok(()));
        }
        assert_eq!(jobs.report(Vec::new(), &[], now), Err("too many reports on jobs"));
        jobs.call_sent();
        assert_eq!(jobs.report(vec![job("job-1")], &[], now), Ok(()));
        assert_eq!(jobs.report(Vec::new(), &[], now), Ok(()));
        assert_eq!(jobs.report(Vec::new(), &[], now), Err("too many reports on jobs"));
        for _ in 0..1000 {
            jobs.call_sent();
        }
        for _ in 0..MAX_JOB_REPORTS {
            assert_eq!(jobs.report(Vec::new(), &[], now), Ok(()));
        }
        assert_eq!(jobs.report(Vec::new(), &[], now), Err("too many reports on jobs"));
    }

    #[test]
    fn reports_are_bounded_in_size() {
        let now = Instant::now();
        let report = |running| ReportedJobs::default().report(running, &[], now);
        let eight: Vec<_> = (0..8).map(|n| job(&n.to_string())).collect();
        assert_eq!(report(eight.clone()), Ok(()));
        assert_eq!(report([eight, vec![job("9")]].concat()), Err("more jobs than there may be"));
        let long = "x".repeat(MAX_JOB_ID_BYTES + 1);
        assert_eq!(report(vec![job(&long)]), Err("a job of too many words"));
        let long = JobInfo { command: "x".repeat(MAX_JOB_COMMAND_BYTES + 1), ..job("1") };
        assert_eq!(report(vec![long]), Err("a job of too many words"));
    }
}
