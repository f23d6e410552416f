//! Sessions whose directory no longer exists or is refused: finds them for `doctor`, and removes them for `quack.gc`.
//!
//! Never runs automatically, because the directory's disk may only be unmounted. Busy sessions stay. Pinned sessions
//! stay unless the client forces the removal. The user's files do not change.

use crate::errors::MethodError;
use crate::registry::catalog::Selection;
use crate::registry::in_progress::unfinished;
use crate::registry::shutdown_record::Interrupted;
use crate::registry::{Delete, Registry, TakeSnapshot};
use crate::session::services::SessionServices;
use actix::Addr;
use quackd_protocol::SessionId;
use quackd_protocol::client::{PrunedSession, SessionInfo};
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Timeout for file system access, because a disk may hang.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason to keep a session, for the reply.
const BUSY: &str = "it is at work";

/// The removed or removable sessions, and those that stay although their directory is gone.
#[derive(Debug, Default)]
pub(crate) struct Pruned {
    pub(crate) sessions: Vec<PrunedSession>,
    pub(crate) kept: Vec<PrunedSession>,
}

/// Reason for which no worker can run in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Missing,
    /// Recorded by an earlier version or by another program: `attach` refuses it.
    Refused,
}

/// Returns the sessions whose directory does not exist or is refused. `None` if a disk does not
/// respond.
pub(crate) async fn gone(
    services: &SessionServices,
    registry: &Addr<Registry>,
) -> Option<Vec<(SessionInfo, Lost)>> {
    let snapshot = registry.send(TakeSnapshot).await.ok()?;
    let sessions = snapshot.sessions(&Selection::All, services);
    let paths = sessions.iter().map(|session| session.workspace_path.clone()).collect();
    let lost = lost(services, paths).await?;
    let with_reason =
        |session: SessionInfo| lost.get(&session.workspace_path).map(|why| (session, *why));
    Some(sessions.into_iter().filter_map(with_reason).collect())
}

/// Returns the paths that do not exist or are refused. A path that cannot be inspected counts as existing.
async fn lost(services: &SessionServices, paths: HashSet<String>) -> Option<HashMap<String, Lost>> {
    let places = services.daemon.places();
    let look = move || {
        let why = |path: &Path| {
            let error = path.metadata().err().map(|error| error.kind());
            match error {
                _ if !path.is_absolute() => None,
                Some(ErrorKind::NotFound | ErrorKind::NotADirectory) => Some(Lost::Missing),
                _ => places.check_blocking(path).is_err().then_some(Lost::Refused),
            }
        };
        let with_reason = |path: String| why(Path::new(&path)).map(|why| (path, why));
        paths.into_iter().filter_map(with_reason).collect()
    };
    services.look(LOOKUP_TIMEOUT, look).await.ok()
}

/// Removes the sessions and workspaces whose directory does not exist, or lists them for a dry run. Removes those with
/// a refused directory only if the client requests sessions, because another program may still use them.
///
/// # Errors
/// A change that cannot be saved. Earlier removals stay.
pub(crate) async fn prune(
    services: &SessionServices,
    interrupted: &Rc<Interrupted>,
    registry: &Addr<Registry>,
    dry_run: bool,
    force: bool,
    only_sessions: bool,
) -> Result<Pruned, MethodError> {
    let mut pruned = Pruned::default();
    let mut gone = gone(services, registry).await.ok_or(MethodError::Overloaded)?;
    gone.retain(|(_, why)| *why == Lost::Missing || only_sessions);

    // A snapshot of the work. The registry decides again when it deletes.
    let running = unfinished(services, registry).await;
    let busy: HashSet<SessionId> = running.into_iter().map(|work| work.session_id).collect();
    for (session, _) in gone {
        let is_busy = busy.contains(&session.id);
        let pinned = session.status.pinned && !force && !is_busy;
        let why = match () {
            () if pinned => Some("it is pinned"),
            () if is_busy => Some(BUSY),
            // Only `quack delete` brings its changes back and removes them there.
            () if session.place.is_some() => Some("it works on another machine: quack delete"),
            () => None,
        };
        let row = PrunedSession {
            id: session.id.clone(),
            name: session.name,
            label: session.label,
            workspace_path: session.workspace_path,
            why: why.map(str::to_owned),
            pinned,
        };

        if why.is_some() {
            pruned.kept.push(row);
            continue;
        }

        if !dry_run {
            let reference = session.id.0.clone();
            // Not forced: a session that became busy must stay.
            let delete = Delete::Session { reference, force: false, is_remote: false };
            match registry.send(delete).await? {
                Ok(_) => interrupted.resumed(&session.id),
                // Another client deleted it first.
                Err(MethodError::SessionNotFound(_)) => continue,
                // The session became busy after the list was made.
                Err(MethodError::SessionHasWork(_)) => {
                    pruned.kept.push(PrunedSession { why: Some(BUSY.to_owned()), ..row });
                    continue;
                }
                Err(error) => return Err(error),
            }
        }

        pruned.sessions.push(row);
    }

    if !dry_run {
        forget_workspaces(services, registry).await?;
    }
    Ok(pruned)
}

/// Removes workspaces without sessions whose directory does not exist.
async fn forget_workspaces(
    services: &SessionServices,
    registry: &Addr<Registry>,
) -> Result<(), MethodError> {
    // A snapshot after the removals, which may have left workspaces without sessions.
    let paths = registry.send(TakeSnapshot).await?.empty_workspaces();
    let lost = lost(services, paths).await.ok_or(MethodError::Overloaded)?;

    let missing = lost.into_iter().filter(|(_, why)| *why == Lost::Missing);
    let paths: HashSet<String> = missing.map(|(path, _)| path).collect();

    if paths.is_empty() {
        return Ok(());
    }
    registry.send(Delete::EmptyWorkspaces(paths)).await?.map(drop)
}
