//! `quack.pin`: exempts a session's processes from idle eviction, or ends the exemption.

use super::attach::named;
use super::find::label;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::{ChangeSession, FindSession, Purpose, SessionChange};
use quackd_protocol::client::{PinData, PinParams};

impl Serve<PinParams> for Caller {
    async fn serve(&self, asked: PinParams) -> Result<PinData, MethodError> {
        let PinParams { session_id, pinned } = asked;
        let reference = named(session_id.as_deref(), None, self).await?;
        let find = FindSession { reference, purpose: Purpose::Look };
        let found = self.registry.send(find).await??.ok_or(MethodError::NoSession)?;
        let pinned = pinned.unwrap_or(true);
        let change = SessionChange::Pinned(pinned);
        let pin = ChangeSession { session: found.session_id.clone(), change };
        self.registry.send(pin).timeout(super::attach::SAVE_LIMIT).await??;
        let label = label(self, &found.session_id).await?;
        Ok(PinData {
            session_id: found.session_id,
            session_name: found.session_name,
            label,
            pinned,
        })
    }
}
