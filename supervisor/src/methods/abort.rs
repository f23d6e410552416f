//! `abort`: ends every running call of a session, and the turn of its Pi.

use super::{AnySession, Caller};
use crate::errors::MethodError;
use crate::registry::{FindSession, Purpose};
use crate::session::pi::AbortTurn;
use crate::session::worker::ControlCalls;
use crate::wire::reference;
use quackd_protocol::client::AbortData;

pub(super) async fn abort(
    AnySession { session_id }: AnySession,
    caller: &Caller,
) -> Result<AbortData, MethodError> {
    let found = caller
        .registry
        .send(FindSession { reference: reference(&session_id), purpose: Purpose::Look })
        .await??
        .ok_or(MethodError::NoSessionToAbort)?;
    let calls = found.handle.send(ControlCalls::Abort).await?;
    let entry = caller.services.sessions.table.get(&found.session_id);
    let is_aborted = match entry.as_ref().and_then(|entry| entry.handle.pi.get()) {
        Some(pi) => pi.send(AbortTurn).await?,
        None => false,
    };
    if calls == 0 && !is_aborted {
        return Err(MethodError::NothingToAbort);
    }
    Ok(AbortData { session_id: found.session_id, session_name: found.session_name })
}
