//! Whether the path of a workspace still leads to the directory that the running worker has. The worker cannot see it: in
//! its namespace the directory stays at the path when somebody moves it and puts another one in its place.

use crate::children::ChildActor;
use crate::session::actor::SessionActor;
use crate::session::worker::OfWorker;
use actix::prelude::*;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for which the last look counts. A call after it waits for another look.
const COUNTS_FOR: Duration = Duration::from_secs(1);

/// Timeout of a look: the disk may hang.
const LOOK_LIMIT: Duration = Duration::from_millis(500);

/// Device and inode of a directory.
pub(super) type DirectoryId = (u64, u64);

/// The directory of the running worker.
#[derive(Debug)]
pub(super) struct Place {
    /// `None` if it could not be read.
    id: Option<DirectoryId>,
    looked_at: Instant,
    /// Calls wait for the result of a look.
    pub(super) is_looking: bool,
    /// The path leads to another directory, or nowhere. Calls wait for another worker.
    pub(super) is_moved: bool,
}

impl Place {
    pub(super) fn of(id: Option<DirectoryId>) -> Self {
        Self { id, looked_at: Instant::now(), is_looking: false, is_moved: false }
    }
}

/// Returns the identity of a directory.
pub(super) fn id_blocking(path: &Path) -> io::Result<DirectoryId> {
    path.metadata().map(|found| (found.dev(), found.ino()))
}

impl SessionActor {
    /// Looks at the path of the workspace, unless it was looked at lately. If it leads elsewhere, the worker is replaced
    /// when nothing runs in it.
    pub(super) fn look_at_place(&mut self, ctx: &mut Context<Self>) {
        let is_ready = self.worker.child.is_ready();
        let place = &mut self.worker.place;
        let Some(id) = place.id.filter(|_| is_ready && !place.is_looking && !place.is_moved) else {
            return;
        };
        if place.looked_at.elapsed() < COUNTS_FOR {
            return;
        }
        place.is_looking = true;
        let (services, path) = (self.services.clone(), PathBuf::from(&self.workspace));
        let generation = self.child(OfWorker).generation;
        let looking = async move { services.look(LOOK_LIMIT, move || id_blocking(&path)).await };
        ctx.spawn(looking.into_actor(self).map(move |found, handle, ctx| {
            let place = &mut handle.worker.place;
            (place.is_looking, place.looked_at) = (false, Instant::now());
            let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            let is_moved = match found {
                Ok(Ok(found)) => found != id,
                Ok(Err(error)) => is_gone(&error),
                // A disk that does not answer says nothing.
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
