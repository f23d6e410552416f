//! `attach`: finds or creates the session of a directory, and activates it by default.

use super::directories::{look_up_noted, own_path};
use super::find::id_of;
use super::{Caller, Serve, own_reference};
use crate::clock::now_text;
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::registry::AgentChange;
use crate::registry::catalog::Fresh;
use crate::registry::{FindSession, Open, OpenSession, Purpose, Restrictions};
use crate::session::agent::StartAgent;
use crate::session::worker::StartWorker;
use crate::voice::VoiceSession;
use quackd_config::PiStart;
use quackd_protocol::SessionId;
use quackd_protocol::client::{AttachData, AttachParams, LOCAL_POLICY};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

impl Serve<AttachParams> for Caller {
    async fn serve(&self, asked: AttachParams) -> Result<AttachData, MethodError> {
        let AttachParams { path, activate, safe_mode, own } = asked;
        let path = match path {
            None | Some(Value::Null) => self.services.daemon.started_in.clone(),
            Some(Value::String(path)) => PathBuf::from(path),
            Some(_) => return Err(MethodError::PathNotText),
        };
        // Remote clients must not disable the safe mode of a session.
        if safe_mode == Some(false) && self.client.transport != Transport::Socket {
            return Err(MethodError::LocalOnly(LOCAL_POLICY));
        }
        let activate = activate.unwrap_or(true);
        let kind = if own == Some(true) { Open::Own } else { Open::Existing };
        let data = open_path(self, path, kind, activate, safe_mode).await?;
        if activate {
            self.services.voice.session_changed(&VoiceSession::from(&data));
        }
        // Start the worker and Pi now, so that they are ready for the first call. The reply does not wait for them.
        let find =
            FindSession { reference: Some(data.session.id.0.clone()), purpose: Purpose::Look };
        if let Ok(Some(found)) = self.registry.send(find).await? {
            found.actors.worker.send(StartWorker).await.ok();
            if activate && self.services.daemon.config.pi.start.value == PiStart::Attach {
                found.actors.agent.clone().send(StartAgent(found)).await.ok();
            }
        }
        Ok(data)
    }
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

/// Returns the values of a session that may have to be created.
pub(super) fn fresh() -> Result<Fresh, MethodError> {
    let session_id = SessionId(quackd_home::new_id().map_err(MethodError::NoRandom)?);
    Ok(Fresh { session_id, now: now_text() })
}

/// Joins two notes.
pub(super) fn joined(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{first}; {second}")),
        (first, second) => first.or(second),
    }
}
