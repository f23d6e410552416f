//! Voice clients: programs that record and play speech for a session.
//!
//! Sends the events of [`VoiceClients`], which has the rules. Called by the voice methods, when the active session
//! changes, when a client disconnects, and by `say`. Not an actor: every function runs on the actors' thread, so
//! requests and the resulting events keep their order. No function waits: events go to a client's outbox, and a client
//! that does not read is disconnected.

#[cfg(test)]
mod tests;

pub(crate) use quackd_rubber_duck::VoiceSession;

use crate::errors::MethodError;
use crate::events::Events;
use crate::events::client_registry::{Client, ClientId, Clients, Transport};
use crate::wire;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    SaidMessage, SaidMessageStart, ToldLine, VoiceConnectData, VoiceSayEvent, VoiceSessionChanged,
    VoiceStartData, VoiceStartEvent, VoiceState, VoiceStatus, VoiceStopEvent,
};
use quackd_rubber_duck::{VoiceClients, VoiceRefusal};
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;

/// All voice clients. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Voice {
    clients: Rc<Clients>,
    events: Rc<Events>,
    registered: RefCell<VoiceClients<ClientId, Transport>>,
}

impl Voice {
    /// Creates the table without voice clients.
    pub(crate) fn new(clients: Rc<Clients>, events: Rc<Events>) -> Self {
        Self { clients, events, registered: RefCell::default() }
    }

    /// Registers a voice client ([`VoiceClients::connect`]).
    pub(crate) fn connect(
        &self,
        client: &Client,
        kind: &str,
        takeover: bool,
    ) -> Result<(), MethodError> {
        // A single HTTP request has no outbox, so it cannot get events.
        if client.outbox.is_none() || !self.clients.is_connected(&client.id) {
            return Err(MethodError::NoVoiceClient);
        }
        let released = self.registered.borrow_mut().connect(client.id.clone(), kind, takeover);
        // Upstream does not send this event: its followers keep seeing a voice client that is gone.
        released.iter().for_each(|session| self.notify_status(session, VoiceState::Idle));
        Ok(())
    }

    /// Binds a newly registered client to the active session ([`VoiceClients::bind`]).
    pub(crate) fn bind(&self, client: &ClientId, active: Option<VoiceSession>) -> VoiceConnectData {
        self.registered.borrow_mut().bind(client, active)
    }

    /// Asks a voice client to start in a session without an owner ([`VoiceClients::start`]).
    pub(crate) fn start(&self, session: VoiceSession, by: Transport) -> VoiceStartData {
        let id = session.id.clone();
        let (data, client) = self.registered.borrow_mut().start(session, by);
        if let Some(client) = client {
            self.notify_start(&client, &id);
        }
        data
    }

    /// Session of a voice client. The outer value is `None` if the client is not registered.
    pub(crate) fn bound(&self, client: &ClientId) -> Option<Option<VoiceSession>> {
        self.registered.borrow().bound(client)
    }

    /// Kind that a voice client reported.
    pub(crate) fn kind(&self, client: &ClientId) -> Option<String> {
        self.registered.borrow().kind(client)
    }

    /// Whether another client owns a session.
    pub(crate) fn is_owned_by_another(&self, session: &SessionId, client: &ClientId) -> bool {
        self.registered.borrow().is_owned_by_another(session, client)
    }

    /// Updates a voice client's state ([`VoiceClients::set_state`]), and notifies the followers.
    pub(crate) fn set_state(
        &self,
        client: &ClientId,
        state: VoiceState,
        target: &VoiceSession,
        active: Option<VoiceSession>,
    ) -> Result<(), MethodError> {
        let sessions = self.registered.borrow_mut().set_state(client, state, target, active);
        let sessions = sessions.map_err(|refusal| match refusal {
            VoiceRefusal::NotConnected => MethodError::NoVoiceClient,
            VoiceRefusal::Taken => MethodError::VoiceTaken,
        })?;
        sessions.iter().for_each(|session| self.notify_status(session, state));
        Ok(())
    }

    /// Binds voice clients to the new active session ([`VoiceClients::session_changed`]), and notifies them.
    pub(crate) fn session_changed(&self, session: &VoiceSession) {
        let changed = self.registered.borrow_mut().session_changed(session);
        changed.iter().for_each(|client| self.notify_session_changed(client, session));
    }

    /// Handles a client that no longer follows a session. Stops voice if the session has no followers left and voice
    /// was started through the same transport.
    pub(crate) fn unfollowed(&self, session: &SessionId, by: &Client) {
        if self.events.followers(session) != 0 {
            return;
        }
        let owner = self.registered.borrow().stopped_by(session, &by.id, by.transport);
        if let Some(owner) = owner {
            self.notify_stop(&owner, session, "cli_exit");
        }
    }

    /// Unregisters a voice client.
    pub(crate) fn forget(&self, client: &ClientId) {
        let released = self.registered.borrow_mut().forget(client);
        if let Some(session) = released {
            self.notify_status(&session, VoiceState::Idle);
        }
    }

    /// Unbinds the clients of a deleted session and notifies the owner.
    pub(crate) fn session_deleted(&self, session: &SessionId) {
        let owner = self.registered.borrow_mut().session_deleted(session);
        if let Some(owner) = owner {
            self.notify_stop(&owner, session, "session_deleted");
        }
    }

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
    fn notify_status(&self, session: &SessionId, state: VoiceState) {
        let kind = "extension_ui_request";
        self.events.publish(session, kind, || VoiceStatus {
            kind,
            id: format!("voice-state-{}", jiff::Timestamp::now().as_millisecond()),
            method: "setStatus",
            message: format!("voice:{}", state.as_str()),
        });
    }

    fn notify_start(&self, client: &ClientId, session: &SessionId) {
        let kind = "voice_start";
        self.notify(client, session, kind, VoiceStartEvent { kind, session_id: session });
    }

    fn notify_stop(&self, client: &ClientId, session: &SessionId, reason: &'static str) {
        let kind = "voice_stop";
        self.notify(client, session, kind, VoiceStopEvent { kind, reason, session_id: session });
    }

    fn notify_session_changed(&self, client: &ClientId, session: &VoiceSession) {
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
