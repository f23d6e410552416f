//! `quack.kill`: kills the worker of a session for the user.

use super::attach::named;
use super::find::label;
use super::{Caller, Serve};
use crate::children::Kill;
use crate::errors::MethodError;
use crate::registry::Purpose;
use quackd_protocol::client::{KillData, KillParams, SessionParams};

impl Serve<KillParams> for Caller {
    async fn serve(
        &self,
        KillParams(SessionParams { session_id }): KillParams,
    ) -> Result<KillData, MethodError> {
        // The client must name the session: there is no default.
        let reference = named(session_id.as_deref(), None, self).await?;
        let reference = reference.ok_or(MethodError::NoReference)?;
        let found = self.session(Some(reference), Purpose::Look).await?;
        if !found.actors.worker.send(Kill).await? {
            return Err(MethodError::NothingToKill);
        }

        let label = label(self, &found.session_id).await?;
        Ok(KillData { session_id: found.session_id, session_name: found.session_name, label })
    }
}
