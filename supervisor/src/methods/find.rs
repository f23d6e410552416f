//! `quack.find`: the session that a reference or a directory means, else the active one. Changes nothing.

use super::attach::{look_up, own_path};
use super::own_reference;
use super::{Caller, params};
use crate::errors::MethodError;
use crate::registry::{LabelOf, Which};
use crate::wire::Request;
use quackd_protocol::SessionId;
use quackd_protocol::client::{FindData, FindParams};

pub(super) async fn find(request: &mut Request, caller: &Caller) -> Result<FindData, MethodError> {
    let FindParams { session_id, path } = params(request, "quack.find")?;
    let reference = own_reference(session_id.as_deref())?;
    let directory = match own_path(path.as_deref())? {
        // A directory that is refused, or does not exist, has no session.
        Some(path) => look_up(caller, path).await.ok(),
        None => None,
    };
    Ok(FindData { session: caller.registry.send(Which { reference, directory }).await?? })
}

/// Returns the label of a session for a reply.
pub(super) async fn label(caller: &Caller, session: &SessionId) -> Result<String, MethodError> {
    Ok(caller.registry.send(LabelOf(session.clone())).await?)
}

/// Returns the id of the session that a reference means to quackd's own methods.
pub(super) async fn id_of(caller: &Caller, reference: String) -> Result<String, MethodError> {
    let which = Which { reference: Some(reference.clone()), directory: None };
    let found = caller.registry.send(which).await??;
    found.map(|found| found.session_id.0).ok_or(MethodError::SessionNotFound(reference))
}
