//! `abort`: ends every running call of a session, and the turn of its Pi.

use super::{AnySession, Caller};
use crate::errors::MethodError;
use crate::registry::{FindSession, Purpose};
use crate::session::actor::TellSession;
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
    if !found.handle.send(TellSession::Abort).await? {
        return Err(MethodError::NothingToAbort);
    }
    Ok(AbortData { session_id: found.session_id, session_name: found.session_name })
}
