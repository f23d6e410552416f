//! `attach`: finds or creates the session of a directory, and activates it by default.

use super::Caller;
use super::find::id_of;
use super::own_reference;
use crate::clock::now_text;
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::obeyed::{HeldFile, Use, in_words, record_blocking};
use crate::registry::AgentChange;
use crate::registry::catalog::Fresh;
use crate::registry::{FindSession, Open, OpenSession, Purpose, Restrictions};
use crate::session::actor::TellSession;
use crate::session::owner::TellOwner;
use crate::session::services::NoLook;
use crate::voice::VoiceSession;
use quackd_config::PiStart;
use quackd_home::Workspace;
use quackd_protocol::SessionId;
use quackd_protocol::client::{AttachData, AttachParams};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for looking up a directory, because its disk may hang.
pub(super) const RESOLVE_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn attach(
    AttachParams { path, activate, safe_mode, own }: AttachParams,
    caller: &Caller,
) -> Result<AttachData, MethodError> {
    let path = match path {
        None | Some(Value::Null) => caller.services.daemon.started_in.clone(),
        Some(Value::String(path)) => PathBuf::from(path),
        Some(_) => return Err(MethodError::PathNotText),
    };
    // Remote clients must not disable the safe mode of a session.
    if safe_mode == Some(false) && caller.client.transport != Transport::Socket {
        return Err(MethodError::LocalPolicy);
    }
    let activate = activate.unwrap_or(true);
    let kind = if own == Some(true) { Open::Own } else { Open::Existing };
    let data = open_path(caller, path, kind, activate, safe_mode).await?;
    if activate {
        caller.services.voice.session_changed(&VoiceSession::from(&data));
    }
    // Start the worker and Pi now, so that they are ready for the first call. The reply does not wait for them.
    let find = FindSession { reference: Some(data.session.id.0.clone()), purpose: Purpose::Look };
    if let Ok(Some(found)) = caller.registry.send(find).await? {
        let handle = found.handle.clone();
        handle.send(TellSession::StartWorker).await.ok();
        if activate && caller.services.daemon.config.pi.start.value == PiStart::Attach {
            handle.send(TellSession::StartAgent(found)).await.ok();
        }
    }
    Ok(data)
}

/// Timeout for saving a change, because the disk may hang. The change may still be saved later.
pub(super) const SAVE_LIMIT: Duration = Duration::from_secs(20);

/// Also used by `quack.tool`, which attaches without activating.
pub(super) async fn attach_path(
    caller: &Caller,
    path: PathBuf,
    activate: bool,
    safe_mode: Option<bool>,
) -> Result<AttachData, MethodError> {
    open_path(caller, path, Open::Existing, activate, safe_mode).await
}

async fn open_path(
    caller: &Caller,
    path: PathBuf,
    kind: Open,
    activate: bool,
    safe_mode: Option<bool>,
) -> Result<AttachData, MethodError> {
    let (path, note) = look_up_noted(caller, path).await?;
    let attach = OpenSession {
        path,
        kind,
        activate,
        safe_mode,
        agent: AgentChange::default(),
        restrictions: match caller.client.transport {
            Transport::Socket => Restrictions::default(),
            _ => Restrictions::remote(),
        },
        client: None,
        isolated: None,
        fresh: fresh()?,
    };
    let data = caller.registry.send(attach).timeout(SAVE_LIMIT).await??;
    let note = joined(note, data.note);
    Ok(AttachData { note, ..data })
}

/// Returns the reference of the session that quackd's own methods act on: `id`, or the session of the directory `path`,
/// which is created if it is missing. `None` means the active session: the request has neither.
///
/// # Errors
/// `NoReference` and `EmptyPath` for empty values, which must not mean another session; of [`attach_path`].
pub(super) async fn named(
    id: Option<&str>,
    path: Option<&str>,
    caller: &Caller,
) -> Result<Option<String>, MethodError> {
    let id = own_reference(id)?;
    match (id, own_path(path)?) {
        (None, Some(path)) => Ok(Some(attach_path(caller, path, false, None).await?.session.id.0)),
        (Some(id), _) => Ok(Some(id_of(caller, id).await?)),
        (None, None) => Ok(None),
    }
}

/// Returns the directory in a parameter of quackd's own methods.
///
/// # Errors
/// `EmptyPath`: an empty path would mean the directory of the daemon.
pub(super) fn own_path(given: Option<&str>) -> Result<Option<PathBuf>, MethodError> {
    match given {
        Some("") => Err(MethodError::EmptyPath),
        other => Ok(other.map(PathBuf::from)),
    }
}

/// Returns the values of a session that may have to be created.
pub(super) fn fresh() -> Result<Fresh, MethodError> {
    let session_id = SessionId(quackd_home::new_id().map_err(MethodError::NoRandom)?);
    Ok(Fresh { session_id, now: now_text() })
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
    let held = note_held(caller, vec![PathBuf::from(&path)]).await;
    let notes: Vec<String> =
        foreign.map(|foreign| foreign.to_string()).into_iter().chain(held).collect();
    Ok((path, (!notes.is_empty()).then(|| notes.join("; "))))
}

/// Joins two notes.
pub(super) fn joined(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{first}; {second}")),
        (first, second) => first.or(second),
    }
}

/// Returns a note about the files that the daemon obeys and that commands could change through one of these directories.
pub(super) async fn note_held(caller: &Caller, directories: Vec<PathBuf>) -> Option<String> {
    let held = held(caller, directories).await;
    for file in held.iter().filter(|file| file.used_as == Use::Configuration) {
        let (path, held) = (file.path.clone(), file.held.clone());
        let look = move || record_blocking(&path, &held);
        if let Ok(record) = caller.services.sessions.look(RESOLVE_LIMIT, look).await {
            caller.registry.send(TellOwner::ConfigHeld(record)).await.ok();
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
    let look = move || obeyed.held_blocking(directories);
    caller.services.sessions.look(RESOLVE_LIMIT, look).await.unwrap_or_default()
}

/// Returns the workspace of a directory. Runs on the blocking pool, because it reads the file system.
pub(super) async fn look_up(caller: &Caller, path: PathBuf) -> Result<Workspace, MethodError> {
    let shown = path.display().to_string();
    let places = caller.services.daemon.places();
    let resolve = move || {
        let workspace = quackd_home::look_up_workspace_blocking(&path)?;
        places.check_blocking(Path::new(&workspace.path))?;
        Ok(workspace)
    };
    match caller.services.sessions.look(RESOLVE_LIMIT, resolve).await {
        Ok(resolved) => resolved,
        Err(NoLook::Ended) => Err(MethodError::ShuttingDown),
        Err(NoLook::TimedOut) => Err(MethodError::WorkspaceHangs(RESOLVE_LIMIT.as_secs(), shown)),
    }
}
