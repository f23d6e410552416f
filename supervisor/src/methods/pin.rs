//! `quack.pin`: exempts a session's processes from idle eviction, or ends the exemption.

use super::attach::named;
use super::find::label;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::{Purpose, SessionChange};
use quackd_protocol::client::{PinData, PinParams};

impl Serve<PinParams> for Caller {
    async fn serve(&self, params: PinParams) -> Result<PinData, MethodError> {
        let PinParams { session_id, pinned } = params;
        let reference = named(session_id.as_deref(), None, self).await?;
        let found = self.session(reference, Purpose::Look).await?;
        let pinned = pinned.unwrap_or(true);
        self.change(&found.session_id, SessionChange::Pinned(pinned)).await?;

        let label = label(self, &found.session_id).await?;
        Ok(PinData {
            session_id: found.session_id,
            session_name: found.session_name,
            label,
            pinned,
        })
    }
}
