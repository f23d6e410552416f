//! Stops the daemon if its state directory was deleted, moved or replaced. Clients can no longer find such a daemon.
//! Its lock is on a file without a name, so a second daemon could start at the same path, and both might write there
//! later.

use crate::services::Services;
use crate::services::StopRequest;
use quackd_home::Tenure;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Consecutive failed checks before the daemon exits. A remount hides the directory briefly.
const CONSECUTIVE_FAILURES: u32 = 2;

/// Checks the directory until the daemon stops.
pub(crate) async fn watch(services: Rc<Services>, tenure: Tenure) {
    let mut checks = interval(CHECK_INTERVAL);
    // After a stop of the process, missed ticks must not follow at once: a brief remount would count as gone.
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let mut over = 0;
    while over < CONSECUTIVE_FAILURES {
        checks.tick().await;

        let tenure = tenure.clone();
        let check = actix_rt::task::spawn_blocking(move || tenure.is_over_blocking());
        // A directory that cannot be inspected does not count as gone.
        let is_over = matches!(timeout(CHECK_INTERVAL, check).await, Ok(Ok(true)));
        over = if is_over { over + 1 } else { 0 };
    }

    let dir = services.daemon.home.dir().display();
    tracing::error!(%dir, "state directory is gone, shutting down");
    // A shutdown may already be in progress.
    services.stop.try_send(StopRequest::Shutdown).ok();
}
