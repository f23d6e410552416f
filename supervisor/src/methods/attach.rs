//! `attach`: finds or creates the session of a directory, and activates it by default.

use super::Caller;
use super::find::id_of;
use super::own_reference;
use super::session_admin::joined;
use crate::clock::now_text;
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::registry::AgentChange;
use crate::registry::catalog::Fresh;
use crate::registry::{FindSession, Open, OpenSession, Purpose, Restrictions};
use crate::session::actor::TellSession;
use crate::session::services::NoLook;
use crate::voice::VoiceSession;
use crate::workspaces;
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
    AttachParams { path, activate, safe_mode }: AttachParams,
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
    let data = attach_path(caller, path, activate, safe_mode).await?;
    if activate {
        caller.services.voice.session_changed(&VoiceSession::from(&data));
    }
    // Start the worker and Pi now, so that they are ready for the first call. The reply does not wait for them.
    let find = FindSession { reference: Some(data.session.id.0.clone()), purpose: Purpose::Look };
    if let Ok(Some(found)) = caller.registry.send(find).await? {
        let handle = found.handle.clone();
        handle.send(TellSession::StartWorker).await.ok();
        if activate && caller.services.daemon.config.pi.start.value == PiStart::Attach {
            handle.send(TellSession::StartPi(found)).await.ok();
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
    let Workspace { path, foreign, .. } = look_up(caller, path).await?;
    let kind = Open::Existing;
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
        fresh: fresh()?,
    };
    let data = caller.registry.send(attach).timeout(SAVE_LIMIT).await??;
    let note = joined(foreign.map(|foreign| foreign.to_string()), data.note);
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

/// Returns the workspace of a directory. Runs on the blocking pool, because it reads the file system.
pub(super) async fn look_up(caller: &Caller, path: PathBuf) -> Result<Workspace, MethodError> {
    let shown = path.display().to_string();
    let user_home = caller.services.daemon.user_home.clone();
    let resolve = move || {
        let workspace = quackd_home::look_up_workspace_blocking(&path)?;
        workspaces::check_blocking(Path::new(&workspace.path), &user_home)?;
        Ok(workspace)
    };
    match caller.services.sessions.look(RESOLVE_LIMIT, resolve).await {
        Ok(resolved) => resolved,
        Err(NoLook::Ended) => Err(MethodError::ShuttingDown),
        Err(NoLook::TimedOut) => Err(MethodError::WorkspaceHangs(RESOLVE_LIMIT.as_secs(), shown)),
    }
}
