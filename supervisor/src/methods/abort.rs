//! `abort`: ends every running call of a session, and the turn of its Pi.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::Purpose;
use crate::session::messages::TellSession;
use crate::wire::reference;
use quackd_protocol::client::{AbortData, AbortParams, AnySession};
use tokio::sync::oneshot;

impl Serve<AbortParams> for Caller {
    async fn serve(&self, AnySession { session_id }: AnySession) -> Result<AbortData, MethodError> {
        let found = self.find(reference(&session_id), Purpose::Look).await?;
        let found = found.ok_or(MethodError::NoSessionToAbort)?;

        let (reply, work) = oneshot::channel();
        if !found.handle.send(TellSession::Abort(reply)).await? {
            return Err(MethodError::NothingToAbort);
        }

        // Without a reply, the session was deleted: the abort succeeded, but its work is unknown.
        let work = work.await.ok();
        let (calls, turn) = work.as_ref().map(|work| (work.calls.len(), work.turn)).unzip();
        let (ended, jobs) = work.map(|work| (work.calls, work.jobs)).unwrap_or_default();
        Ok(AbortData {
            session_id: found.session_id,
            session_name: found.session_name,
            calls,
            turn,
            ended,
            jobs,
        })
    }
}
