//! Notifies the service manager that the daemon is ready and alive.
//!
//! The actors' own loop sends the notifications, and only after the registry has answered a message. If either hangs,
//! the manager gets none and restarts the daemon.

use crate::registry::{Registry, TakeSnapshot};
use crate::services::Services;
use actix::Addr;
use actix::clock::{Instant, interval_at};
use std::rc::Rc;
use tokio::time::MissedTickBehavior;

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
        let Ok(snapshot) = registry.send(TakeSnapshot).timeout(pause).await else {
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
        let (workers, known) = (snapshot.workers().await, snapshot.session_count());
        let running = workers.iter().filter(|worker| worker.monitor_pid.is_some()).count();
        let calls: usize = workers.iter().map(|worker| worker.calls.len()).sum();
        notifier.status(&format!("{known} sessions, {running} workers, {calls} calls"));
    }
}
