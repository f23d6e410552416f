//! Reports the running background jobs to the supervisor, and the end of each. The supervisor displays the running
//! jobs, and neither evicts nor replaces a worker that has any. It records the ends in the journal of calls.
//!
//! A report is built when it is queued, so reports are never out of order, and several changes may share one. The
//! report of a job's start precedes the answer of the call that started it ([`crate::executor`] ensures this), so
//! that the supervisor never takes the worker for idle.

use crate::link::FrameSender;
use quackd_protocol::worker::FromWorker;
use quackd_tools::{JobReport, JobReports, Jobs};
use std::cell::RefCell;
use std::rc::Rc;

/// Reports changes to the supervisor. Clones share their state, so each change is reported once.
#[derive(Debug, Clone)]
pub(crate) struct JobReporter {
    outbox: FrameSender,
    reports: Rc<RefCell<JobReports>>,
}

impl JobReporter {
    /// Starts a task that reports exited jobs.
    pub(crate) fn start(jobs: &Jobs, outbox: FrameSender) -> Self {
        let reporter = Self { outbox, reports: Rc::new(RefCell::new(jobs.reports())) };
        let (mut changes, reporting) = (jobs.reports(), reporter.clone());
        actix::spawn(async move {
            loop {
                changes.changed().await;
                reporting.report().await;
            }
        });
        reporter
    }

    /// Reports changes, if there are any. Waits while the supervisor does not read.
    pub(crate) async fn report(&self) {
        if self.reports.borrow().is_due() {
            // Built when the queue has room, so that reports stay in order.
            let report = || {
                let JobReport { running, ended } = self.reports.borrow_mut().take()?;
                Some(FromWorker::Jobs { running, ended })
            };
            self.outbox.send_latest(report).await;
        }
    }
}
