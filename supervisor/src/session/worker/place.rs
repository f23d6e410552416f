//! Checks whether the path of a workspace still leads to the directory that the running worker has. The worker cannot check
//! it: in its namespace, the directory stays at the path when a program moves it and creates another one there.

use crate::children::ChildActor;
use crate::session::actor::SessionActor;
use crate::session::worker::OfWorker;
use actix::prelude::*;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for which the last check is valid. A later call waits for another check.
const VALID_FOR: Duration = Duration::from_secs(1);

/// Timeout of a check, because the disk may hang.
const CHECK_LIMIT: Duration = Duration::from_millis(500);

/// Device and inode of a directory.
pub(super) type DirectoryId = (u64, u64);

/// The directory of the running worker.
#[derive(Debug)]
pub(super) struct Place {
    /// `None` if it could not be read.
    id: Option<DirectoryId>,
    checked_at: Instant,
    /// Calls wait for the result of a check.
    pub(super) is_checking: bool,
    /// The path leads to another directory, or nowhere. Calls wait for another worker.
    pub(super) is_moved: bool,
}

impl Place {
    pub(super) fn of(id: Option<DirectoryId>) -> Self {
        Self { id, checked_at: Instant::now(), is_checking: false, is_moved: false }
    }
}

/// Returns the identity of a directory.
pub(super) fn id_blocking(path: &Path) -> io::Result<DirectoryId> {
    path.metadata().map(|found| (found.dev(), found.ino()))
}

impl SessionActor {
    /// Checks the path of the workspace, unless the last check is still valid. If the path leads elsewhere, the worker is
    /// replaced when no call and no job runs in it.
    pub(super) fn check_place(&mut self, ctx: &mut Context<Self>) {
        let is_ready = self.worker.child.is_ready();
        let place = &mut self.worker.place;
        let Some(id) = place.id.filter(|_| is_ready && !place.is_checking && !place.is_moved)
        else {
            return;
        };
        if place.checked_at.elapsed() < VALID_FOR {
            return;
        }
        place.is_checking = true;
        let (services, path) = (self.services.clone(), PathBuf::from(&self.workspace));
        let generation = self.child(OfWorker).generation;
        let checking = async move { services.look(CHECK_LIMIT, move || id_blocking(&path)).await };
        ctx.spawn(checking.into_actor(self).map(move |found, handle, ctx| {
            let place = &mut handle.worker.place;
            (place.is_checking, place.checked_at) = (false, Instant::now());
            let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            let is_moved = match found {
                Ok(Ok(found)) => found != id,
                Ok(Err(error)) => is_gone(&error),
                // A timeout is no result.
                Err(_) => false,
            };
            // Another worker may run by now.
            if is_moved && handle.worker.child.current(generation).is_some() {
                handle.worker.place.is_moved = true;
                handle.worker.workspace_replaced = true;
                handle.restart_if_outdated(ctx);
            }
            handle.send_waiting(ctx);
        }));
    }
}
