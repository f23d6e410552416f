//! Directories in parameters: their workspaces, and the files there that the daemon obeys. Called by handlers that find,
//! create or configure sessions.

use super::Caller;
use crate::engines::any_argv;
use crate::errors::MethodError;
use crate::obeyed::{HeldFile, Use, in_words, record_blocking};
use crate::registry::ConfigHeld;
use crate::session::services::NoLook;
use quackd_home::Workspace;
use quackd_protocol::far::FarWorkspace;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for looking up a directory, because its disk may hang.
pub(super) const RESOLVE_LIMIT: Duration = Duration::from_secs(5);

/// In place of the id of a session, to check the target of an engine.
pub(super) const CHECKED: &str = "check";

/// Returns the directory in a parameter of quackd's own methods.
///
/// # Errors
/// `EmptyPath`: an empty path would mean the directory of the daemon.
pub(super) fn own_path(path: Option<&str>) -> Result<Option<PathBuf>, MethodError> {
    match path {
        Some("") => Err(MethodError::EmptyPath),
        other => Ok(other.map(PathBuf::from)),
    }
}

impl From<NoLook> for MethodError {
    fn from(reason: NoLook) -> Self {
        match reason {
            NoLook::Ended => Self::ShuttingDown,
            NoLook::TimedOut => Self::Overloaded,
        }
    }
}

/// Returns the path of the workspace of a directory.
pub(super) async fn resolve(caller: &Caller, path: PathBuf) -> Result<String, MethodError> {
    look_up(caller, path).await.map(|workspace| workspace.path)
}

/// Returns the path of the workspace of a directory in which a session will work, and a note for the user: it belongs to
/// another user, or its sessions could change files that the daemon obeys.
pub(super) async fn look_up_noted(
    caller: &Caller,
    path: PathBuf,
) -> Result<(String, Option<String>), MethodError> {
    let Workspace { path, foreign, .. } = look_up(caller, path).await?;
    if let Some(far) = FarWorkspace::of(&path) {
        // An engine acts as the user on the other machine.
        if !caller.is_local() {
            return Err(MethodError::LocalFar);
        }
        // An unknown engine and a target that does not fit are refused now, not at the first call.
        any_argv(&caller.services.daemon, &far, CHECKED, CHECKED)?;
        return Ok((path, None));
    }

    let held = note_held(caller, vec![PathBuf::from(&path)]).await;
    let notes: Vec<String> =
        foreign.map(|foreign| foreign.to_string()).into_iter().chain(held).collect();
    Ok((path, (!notes.is_empty()).then(|| notes.join("; "))))
}

/// Returns a note about the files that the daemon obeys and that commands could change through one of these directories.
pub(super) async fn note_held(caller: &Caller, directories: Vec<PathBuf>) -> Option<String> {
    let held = held(caller, directories).await;

    for file in held.iter().filter(|file| file.used_as == Use::Configuration) {
        let (path, held) = (file.path.clone(), file.held.clone());
        let look = move || record_blocking(&path, &held);
        if let Ok(record) = caller.services.sessions.look(RESOLVE_LIMIT, look).await {
            // The note below reaches the user also during a shutdown, when nothing can be recorded.
            caller.registry.send(ConfigHeld(record)).await.ok();
        }
    }

    let note = in_words(&held)?;
    tracing::warn!(note, "sessions may write files that the daemon obeys");
    Some(note)
}

/// Returns the files that the daemon obeys and that commands could change through one of these directories. Empty if a
/// disk hangs.
pub(super) async fn held(caller: &Caller, directories: Vec<PathBuf>) -> Vec<HeldFile> {
    let obeyed = caller.services.daemon.obeyed.clone();
    // A far workspace has no directory on this machine.
    let directories = directories.into_iter().filter(|path| path.is_absolute()).collect();
    let look = move || obeyed.held_blocking(directories);
    caller.services.sessions.look(RESOLVE_LIMIT, look).await.unwrap_or_default()
}

/// Returns the workspace of a directory. Runs on the blocking pool, because it reads the file system. A far workspace is
/// only checked by its text.
pub(super) async fn look_up(caller: &Caller, path: PathBuf) -> Result<Workspace, MethodError> {
    let path_text = path.display().to_string();
    if let Some(far) = FarWorkspace::parse(&path_text) {
        let path = far?.to_string();
        return Ok(Workspace { path, foreign: None, is_repository: true });
    }

    let places = caller.services.daemon.places();
    let resolve = move || {
        let workspace = quackd_home::look_up_workspace_blocking(&path)?;
        places.check_blocking(Path::new(&workspace.path))?;
        Ok(workspace)
    };
    match caller.services.sessions.look(RESOLVE_LIMIT, resolve).await {
        Err(NoLook::TimedOut) => {
            Err(MethodError::WorkspaceHangs(RESOLVE_LIMIT.as_secs(), path_text))
        }
        resolved => resolved?,
    }
}
