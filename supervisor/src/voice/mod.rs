//! Voice clients: programs that record and play speech for a session.
//!
//! Owns the kind, the bound session and the state of each voice client. Called by the voice methods, when the active
//! session changes, when a client disconnects, and by `say`. Not an actor: every function runs on the actors' thread,
//! so requests and the resulting events keep their order. No function waits: events go to a client's outbox, and a
//! client that does not read is disconnected.
//!
//! The owner of a session is the client that is bound to it and not idle. There is at most one
//! entry for each connected client.

mod notify;
#[cfg(test)]
mod tests;

use crate::errors::MethodError;
use crate::events::Events;
use crate::events::client_registry::{Client, ClientId, Clients, Transport};
use quackd_protocol::SessionId;
use quackd_protocol::client::{AttachData, VoiceConnectData, VoiceStartData, VoiceState};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum length of a client type, in characters.
const MAX_TYPE_CHARS: usize = 64;

/// Maximum time from a request to start until the client starts. A later start has another reason.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// All voice clients. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Voice {
    clients: Rc<Clients>,
    events: Rc<Events>,
    /// In the order of registration.
    registered: RefCell<Vec<Registration>>,
}

/// Session data in events for voice clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VoiceSession {
    pub(crate) id: SessionId,
    pub(crate) name: String,
    pub(crate) path: String,
}

impl From<&AttachData> for VoiceSession {
    fn from(data: &AttachData) -> Self {
        Self {
            id: data.session.id.clone(),
            name: data.session.name.clone(),
            path: data.workspace.path.clone(),
        }
    }
}

/// One voice client.
#[derive(Debug)]
struct Registration {
    client: ClientId,
    /// Kind of client, as it reported.
    kind: String,
    bound: Option<VoiceSession>,
    state: VoiceState,
    /// Transport of the client that requested the start, and the time of the request.
    asked: Option<(Transport, Instant)>,
}

impl Registration {
    fn is_bound_to(&self, session: &SessionId) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.id == *session)
    }

    fn is_idle(&self) -> bool {
        self.state == VoiceState::Idle
    }

    fn owns(&self, session: &SessionId) -> bool {
        !self.is_idle() && self.is_bound_to(session)
    }

    /// The session that it owns.
    fn owned(&self) -> Option<&SessionId> {
        self.bound.as_ref().filter(|_| !self.is_idle()).map(|bound| &bound.id)
    }

    fn be_idle(&mut self) {
        self.state = VoiceState::Idle;
        self.asked = None;
    }
}

impl Voice {
    /// Creates the table without voice clients.
    pub(crate) fn new(clients: Rc<Clients>, events: Rc<Events>) -> Self {
        Self { clients, events, registered: RefCell::default() }
    }

    /// Registers a voice client, idle and without a session. `takeover` unregisters others of the same kind. A client
    /// that is already registered starts again.
    pub(crate) fn connect(
        &self,
        client: &Client,
        kind: &str,
        takeover: bool,
    ) -> Result<(), MethodError> {
        if client.outbox.is_none() || !self.clients.is_connected(&client.id) {
            return Err(MethodError::NoVoiceClient);
        }
        let kind: String = kind.chars().take(MAX_TYPE_CHARS).collect();
        let id = client.id.clone();
        let fresh =
            Registration { client: id, kind, bound: None, state: VoiceState::Idle, asked: None };
        let mut released = Vec::new();
        {
            let mut registered = self.registered.borrow_mut();
            let is_replaced = |other: &Registration| {
                other.client == fresh.client || (takeover && other.kind == fresh.kind)
            };
            let replaced = registered.iter().filter(|other| is_replaced(other));
            released.extend(replaced.filter_map(Registration::owned).cloned());
            let place = registered.iter().position(|other| other.client == fresh.client);
            match place.filter(|_| !takeover).and_then(|at| registered.get_mut(at)) {
                Some(entry) => *entry = fresh,
                None => {
                    registered.retain(|other| !is_replaced(other));
                    registered.push(fresh);
                }
            }
        }
        // Upstream does not send this event: its followers keep seeing a voice client that is gone.
        released.iter().for_each(|session| self.notify_status(session, VoiceState::Idle));
        Ok(())
    }

    /// Binds a newly registered client to the active session, unless an event has already bound it. Returns its
    /// session.
    pub(crate) fn bind(&self, client: &ClientId, active: Option<VoiceSession>) -> VoiceConnectData {
        let mut registered = self.registered.borrow_mut();
        let entry = registered.iter_mut().find(|entry| entry.client == *client);
        let bound = entry.and_then(|entry| {
            if entry.bound.is_none() {
                entry.bound = active;
            }
            entry.bound.clone()
        });
        let (id, name, path) = match bound {
            Some(VoiceSession { id, name, path }) => (Some(id), Some(name), Some(path)),
            None => (None, None, None),
        };
        let (session_id, session_name, workspace_path) = (id, name, path);
        VoiceConnectData { connected: true, session_id, session_name, workspace_path }
    }

    /// Asks a voice client to start in a session without an owner: an idle one that is bound to it, else the first idle
    /// one. `by` is the requesting client's transport.
    pub(crate) fn start(&self, session: VoiceSession, by: Transport) -> VoiceStartData {
        let (id, client) = (session.id.clone(), {
            let mut registered = self.registered.borrow_mut();
            if let Some(owner) = registered.iter().find(|entry| entry.owns(&session.id)) {
                let reason = Some("voice_already_active".to_owned());
                let state = Some(owner.state);
                return VoiceStartData { reason, state, ..VoiceStartData::default() };
            }
            let bound = registered.iter().position(|r| r.is_idle() && r.is_bound_to(&session.id));
            let chosen = bound.or_else(|| registered.iter().position(Registration::is_idle));
            let Some(entry) = chosen.and_then(|at| registered.get_mut(at)) else {
                let reason = Some("voice_not_connected".to_owned());
                return VoiceStartData { reason, ..VoiceStartData::default() };
            };
            entry.bound = Some(session);
            entry.asked = Some((by, Instant::now()));
            entry.client.clone()
        });
        self.notify_start(&client, &id);
        VoiceStartData { started: true, session_id: Some(id), ..VoiceStartData::default() }
    }

    /// Session of a voice client. The outer value is `None` if the client is not registered.
    pub(crate) fn bound(&self, client: &ClientId) -> Option<Option<VoiceSession>> {
        let registered = self.registered.borrow();
        registered.iter().find(|entry| entry.client == *client).map(|entry| entry.bound.clone())
    }

    /// Kind that a voice client reported.
    pub(crate) fn kind(&self, client: &ClientId) -> Option<String> {
        let registered = self.registered.borrow();
        registered.iter().find(|entry| entry.client == *client).map(|entry| entry.kind.clone())
    }

    /// Whether another client owns a session.
    pub(crate) fn is_owned_by_another(&self, session: &SessionId, client: &ClientId) -> bool {
        let registered = self.registered.borrow();
        registered.iter().any(|entry| entry.owns(session) && entry.client != *client)
    }

    /// Updates a voice client's state in the session `target`. A client that becomes idle is bound to the active
    /// session. An idle client that starts is bound to `target`. A busy client keeps its session.
    pub(crate) fn set_state(
        &self,
        client: &ClientId,
        state: VoiceState,
        target: &VoiceSession,
        active: Option<VoiceSession>,
    ) -> Result<(), MethodError> {
        if state != VoiceState::Idle && self.is_owned_by_another(&target.id, client) {
            return Err(MethodError::VoiceTaken);
        }
        let mut told = vec![target.id.clone()];
        {
            let mut registered = self.registered.borrow_mut();
            let entry = registered.iter_mut().find(|entry| entry.client == *client);
            let entry = entry.ok_or(MethodError::NoVoiceClient)?;
            match (entry.is_idle(), state) {
                (_, VoiceState::Idle) => {
                    // An idle client that reports idle again must not end another client's conversation.
                    told.retain(|_| !entry.is_idle());
                    told.extend(entry.owned().filter(|owned| **owned != target.id).cloned());
                    entry.be_idle();
                    entry.bound = active.or_else(|| Some(target.clone()));
                }
                (true, _) => {
                    let is_same = entry.is_bound_to(&target.id);
                    let now = Instant::now();
                    entry.asked.take_if(|(_, at)| !is_same || BEGINS_WITHIN < now - *at);
                    entry.bound = Some(target.clone());
                    entry.state = state;
                }
                (false, _) => entry.state = state,
            }
        }
        if state == VoiceState::Idle {
            told.retain(|session| !self.is_owned_by_another(session, client));
        }
        told.iter().for_each(|session| self.notify_status(session, state));
        Ok(())
    }

    /// Binds voice clients to the new active session and notifies them, if they are idle, have no session, or are
    /// already bound to it.
    pub(crate) fn session_changed(&self, session: &VoiceSession) {
        let mut told = Vec::new();
        for entry in self.registered.borrow_mut().iter_mut() {
            if entry.is_idle() || entry.bound.is_none() || entry.is_bound_to(&session.id) {
                if !entry.is_bound_to(&session.id) {
                    entry.asked = None;
                }
                entry.bound = Some(session.clone());
                told.push(entry.client.clone());
            }
        }
        told.iter().for_each(|client| self.notify_session_changed(client, session));
    }

    /// Handles a client that no longer follows a session. Stops voice if the session has no followers left and voice
    /// was started through the same transport.
    pub(crate) fn unfollowed(&self, session: &SessionId, by: &Client) {
        if self.events.followers(session) != 0 {
            return;
        }
        let began = |entry: &Registration| {
            entry.asked.is_some_and(|(transport, _)| transport == by.transport)
        };
        let owner = {
            let registered = self.registered.borrow();
            let owner = registered.iter().find(|entry| entry.owns(session));
            owner.filter(|o| o.client != by.id && began(o)).map(|o| o.client.clone())
        };
        if let Some(owner) = owner {
            self.notify_stop(&owner, session, "cli_exit");
        }
    }

    /// Unregisters a voice client.
    pub(crate) fn forget(&self, client: &ClientId) {
        let gone = {
            let mut registered = self.registered.borrow_mut();
            let at = registered.iter().position(|entry| entry.client == *client);
            at.map(|at| registered.remove(at))
        };
        if let Some(session) = gone.as_ref().and_then(Registration::owned) {
            self.notify_status(session, VoiceState::Idle);
        }
    }

    /// Unbinds the clients of a deleted session and notifies them.
    pub(crate) fn session_deleted(&self, session: &SessionId) {
        let mut owner = None;
        for entry in self.registered.borrow_mut().iter_mut().filter(|e| e.is_bound_to(session)) {
            if !entry.is_idle() {
                owner = Some(entry.client.clone());
            }
            entry.be_idle();
            entry.bound = None;
        }
        if let Some(owner) = owner {
            self.notify_stop(&owner, session, "session_deleted");
        }
    }
}
