//! Sessions whose directory does not exist any more: finding them for `doctor`, and forgetting them for `quack.gc`.
//!
//! Never by itself: the disk of the directory may only be away. A session that is at work stays, and one that is pinned
//! unless the client forces it. Files of the user do not change.

use crate::errors::MethodError;
use crate::registry::catalog::Selection;
use crate::registry::in_progress::unfinished;
use crate::registry::shutdown_record::Interrupted;
use crate::registry::{DeleteSession, ForgetWorkspaces, ListSessions, ListWorkspaces, Registry};
use crate::session::services::SessionServices;
use actix::Addr;
use quackd_protocol::SessionId;
use quackd_protocol::client::{PrunedSession, SessionInfo};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A disk may hang.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// What was forgotten, or would be, and what stays although its directory is gone.
#[derive(Debug, Default)]
pub(crate) struct Pruned {
    pub(crate) sessions: Vec<PrunedSession>,
    pub(crate) kept: Vec<PrunedSession>,
}

/// The sessions whose directory does not exist. `None` if a disk does not answer.
pub(crate) async fn gone(
    services: &SessionServices,
    registry: &Addr<Registry>,
) -> Option<Vec<SessionInfo>> {
    let sessions = registry.send(ListSessions(Selection::All)).await.ok()?;
    let paths = sessions.iter().map(|session| session.workspace_path.clone()).collect();
    let missing = missing(services, paths).await?;
    Some(sessions.into_iter().filter(|one| missing.contains(&one.workspace_path)).collect())
}

/// Returns the paths that do not exist. A path that cannot be inspected counts as existing.
async fn missing(services: &SessionServices, paths: HashSet<String>) -> Option<HashSet<String>> {
    let lookups = Arc::clone(&services.lookups);
    let looking = async {
        let place = lookups.acquire_owned().await;
        let look = move || {
            // A look-up that hangs keeps its place, so that the others keep their threads.
            let _place = place;
            let is_missing = |path: &String| {
                let found = Path::new(path).metadata();
                let error = found.err().map(|error| error.kind());
                path.starts_with('/')
                    && matches!(error, Some(ErrorKind::NotFound | ErrorKind::NotADirectory))
            };
            paths.into_iter().filter(is_missing).collect()
        };
        actix_rt::task::spawn_blocking(look).await
    };
    tokio::time::timeout(LOOK_LIMIT, looking).await.ok()?.ok()
}

/// Forgets the sessions and workspaces whose directory does not exist, or says which these are.
///
/// # Errors
/// A change that cannot be saved. What was forgotten before stays so.
pub(crate) async fn prune(
    services: &SessionServices,
    interrupted: &Rc<Interrupted>,
    registry: &Addr<Registry>,
    (dry_run, force): (bool, bool),
) -> Result<Pruned, MethodError> {
    let mut pruned = Pruned::default();
    let gone = gone(services, registry).await.ok_or(MethodError::Overloaded)?;
    let busy: HashSet<SessionId> = match gone.is_empty() {
        true => HashSet::new(),
        false => {
            unfinished(services, registry).await.into_iter().map(|work| work.session_id).collect()
        }
    };
    for session in gone {
        let why = match () {
            () if busy.contains(&session.id) => Some("it is at work"),
            () if session.status.pinned && !force => Some("it is pinned"),
            () => None,
        };
        let row = PrunedSession {
            id: session.id.clone(),
            name: session.name,
            workspace_path: session.workspace_path,
            why: why.map(str::to_owned),
        };
        if why.is_some() {
            pruned.kept.push(row);
            continue;
        }
        if !dry_run {
            let delete = DeleteSession { reference: session.id.0.clone(), force: false };
            match registry.send(delete).await? {
                Ok(_) => interrupted.resumed(&session.id),
                Err(MethodError::SessionNotFound(_)) => continue,
                // It started work after the list was made.
                Err(MethodError::SessionBusy(_)) => {
                    pruned
                        .kept
                        .push(PrunedSession { why: Some("it is at work".to_owned()), ..row });
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

/// Forgets workspaces without sessions whose directory does not exist.
async fn forget_workspaces(
    services: &SessionServices,
    registry: &Addr<Registry>,
) -> Result<(), MethodError> {
    let known = registry.send(ListWorkspaces).await?;
    let empty = known.into_iter().filter(|workspace| workspace.session_count == 0);
    let paths: HashSet<String> = empty.map(|workspace| workspace.path).collect();
    let paths = missing(services, paths).await.ok_or(MethodError::Overloaded)?;
    if paths.is_empty() {
        return Ok(());
    }
    registry.send(ForgetWorkspaces { paths }).await?
}
