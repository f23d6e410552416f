//! Ends a daemon whose state directory is gone, or is another one. No client finds it any more; but its lock is on a
//! file that nobody sees, so that a second daemon can start in the same place, and one day both would write there.

use crate::services::Services;
use crate::services::Stop;
use quackd_home::Tenure;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// So many in a row must say so: a file system that is mounted anew is away for a moment.
const LOOKS: u32 = 2;

/// Looks again and again. Ends with the daemon.
pub(crate) async fn watch(services: Rc<Services>, tenure: Tenure) {
    let mut looking = interval(EVERY);
    looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut over = 0;
    while over < LOOKS {
        looking.tick().await;
        let tenure = tenure.clone();
        let looked = actix_rt::task::spawn_blocking(move || tenure.is_over_blocking());
        // What cannot be looked at is not said to be gone.
        let is_over = matches!(timeout(EVERY, looked).await, Ok(Ok(true)));
        over = if is_over { over + 1 } else { 0 };
    }
    let dir = services.daemon.home.dir().display();
    tracing::error!(%dir, "the state directory was deleted, moved or replaced: the daemon ends");
    // A stop that is under way already is as good.
    services.stop.try_send(Stop::Shutdown).ok();
}
