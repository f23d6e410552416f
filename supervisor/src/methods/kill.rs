//! `quack.kill`: kills the worker of a session for the user.

use super::find::{id_of, label};
use super::{Caller, Serve, own_reference};
use crate::children::Kill;
use crate::errors::MethodError;
use crate::registry::{FindSession, Purpose};
use quackd_protocol::client::{KillData, KillParams, SessionParams};

impl Serve<KillParams> for Caller {
    async fn serve(
        &self,
        KillParams(SessionParams { session_id }): KillParams,
    ) -> Result<KillData, MethodError> {
        // The client must name the session: there is no default.
        let wanted = own_reference(session_id.as_deref())?;
        let wanted = wanted.ok_or(MethodError::NoReference)?;
        let reference = Some(id_of(self, wanted).await?);
        let find = FindSession { reference, purpose: Purpose::Look };
        let found = self.registry.send(find).await??.ok_or(MethodError::NoSession)?;
        if !found.actors.worker.send(Kill).await? {
            return Err(MethodError::NothingToKill);
        }
        let label = label(self, &found.session_id).await?;
        Ok(KillData { session_id: found.session_id, session_name: found.session_name, label })
    }
}
