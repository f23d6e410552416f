//! Reports the running background jobs to the supervisor. The supervisor displays them, and neither evicts nor
//! replaces a worker that has any.
//!
//! A report is built when it is queued, so reports are never out of order, and several changes may share one. The
//! report of a job's start precedes the answer of the call that started it ([`crate::executor`] ensures this), so
//! that the supervisor never takes the worker for idle.

use crate::link::FrameSender;
use quackd_protocol::worker::FromWorker;
use quackd_tools::{JobReports, Jobs};
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
            let report =
                || self.reports.borrow_mut().take().map(|running| FromWorker::Jobs { running });
            self.outbox.send_latest(report).await;
        }
    }
}
