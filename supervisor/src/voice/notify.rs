//! What voice clients, and the followers of their sessions, are told.

use super::Voice;
use super::VoiceSession;
use crate::errors::MethodError;
use crate::events::client_registry::ClientId;
use crate::wire;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    SaidMessage, SaidMessageStart, ToldLine, VoiceSayEvent, VoiceSessionChanged, VoiceStartEvent,
    VoiceState, VoiceStatus, VoiceStopEvent,
};
use serde::Serialize;
use serde_json::Value;

impl Voice {
    /// Gives what a person wrote to the voice client that owns a session; its followers are told of it.
    /// `None` if nobody owns it: then it is for somebody else.
    pub(crate) fn route_say(
        &self,
        session: &SessionId,
        message: &Value,
    ) -> Option<Result<(), MethodError>> {
        let owner = {
            let registered = self.registered.borrow();
            registered.iter().find(|entry| entry.owns(session))?.client.clone()
        };
        let kind = "message_start";
        let timestamp = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
        self.events.publish(session, kind, || {
            let timestamp = timestamp.to_string();
            let message = SaidMessage { role: "user", content: message, timestamp };
            SaidMessageStart { kind, message }
        });
        let told = self.tell(&owner, session, "voice_say", VoiceSayEvent { text: message });
        Some(if told { Ok(()) } else { Err(MethodError::VoiceGone) })
    }

    /// Tells a session's followers what its voice client does.
    pub(super) fn tell_status(&self, session: &SessionId, state: VoiceState) {
        let kind = "extension_ui_request";
        self.events.publish(session, kind, || VoiceStatus {
            kind,
            id: format!("voice-state-{}", jiff::Timestamp::now().as_millisecond()),
            method: "setStatus",
            message: format!("voice:{}", state.as_str()),
        });
    }

    pub(super) fn tell_start(&self, client: &ClientId, session: &SessionId) {
        let kind = "voice_start";
        self.tell(client, session, kind, VoiceStartEvent { kind, session_id: session });
    }

    pub(super) fn tell_stop(&self, client: &ClientId, session: &SessionId, reason: &'static str) {
        let kind = "voice_stop";
        self.tell(client, session, kind, VoiceStopEvent { kind, reason, session_id: session });
    }

    pub(super) fn tell_session_changed(&self, client: &ClientId, session: &VoiceSession) {
        let kind = "voice_session_changed";
        let VoiceSession { id, name, path } = session;
        let data =
            VoiceSessionChanged { kind, session_id: id, session_name: name, workspace_path: path };
        self.tell(client, id, kind, data);
    }

    /// Whether it is on its way. If not, the client is about to be disconnected, or is so already; what
    /// follows from that happens then.
    fn tell<D: Serialize>(
        &self,
        client: &ClientId,
        session: &SessionId,
        event: &'static str,
        data: D,
    ) -> bool {
        let line = wire::told(&ToldLine { event, session_id: session, data });
        self.clients.tell(client, line).is_ok()
    }
}
