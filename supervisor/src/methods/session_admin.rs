//! `workspaces`, `activate_session`, `quack.session_new`, `quack.session_delete`: list and change the sessions.

use super::attach::{SAVE_LIMIT, fresh, look_up, own_path};
use super::find::{id_of, label};
use super::{AnySession, Caller, NoParams};
use crate::errors::MethodError;
use crate::registry::{Activate, Delete, Open, OpenSession, TakeSnapshot};
use crate::voice::VoiceSession;
use crate::wire::reference;
use quackd_home::Workspace;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    ActivateData, AttachData, SessionDeleteData, SessionDeleteParams, SessionNewParams,
    WorkspacesData,
};

pub(super) async fn workspaces(
    _: NoParams,
    caller: &Caller,
) -> Result<WorkspacesData, MethodError> {
    let snapshot = caller.registry.send(TakeSnapshot).await?;
    Ok(WorkspacesData { workspaces: snapshot.workspaces(&caller.services.sessions) })
}

pub(super) async fn activate_session(
    AnySession { session_id }: AnySession,
    caller: &Caller,
) -> Result<ActivateData, MethodError> {
    // Upstream treats an absent reference like an unknown one.
    let reference = reference(&session_id).unwrap_or_default();
    let data = caller.registry.send(Activate { reference }).timeout(SAVE_LIMIT).await??;
    let (id, name) = (data.session.id.clone(), data.session.name.clone());
    let path = data.workspace.path.clone();
    caller.services.voice.session_changed(&VoiceSession { id, name, path });
    Ok(data)
}

pub(super) async fn session_new(
    SessionNewParams { path, name, activate, safe_mode }: SessionNewParams,
    caller: &Caller,
) -> Result<AttachData, MethodError> {
    let path =
        own_path(path.as_deref())?.unwrap_or_else(|| caller.services.daemon.started_in.clone());
    let Workspace { path, foreign, .. } = look_up(caller, path).await?;
    let activate = activate.unwrap_or(false);
    let new = OpenSession { path, kind: Open::New(name), activate, safe_mode, fresh: fresh()? };
    let data = caller.registry.send(new).timeout(SAVE_LIMIT).await??;
    let label = label(caller, &data.session.id).await?;
    let data = AttachData { note: foreign.map(|foreign| foreign.to_string()), label, ..data };
    if activate {
        caller.services.voice.session_changed(&VoiceSession::from(&data));
    }
    Ok(data)
}

pub(super) async fn session_delete(
    SessionDeleteParams { session_id, force }: SessionDeleteParams,
    caller: &Caller,
) -> Result<SessionDeleteData, MethodError> {
    let reference = reference(&session_id).ok_or(MethodError::NoReference)?;
    let reference = id_of(caller, reference).await?;
    let label = label(caller, &SessionId(reference.clone())).await?;
    let delete = Delete::Session { reference: reference.clone(), force: force.unwrap_or(false) };
    let deleted = caller.registry.send(delete).timeout(SAVE_LIMIT).await??;
    let deleted = deleted.ok_or(MethodError::SessionNotFound(reference))?;
    caller.services.interrupted.resumed(&deleted.session.id);
    Ok(SessionDeleteData { label, ..deleted })
}
