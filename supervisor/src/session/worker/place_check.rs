//! Checks whether the path of a workspace still leads to the directory that the running worker has. The worker cannot check
//! it: in its namespace, the directory stays at the path when a program moves it and creates another one there. Nor does
//! it see a file system that is mounted in the workspace later: its writes would go to the directory under the mount.
//! Each new call asks for a check.

use super::actor::WorkerActor;
use super::place::id_blocking;
use crate::children::ChildActor;
use actix::prelude::*;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time for which the last check is valid. A later call waits for another check.
const VALID_FOR: Duration = Duration::from_secs(1);

/// Timeout of a check, because the disk may hang.
const CHECK_LIMIT: Duration = Duration::from_millis(500);

impl WorkerActor {
    /// Checks the path of the workspace, unless the last check is still valid. If the path leads elsewhere, the worker is
    /// replaced when no call and no job runs in it.
    pub(super) fn check_place(&mut self, ctx: &mut Context<Self>) {
        let is_ready = self.child.is_ready();
        let place = &mut self.place;
        let Some(id) = place.id.filter(|_| is_ready && !place.is_checking && !place.is_moved)
        else {
            return;
        };

        if place.checked_at.elapsed() < VALID_FOR {
            return;
        }

        place.is_checking = true;
        let (services, path) = (self.services.clone(), PathBuf::from(&self.session.workspace));
        let generation = self.child().generation;
        let roots = self.running_policy.as_ref();
        let roots = roots.map(|policy| policy.writable_roots.clone()).unwrap_or_default();
        let look = move || id_blocking(&path, &roots);
        let checking = async move { services.look(CHECK_LIMIT, look).await };

        ctx.spawn(checking.into_actor(self).map(move |found, handle, ctx| {
            let place = &mut handle.place;
            (place.is_checking, place.checked_at) = (false, Instant::now());

            let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            let (is_moved, has_other_mounts) = match found {
                Ok(Ok(found)) => (found != id, found.has_other_mounts(id)),
                Ok(Err(error)) => (is_gone(&error), false),
                // A timeout is no result.
                Err(_) => (false, false),
            };

            // Another worker may run by now.
            if is_moved && handle.child.current(generation).is_some() {
                handle.place.is_moved = true;
                handle.place.has_other_mounts = has_other_mounts;
                handle.workspace_replaced = true;
                handle.restart_if_outdated(ctx);
            }

            handle.send_waiting(ctx);
        }));
    }
}
