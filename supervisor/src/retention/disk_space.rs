//! Watches what is free on the disk of the state directory.
//!
//! With too little, everything that can be done without is left: workers write no files of long outputs (they look
//! themselves before they write, and are told how much has to be free), the log says warnings and errors only, and
//! what nobody needs is deleted once. What is left is for the files that must be written: each save is a new file
//! beside the old one. It ends when there is half as much again as has to be free.

use super::Keeping;
use crate::registry::Registry;
use crate::services::Services;
use actix::Addr;
use quackd_home::DiskRoom;
use quackd_protocol::client::{Check, CheckStatus};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(10);

/// How long a look is waited for.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// See [`super::start`].
pub(super) async fn watch(services: Rc<Services>, registry: Addr<Registry>) {
    loop {
        services.keeping.look().await;
        // Whoever has noticed it.
        if services.keeping.got_low.take() {
            // Whatever it finds is told by itself, and a failure too.
            services.keeping.clean_by_itself(&services, &registry).await;
        }
        tokio::time::sleep(EVERY).await;
    }
}

impl Keeping {
    /// Looks at the disk now. If that hangs, or somebody looks already, what is known stays.
    pub(crate) async fn look(&self) {
        let Ok(place) = Arc::clone(&self.looks).try_acquire_owned() else { return };
        let dir = self.home.dir().to_owned();
        let look = actix_rt::task::spawn_blocking(move || {
            let room = DiskRoom::of_blocking(&dir);
            drop(place);
            room
        });
        match tokio::time::timeout(LOOK_LIMIT, look).await {
            Ok(Ok(Ok(room))) => self.found(room),
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "cannot ask how much of the disk is free");
            }
            // It hangs, or the daemon ends.
            Ok(Err(_)) | Err(_) => {}
        }
    }

    fn found(&self, room: DiskRoom) {
        self.room.set(Some(room));
        let was_low = self.is_low.get();
        let is_low = room.is_low(self.wanted, was_low);
        self.is_low.set(is_low);
        if is_low != was_low {
            let (free, needed) = (room.free, room.needed(self.wanted));
            if is_low {
                self.got_low.set(true);
                tracing::warn!(free, needed, "the disk is almost full: long outputs are not kept");
            }
            self.log.set_brief(is_low);
            if !is_low {
                tracing::info!(free, "the disk has room again");
            }
        }
    }

    /// For `doctor`, after a look.
    pub(crate) fn check(&self) -> Check {
        let check = |status, message, hint: Option<&str>| Check {
            name: "disk".to_owned(),
            status,
            message,
            hint: hint.map(str::to_owned),
        };
        let dropped = match self.log_lines_dropped() {
            0 => String::new(),
            n => format!("; {n} lines are missing in the log"),
        };
        let Some(room) = self.room.get() else {
            let message = format!("nothing is known of the disk's room{dropped}");
            return check(CheckStatus::Ok, message, None);
        };
        let free = mebibytes_of(room.free);
        if self.is_low.get() {
            let needed = mebibytes_of(room.needed(self.wanted));
            let message = format!(
                "{free} MiB free, fewer than {needed}: long outputs are not kept, the log says warnings and \
                 errors only{dropped}"
            );
            return check(
                CheckStatus::Warn,
                message,
                Some("make room; `quack gc` says what can go"),
            );
        }
        let last = self.last.borrow();
        let last = last.as_deref().map_or_else(String::new, |last| format!("; {last}"));
        check(CheckStatus::Ok, format!("{free} MiB free{last}{dropped}"), None)
    }
}

fn mebibytes_of(bytes: u64) -> u64 {
    bytes / (1024 * 1024)
}
