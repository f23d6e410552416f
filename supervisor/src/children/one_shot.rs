//! Children that do one thing and end: the one that asks the login shell and the one that cleans repositories.
//! What they are allowed stands in their row of the table; here is how they go, for `quack doctor --tree`.

use super::deaths::ERRAND_FAILED;
use super::{Death, Deaths, ms};
use crate::children::spawner::Spawner;
use crate::clock::now_text;
use nix::sys::signal::Signal;
use quackd_process::{Exit, ProcessHandle};
use quackd_protocol::client::ErrandInfo;
use quackd_supervision::ChildSpec;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// One kind of errand: at most one runs at a time.
#[derive(Debug)]
pub(crate) struct Errand {
    spec: &'static ChildSpec,
    deaths: Rc<Deaths>,
    info: RefCell<ErrandInfo>,
    since: RefCell<Option<Instant>>,
}

impl Errand {
    /// None has run yet.
    pub(crate) fn new(spec: &'static ChildSpec, deaths: Rc<Deaths>) -> Self {
        Self { spec, deaths, info: RefCell::default(), since: RefCell::new(None) }
    }

    /// What it is promised.
    pub(crate) fn spec(&self) -> &'static ChildSpec {
        self.spec
    }

    /// A process of it was started.
    pub(crate) fn started(&self, pid: u32) {
        let mut info = self.info.borrow_mut();
        info.pid = Some(pid);
        info.started_at = Some(now_text());
        info.runs = info.runs.saturating_add(1);
        self.since.replace(Some(Instant::now()));
    }

    /// Its work is done, or came to nothing for this reason.
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
            kind: ERRAND_FAILED,
            cause,
            last_words: "",
            started,
        });
    }

    /// For people.
    pub(crate) fn describe(&self) -> ErrandInfo {
        self.info.borrow().clone()
    }
}

/// Reaps a process, and kills it if it has not ended by itself within `limit`. The second of what it gives says
/// whether it was killed.
pub(crate) async fn see_off(
    spawner: &Spawner,
    process: ProcessHandle,
    limit: Duration,
) -> (Option<Exit>, bool) {
    let mut ended = std::pin::pin!(spawner.ended(process.clone()));
    if let Ok(exit) = timeout(limit, &mut ended).await {
        return (exit, false);
    }
    // A stopped monitor does not see its channel close.
    if let Err(error) = process.signal(Signal::SIGKILL) {
        tracing::error!(pid = process.pid(), %error, "cannot kill a process");
    }
    (ended.await, true)
}
