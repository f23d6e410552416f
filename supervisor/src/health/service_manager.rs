//! The service manager that started the daemon, if one did: what it gave, and what it is told.
//!
//! It is told that the daemon lives from the actors' own loop and in no other way: a look at the registry
//! must come back first. If either hangs nothing is said, and the manager does what it is there for.

use crate::registry::{ListWorkers, Registry};
use crate::services::Services;
use actix::Addr;
use actix::clock::{Instant, interval_at};
use quackd_service::{Manager, Notifier, watchdog_interval};
use std::ffi::OsString;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often the status is told where nobody watches.
const STATUS_INTERVAL: Duration = Duration::from_secs(15);

/// A watchdog that wants to hear more often than this hears of us this often.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// One instance per daemon.
#[derive(Debug, Default)]
pub(crate) struct Managed {
    /// Who it is, as the daemon's arguments said.
    pub(crate) manager: Option<Manager>,
    /// It keeps the socket.
    pub(crate) is_activated: bool,
    notifier: Option<Notifier>,
    watchdog: Option<Duration>,
}

impl Managed {
    /// What the environment says of the manager. A wish that cannot be met is in the log.
    pub(crate) fn new(manager: Option<Manager>, is_activated: bool) -> Self {
        let variable = |name: &str| -> Option<OsString> { std::env::var_os(name) };
        let notifier = Notifier::from_variables(&variable).unwrap_or_else(|error| {
            tracing::warn!(%error, "the service manager cannot be told how the daemon is");
            None
        });
        let watchdog = watchdog_interval(&variable).filter(|_| notifier.is_some());
        Self { manager, is_activated, notifier, watchdog }
    }

    /// What it is called on the wire.
    pub(crate) fn name(&self) -> Option<String> {
        self.manager.map(|manager| manager.name().to_owned())
    }

    /// The daemon is on its way out.
    pub(crate) fn stopping(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.stopping();
            notifier.status("stopping");
        }
    }

    /// How long between two words to it.
    fn interval(&self) -> Duration {
        self.watchdog.map_or(STATUS_INTERVAL, |limit| (limit / 2).max(SHORTEST_INTERVAL))
    }
}

/// Tells the manager that the daemon serves, and from then on that it lives and what it does. Ends with the
/// daemon; to be called when clients are accepted.
pub(crate) async fn report(services: Rc<Services>, registry: Addr<Registry>) {
    let managed = &services.managed;
    let Some(notifier) = &managed.notifier else { return };
    notifier.ready();
    let pause = managed.interval();
    let mut ticks = interval_at(Instant::now(), pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_well = true;
    loop {
        ticks.tick().await;
        let looked = registry.send(ListWorkers).timeout(pause).await;
        let Ok((workers, known)) = looked else {
            if was_well {
                tracing::error!(
                    "the registry does not answer: the service manager is not told that the daemon lives"
                );
            }
            was_well = false;
            continue;
        };
        was_well = true;
        if managed.watchdog.is_some() {
            notifier.alive();
        }
        let running = workers.iter().filter(|worker| worker.monitor_pid.is_some()).count();
        let calls: usize = workers.iter().map(|worker| worker.calls.len()).sum();
        notifier.status(&format!("{known} sessions, {running} workers, {calls} calls"));
    }
}
