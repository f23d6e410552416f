//! `abort`: ends every running call of a session, and the turn of its Pi.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::Purpose;
use crate::session::worker::AbortedCalls;
use crate::wire::reference;
use quackd_protocol::client::{AbortData, AbortParams, AnySession};

impl Serve<AbortParams> for Caller {
    async fn serve(&self, AnySession { session_id }: AnySession) -> Result<AbortData, MethodError> {
        let found = self.find(reference(&session_id), Purpose::Look).await?;
        let found = found.ok_or(MethodError::NoSessionToAbort)?;

        let (AbortedCalls { calls, jobs }, turn) = found.actors.abort().await?;
        if calls.is_empty() && !turn.had_agent {
            return Err(MethodError::NothingToAbort);
        }

        Ok(AbortData {
            session_id: found.session_id,
            session_name: found.session_name,
            calls: Some(calls.len()),
            turn: Some(turn.was_busy),
            ended: calls,
            jobs,
        })
    }
}
