//! `attach`: finds or creates the session of a directory, and activates it by default.

use super::caller::SAVE_LIMIT;
use super::directories::{look_up_noted, own_path};
use super::find::{id_of, own_reference};
use super::{Caller, Serve};
use crate::clock::now_text;
use crate::errors::MethodError;
use crate::registry::catalog::Fresh;
use crate::registry::{AgentChange, Open, OpenSession, Purpose};
use crate::session::agent::StartAgent;
use crate::session::worker::StartWorker;
use crate::voice::VoiceSession;
use quackd_config::PiStart;
use quackd_protocol::SessionId;
use quackd_protocol::client::{AttachData, AttachParams, LOCAL_POLICY};
use serde_json::Value;
use std::path::PathBuf;

impl Serve<AttachParams> for Caller {
    async fn serve(&self, params: AttachParams) -> Result<AttachData, MethodError> {
        let AttachParams { path, activate, safe_mode, own } = params;
        let path = match path {
            None | Some(Value::Null) => self.services.daemon.started_in.clone(),
            Some(Value::String(path)) => PathBuf::from(path),
            Some(_) => return Err(MethodError::PathNotText),
        };
        // Remote clients must not disable the safe mode of a session.
        if safe_mode == Some(false) && !self.is_local() {
            return Err(MethodError::LocalOnly(LOCAL_POLICY));
        }

        let activate = activate.unwrap_or(true);
        let kind = if own == Some(true) { Open::Own } else { Open::Existing };
        let data = open_path(self, path, kind, activate, safe_mode).await?;
        if activate {
            self.services.voice.session_changed(&VoiceSession::from(&data));
        }

        // Start the worker and Pi now, so that they are ready for the first call. The reply does not wait for them.
        let reference = Some(data.session.id.0.clone());
        if let Ok(Some(found)) = self.find(reference, Purpose::Look).await {
            found.actors.worker.send(StartWorker).await.ok();
            if activate && self.services.daemon.config.pi.start.value == PiStart::Attach {
                found.actors.agent.clone().send(StartAgent(found)).await.ok();
            }
        }
        Ok(data)
    }
}

/// Opens the session of a directory.
async fn open_path(
    caller: &Caller,
    path: PathBuf,
    kind: Open,
    activate: bool,
    safe_mode: Option<bool>,
) -> Result<AttachData, MethodError> {
    let (path, note) = look_up_noted(caller, path).await?;
    let open = OpenSession { activate, safe_mode, ..opening(caller, path, kind)? };
    let data = caller.registry.send(open).timeout(SAVE_LIMIT).await??;
    Ok(AttachData { note: joined(note, data.note), ..data })
}

/// Returns the request to open a session of a workspace, with the defaults for this client. A session that has to be
/// created gets a new id.
pub(super) fn opening(
    caller: &Caller,
    path: String,
    kind: Open,
) -> Result<OpenSession, MethodError> {
    let session_id = SessionId(quackd_home::new_id().map_err(MethodError::NoRandom)?);
    Ok(OpenSession {
        path,
        kind,
        activate: false,
        safe_mode: None,
        agent: AgentChange::default(),
        restrictions: caller.restrictions(),
        client: None,
        isolated: None,
        created: None,
        fresh: Fresh { session_id, now: now_text() },
    })
}

/// Returns the reference of the session that quackd's own methods act on: `id`, or the session of the directory `path`,
/// which is created if it is missing. `None` means the active session: the request has neither.
///
/// # Errors
/// `NoReference` and `EmptyPath` for empty values, which must not mean another session; of [`open_path`].
pub(super) async fn named(
    id: Option<&str>,
    path: Option<&str>,
    caller: &Caller,
) -> Result<Option<String>, MethodError> {
    match (own_reference(id)?, own_path(path)?) {
        (Some(id), _) => Ok(Some(id_of(caller, id).await?)),
        (None, Some(path)) => {
            let data = open_path(caller, path, Open::Existing, false, None).await?;
            Ok(Some(data.session.id.0))
        }
        (None, None) => Ok(None),
    }
}

/// Joins two notes.
pub(super) fn joined(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{first}; {second}")),
        (first, second) => first.or(second),
    }
}
