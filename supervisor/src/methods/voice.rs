//! `voice_connect`, `voice_start`, `voice_state`: requests of voice clients. Reads the parameters and looks up the
//! session. [`crate::voice`] implements them.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::Purpose;
use crate::voice::VoiceSession;
use crate::wire::{js_string, reference, truthy};
use quackd_protocol::client::{
    LOCAL_APP, NoData, VoiceConnectData, VoiceConnectParams, VoiceStartData, VoiceStartParams,
    VoiceState, VoiceStateParams,
};
use serde_json::Value;

impl Serve<VoiceConnectParams> for Caller {
    async fn serve(&self, params: VoiceConnectParams) -> Result<VoiceConnectData, MethodError> {
        let VoiceConnectParams { client_type, takeover, .. } = params;
        let kind =
            if truthy(&client_type) { js_string(&client_type) } else { LOCAL_APP.to_owned() };
        let voice = &self.services.voice;

        // Connect before the lookup, so that a concurrent change of the active session is reported.
        voice.connect(&self.client, &kind, truthy(&takeover))?;
        let active = session(self, None).await?;
        Ok(voice.bind(&self.client.id, active))
    }
}

impl Serve<VoiceStartParams> for Caller {
    async fn serve(&self, params: VoiceStartParams) -> Result<VoiceStartData, MethodError> {
        let VoiceStartParams { session_id } = params;
        let found = session(self, reference(&session_id)).await?;
        let session = found.ok_or(MethodError::NoSessionForVoiceStart)?;
        Ok(self.services.voice.start(session, self.client.transport))
    }
}

impl Serve<VoiceStateParams> for Caller {
    /// The reply has no data.
    async fn serve(&self, params: VoiceStateParams) -> Result<NoData, MethodError> {
        let VoiceStateParams { state, session_id } = params;
        let (voice, client) = (&self.services.voice, &self.client.id);
        let bound = voice.bound(client).ok_or(MethodError::NoVoiceClient)?;
        let state = known(&state)?;

        let target = match reference(&session_id) {
            Some(reference) => session(self, Some(reference)).await?,
            None => bound,
        };
        let target = target.ok_or(MethodError::NoSessionForVoiceState)?;

        let active = if state == VoiceState::Idle { session(self, None).await? } else { None };
        voice.set_state(client, state, &target, active)?;
        Ok(NoData)
    }
}

fn known(state: &Value) -> Result<VoiceState, MethodError> {
    state.as_str().and_then(VoiceState::named).ok_or_else(|| {
        MethodError::UnknownVoiceState(match state {
            Value::Null => "none".to_owned(),
            // The text is for display, and the value may be very long.
            other => js_string(other).chars().take(100).collect(),
        })
    })
}

/// Finds the session of a reference. Without a reference, the active one.
async fn session(
    caller: &Caller,
    reference: Option<String>,
) -> Result<Option<VoiceSession>, MethodError> {
    Ok(caller.find(reference, Purpose::Look).await?.map(VoiceSession::from))
}
