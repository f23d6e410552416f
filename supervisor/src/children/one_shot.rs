//! One-shot processes: they run once and exit. Examples are the capture of the login environment and the repository
//! cleanup. Their limits are in their rows of the table. This module records their results for `quack doctor --tree`.

use super::deaths::ONE_SHOT_FAILED;
use super::{Death, Deaths};
use crate::children::spawner::Spawner;
use crate::clock::{ms, now_text};
use nix::sys::signal::Signal;
use quackd_process::ProcessHandle;
use quackd_protocol::client::ErrandInfo;
use quackd_supervision::{ChildSpec, Exit};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// One kind of one-shot process. At most one instance runs at a time, except of `credentials`, whose last one counts.
#[derive(Debug)]
pub(crate) struct OneShot {
    spec: &'static ChildSpec,
    deaths: Rc<Deaths>,
    info: RefCell<ErrandInfo>,
    since: RefCell<Option<Instant>>,
}

impl OneShot {
    /// Creates the record. No process has run yet.
    pub(crate) fn new(spec: &'static ChildSpec, deaths: Rc<Deaths>) -> Self {
        Self { spec, deaths, info: RefCell::default(), since: RefCell::new(None) }
    }

    /// Row in the table of child processes.
    pub(crate) fn spec(&self) -> &'static ChildSpec {
        self.spec
    }

    /// Records that a process was started.
    pub(crate) fn started(&self, pid: u32) {
        let mut info = self.info.borrow_mut();
        info.pid = Some(pid);
        info.started_at = Some(now_text());
        info.runs = info.runs.saturating_add(1);
        self.since.replace(Some(Instant::now()));
    }

    /// Records the end of the process: success, or failure with a cause.
    pub(crate) fn ended(&self, cause: Option<&str>) {
        let started = self.since.take();
        let mut info = self.info.borrow_mut();
        let pid = info.pid.take();
        info.took_ms = started.map(|started| ms(started.elapsed()));
        info.last_cause = cause.map(str::to_owned);
        let Some(cause) = cause else { return };
        info.failures = info.failures.saturating_add(1);
        self.deaths.note(&Death {
            spec: self.spec,
            session: None,
            pid,
            exit: None,
            kind: ONE_SHOT_FAILED,
            cause,
            last_words: "",
            started,
        });
    }

    /// Information for display.
    pub(crate) fn describe(&self) -> ErrandInfo {
        self.info.borrow().clone()
    }
}

/// Waits for the exit of a process and reaps it. Kills it after `limit`. The second value is true if it was killed.
pub(crate) async fn reap_or_kill(
    spawner: &Spawner,
    process: ProcessHandle,
    limit: Duration,
) -> (Option<Exit>, bool) {
    let mut ended = std::pin::pin!(spawner.wait_and_reap(process.clone()));
    if let Ok(exit) = timeout(limit, &mut ended).await {
        return (exit, false);
    }
    // A stopped monitor does not notice that its channel closed.
    if let Err(error) = process.signal(Signal::SIGKILL) {
        tracing::error!(pid = process.pid(), %error, "cannot kill a process");
    }
    (ended.await, true)
}
