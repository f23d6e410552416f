//! Events for voice clients and the followers of their sessions.

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
    /// Sends the user's prompt to the voice client that owns a session, and notifies the followers. `None` if the
    /// session has no owner: another handler takes the prompt.
    pub(crate) fn route_say(
        &self,
        session: &SessionId,
        message: &Value,
    ) -> Option<Result<(), MethodError>> {
        let owner = self.registered.borrow().owner(session)?;

        let kind = "message_start";
        let timestamp = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ");

        self.events.publish(session, kind, || {
            let timestamp = timestamp.to_string();
            let message = SaidMessage { role: "user", content: message, timestamp };
            SaidMessageStart { kind, message }
        });

        let is_queued = self.notify(&owner, session, "voice_say", VoiceSayEvent { text: message });
        Some(if is_queued { Ok(()) } else { Err(MethodError::VoiceGone) })
    }

    /// Notifies a session's followers of the voice client's state.
    pub(super) fn notify_status(&self, session: &SessionId, state: VoiceState) {
        let kind = "extension_ui_request";
        self.events.publish(session, kind, || VoiceStatus {
            kind,
            id: format!("voice-state-{}", jiff::Timestamp::now().as_millisecond()),
            method: "setStatus",
            message: format!("voice:{}", state.as_str()),
        });
    }

    pub(super) fn notify_start(&self, client: &ClientId, session: &SessionId) {
        let kind = "voice_start";
        self.notify(client, session, kind, VoiceStartEvent { kind, session_id: session });
    }

    pub(super) fn notify_stop(&self, client: &ClientId, session: &SessionId, reason: &'static str) {
        let kind = "voice_stop";
        self.notify(client, session, kind, VoiceStopEvent { kind, reason, session_id: session });
    }

    pub(super) fn notify_session_changed(&self, client: &ClientId, session: &VoiceSession) {
        let kind = "voice_session_changed";
        let VoiceSession { id, name, path } = session;
        let data =
            VoiceSessionChanged { kind, session_id: id, session_name: name, workspace_path: path };
        self.notify(client, id, kind, data);
    }

    /// Returns whether the event was queued. If not, the client is being disconnected, and the disconnect handles the
    /// consequences.
    fn notify<D: Serialize>(
        &self,
        client: &ClientId,
        session: &SessionId,
        event: &'static str,
        data: D,
    ) -> bool {
        let line = wire::event(&ToldLine { event, session_id: session, data });
        self.clients.push(client, line).is_ok()
    }
}
