//! Voice clients: who listens and speaks for which session.
//!
//! Owns: what each voice client said about itself, the session that it is bound to, and its state. Called
//! by the methods of voice, by what makes another session the active one, by a client's leaving, and by
//! whoever has text for a session. Not an actor: everything is a function call on the actors' thread, so
//! that what a client says and what is told about it have one order. Nothing here waits: what is told goes
//! to a client's outbox, and one that does not read is disconnected.
//!
//! The owner of a session is the client that is bound to it and not idle. Bounded: at most one entry for
//! each connected client.

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

/// Longest client type that is told from others, in characters.
const MAX_TYPE_CHARS: usize = 64;

/// A client that was asked to begin and does so later than this does it for another reason.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// All voice clients. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Voice {
    clients: Rc<Clients>,
    events: Rc<Events>,
    /// In the order in which they came.
    registered: RefCell<Vec<Registration>>,
}

/// A session as voice clients are told it.
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
    /// What kind of client it says it is.
    kind: String,
    bound: Option<VoiceSession>,
    state: VoiceState,
    /// By which door somebody came who asked it to begin, and when.
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
    /// No voice clients yet.
    pub(crate) fn new(clients: Rc<Clients>, events: Rc<Events>) -> Self {
        Self { clients, events, registered: RefCell::default() }
    }

    /// Makes a client a voice client, idle and bound to nothing; `takeover` makes others of its kind none.
    /// One that was a voice client already begins anew.
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
        // Upstream forgets to tell: its followers keep seeing a voice that is not there.
        released.iter().for_each(|session| self.tell_status(session, VoiceState::Idle));
        Ok(())
    }

    /// Binds a client that has just come to the active session, unless it was told of another meanwhile,
    /// and says how it stands.
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

    /// Asks a voice client to begin in a session, if it has no owner: an idle one that is bound to it, else
    /// the first idle one. `by` is who wants it.
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
        self.tell_start(&client, &id);
        VoiceStartData { started: true, session_id: Some(id), ..VoiceStartData::default() }
    }

    /// Whether a client is a voice client, and the session that it is bound to.
    pub(crate) fn bound(&self, client: &ClientId) -> Option<Option<VoiceSession>> {
        let registered = self.registered.borrow();
        registered.iter().find(|entry| entry.client == *client).map(|entry| entry.bound.clone())
    }

    /// The kind that a voice client said it is.
    pub(crate) fn kind(&self, client: &ClientId) -> Option<String> {
        let registered = self.registered.borrow();
        registered.iter().find(|entry| entry.client == *client).map(|entry| entry.kind.clone())
    }

    /// Whether another client owns a session.
    pub(crate) fn is_owned_by_another(&self, session: &SessionId, client: &ClientId) -> bool {
        let registered = self.registered.borrow();
        registered.iter().any(|entry| entry.owns(session) && entry.client != *client)
    }

    /// A voice client says what it does in the session `target`. One that becomes idle is bound to the
    /// active session; one that begins is bound to `target`; one that is busy stays bound to what it is.
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
                    // An idle client ends nobody's conversation by saying so again.
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
        told.iter().for_each(|session| self.tell_status(session, state));
        Ok(())
    }

    /// Another session is the active one: voice clients that are free, or are in that session, are bound to
    /// it and told.
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
        told.iter().for_each(|client| self.tell_session_changed(client, session));
    }

    /// A client follows a session no more. If nobody does, and somebody who came by its door had voice
    /// begin there, voice ends.
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
            self.tell_stop(&owner, session, "cli_exit");
        }
    }

    /// A client is a voice client no more.
    pub(crate) fn forget(&self, client: &ClientId) {
        let gone = {
            let mut registered = self.registered.borrow_mut();
            let at = registered.iter().position(|entry| entry.client == *client);
            at.map(|at| registered.remove(at))
        };
        if let Some(session) = gone.as_ref().and_then(Registration::owned) {
            self.tell_status(session, VoiceState::Idle);
        }
    }

    /// A session was deleted: whoever was in it is told, and bound to nothing.
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
            self.tell_stop(&owner, session, "session_deleted");
        }
    }
}
