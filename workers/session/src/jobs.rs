//! Which background jobs run, on its way to the supervisor: it shows them, and neither ends nor replaces a
//! worker that has any.
//!
//! A report is made at the moment in which it is queued, so that reports are never out of order; several
//! changes may share one. The one that tells of a job's start goes before the answer of the call that
//! started it ([`crate::executor`] sees to that), so that the supervisor never takes the worker for idle.

use crate::link::Outbox;
use quackd_protocol::worker::FromWorker;
use quackd_tools::{JobReports, Jobs};
use std::cell::RefCell;
use std::rc::Rc;

/// Tells the supervisor of changes. Clones tell each change once together.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    outbox: Outbox,
    reports: Rc<RefCell<JobReports>>,
}

impl Reporter {
    /// Starts telling of jobs that end.
    pub(crate) fn start(jobs: &Jobs, outbox: Outbox) -> Self {
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

    /// Tells what has changed, if anything. Waits while the supervisor does not read.
    pub(crate) async fn report(&self) {
        if self.reports.borrow().is_due() {
            let report =
                || self.reports.borrow_mut().take().map(|running| FromWorker::Jobs { running });
            self.outbox.send_latest(report).await;
        }
    }
}
