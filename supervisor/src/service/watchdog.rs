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

/// Notifies the manager that the daemon is ready, then repeatedly that it runs, with its status. Call it once clients
/// are accepted. Runs until the daemon stops.
pub(crate) async fn report(services: Rc<Services>, registry: Addr<Registry>) {
    let service_manager = &services.service_manager;
    let Some(notifier) = &service_manager.notifier else { return };
    notifier.ready();

    let pause = service_manager.interval();
    let mut ticks = interval_at(Instant::now(), pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_well = true;
    loop {
        ticks.tick().await;
        let Ok(snapshot) = registry.send(TakeSnapshot).timeout(pause).await else {
            // Only the first of several failures in a row.
            if was_well {
                tracing::error!("registry unresponsive, watchdog notification skipped");
            }
            was_well = false;
            continue;
        };

        was_well = true;
        if service_manager.watchdog.is_some() {
            notifier.alive();
        }

        let known = snapshot.session_count();
        let workers = snapshot.workers(&services.sessions);
        let running = workers.iter().filter(|worker| worker.monitor_pid.is_some()).count();
        let calls: usize = workers.iter().map(|worker| worker.calls.len()).sum();
        notifier.status(&format!("{known} sessions, {running} workers, {calls} calls"));
    }
}
