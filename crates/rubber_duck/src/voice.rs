//! The voice clients: programs that record and play speech for a session. Pure. The supervisor looks sessions up and
//! sends the events.
//!
//! The owner of a session is the client that is bound to it and not idle. There is at most one entry for each connected
//! client.

use quackd_protocol::SessionId;
use quackd_protocol::client::{AttachData, VoiceConnectData, VoiceStartData, VoiceState};
use std::time::{Duration, Instant};

/// Maximum length of a client type, in characters.
const MAX_TYPE_CHARS: usize = 64;

/// Maximum time from a request to start until the client starts. A later start has another reason.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// Session data in events for voice clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoiceSession {
    /// Id of the session.
    pub id: SessionId,
    /// Display name, not unique.
    pub name: String,
    /// Absolute path of its workspace.
    pub path: String,
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

/// Reason why a client's state is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoiceRefusal {
    /// The client is not registered.
    NotConnected,
    /// Another client owns the session.
    Taken,
}

/// One voice client.
#[derive(Debug)]
struct Registration<C, T> {
    client: C,
    /// Kind of client, as it reported.
    kind: String,
    bound: Option<VoiceSession>,
    state: VoiceState,
    /// Transport of the client that requested the start, and the time of the request.
    start_request: Option<(T, Instant)>,
}

impl<C, T> Registration<C, T> {
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
        self.start_request = None;
    }
}

/// All voice clients. `C` is the id of a client, and `T` its transport.
#[derive(Debug)]
pub struct VoiceClients<C, T> {
    /// In the order of registration.
    registered: Vec<Registration<C, T>>,
}

impl<C, T> Default for VoiceClients<C, T> {
    fn default() -> Self {
        Self { registered: Vec::new() }
    }
}

impl<C: Clone + PartialEq, T: Copy + PartialEq> VoiceClients<C, T> {
    /// Registers a voice client, idle and without a session. `takeover` unregisters others of the same kind. A client
    /// that is already registered starts again. Returns the sessions that lost their owner.
    pub fn connect(&mut self, client: C, kind: &str, takeover: bool) -> Vec<SessionId> {
        let kind: String = kind.chars().take(MAX_TYPE_CHARS).collect();
        let state = VoiceState::Idle;
        let fresh = Registration { client, kind, bound: None, state, start_request: None };

        let is_replaced = |other: &Registration<C, T>| {
            other.client == fresh.client || (takeover && other.kind == fresh.kind)
        };
        let replaced = self.registered.iter().filter(|other| is_replaced(other));
        let released = replaced.filter_map(Registration::owned).cloned().collect();

        // Without a takeover, only the client's own entry is replaced, and it keeps its place.
        let place = self.registered.iter().position(|other| other.client == fresh.client);
        match place.filter(|_| !takeover).and_then(|at| self.registered.get_mut(at)) {
            Some(entry) => *entry = fresh,
            None => {
                self.registered.retain(|other| !is_replaced(other));
                self.registered.push(fresh);
            }
        }
        released
    }

    /// Binds a newly registered client to the active session, unless an event has already bound it. Returns its
    /// session.
    pub fn bind(&mut self, client: &C, active: Option<VoiceSession>) -> VoiceConnectData {
        let bound = self.entry_mut(client).and_then(|entry| {
            entry.bound = entry.bound.take().or(active);
            entry.bound.clone()
        });
        let (session_id, session_name, workspace_path) = match bound {
            Some(VoiceSession { id, name, path }) => (Some(id), Some(name), Some(path)),
            None => (None, None, None),
        };
        VoiceConnectData { connected: true, session_id, session_name, workspace_path }
    }

    /// Chooses the client that starts in a session without an owner: an idle one that is bound to it, else the first
    /// idle one. `by` is the requesting client's transport. Returns the reply and the chosen client.
    pub fn start(&mut self, session: VoiceSession, by: T) -> (VoiceStartData, Option<C>) {
        let refused = |reason: &str, state| {
            let reason = Some(reason.to_owned());
            (VoiceStartData { reason, state, ..VoiceStartData::default() }, None)
        };
        if let Some(owner) = self.owner_entry(&session.id) {
            return refused("voice_already_active", Some(owner.state));
        }

        let bound = self.registered.iter().position(|r| r.is_idle() && r.is_bound_to(&session.id));
        let chosen = bound.or_else(|| self.registered.iter().position(Registration::is_idle));
        let Some(entry) = chosen.and_then(|at| self.registered.get_mut(at)) else {
            return refused("voice_not_connected", None);
        };

        let session_id = Some(session.id.clone());
        entry.bound = Some(session);
        entry.start_request = Some((by, Instant::now()));
        let data = VoiceStartData { started: true, session_id, ..VoiceStartData::default() };
        (data, Some(entry.client.clone()))
    }

    /// Session of a voice client. The outer value is `None` if the client is not registered.
    #[must_use]
    pub fn bound(&self, client: &C) -> Option<Option<VoiceSession>> {
        self.entry(client).map(|entry| entry.bound.clone())
    }

    /// Kind that a voice client reported.
    #[must_use]
    pub fn kind(&self, client: &C) -> Option<String> {
        self.entry(client).map(|entry| entry.kind.clone())
    }

    /// Client that owns a session.
    #[must_use]
    pub fn owner(&self, session: &SessionId) -> Option<C> {
        self.owner_entry(session).map(|entry| entry.client.clone())
    }

    /// Whether another client owns a session.
    #[must_use]
    pub fn is_owned_by_another(&self, session: &SessionId, client: &C) -> bool {
        self.registered.iter().any(|entry| entry.owns(session) && entry.client != *client)
    }

    /// Updates a voice client's state in the session `target`. A client that becomes idle is bound to the active
    /// session. An idle client that starts is bound to `target`. A busy client keeps its session. Returns the sessions
    /// whose followers get the state.
    ///
    /// # Errors
    /// [`VoiceRefusal`]: nothing has changed.
    pub fn set_state(
        &mut self,
        client: &C,
        state: VoiceState,
        target: &VoiceSession,
        active: Option<VoiceSession>,
    ) -> Result<Vec<SessionId>, VoiceRefusal> {
        if state != VoiceState::Idle && self.is_owned_by_another(&target.id, client) {
            return Err(VoiceRefusal::Taken);
        }

        let mut sessions = vec![target.id.clone()];
        let entry = self.entry_mut(client).ok_or(VoiceRefusal::NotConnected)?;
        match (entry.is_idle(), state) {
            (_, VoiceState::Idle) => {
                // An idle client that reports idle again must not end another client's conversation.
                sessions.retain(|_| !entry.is_idle());
                sessions.extend(entry.owned().filter(|owned| **owned != target.id).cloned());
                entry.be_idle();
                entry.bound = active.or_else(|| Some(target.clone()));
            }
            (true, _) => {
                // The client starts for another reason if the request is old, or for another session.
                let is_same = entry.is_bound_to(&target.id);
                let now = Instant::now();
                entry.start_request.take_if(|(_, at)| !is_same || BEGINS_WITHIN < now - *at);
                entry.bound = Some(target.clone());
                entry.state = state;
            }
            (false, _) => entry.state = state,
        }

        if state == VoiceState::Idle {
            // A session that another client owns keeps that client's state.
            sessions.retain(|session| !self.is_owned_by_another(session, client));
        }
        Ok(sessions)
    }

    /// Binds voice clients to the new active session, if they are idle, have no session, or are already bound to it.
    /// Returns them.
    pub fn session_changed(&mut self, session: &VoiceSession) -> Vec<C> {
        let mut changed = Vec::new();
        for entry in &mut self.registered {
            if entry.is_idle() || entry.bound.is_none() || entry.is_bound_to(&session.id) {
                if !entry.is_bound_to(&session.id) {
                    entry.start_request = None;
                }
                entry.bound = Some(session.clone());
                changed.push(entry.client.clone());
            }
        }
        changed
    }

    /// Client that stops because the last follower of its session, `by`, has left: the owner, if it was started through
    /// the same transport.
    #[must_use]
    pub fn stopped_by(&self, session: &SessionId, by: &C, transport: T) -> Option<C> {
        let owner = self.owner_entry(session)?;
        let is_started = owner.start_request.is_some_and(|(requester, _)| requester == transport);
        (is_started && owner.client != *by).then(|| owner.client.clone())
    }

    /// Unregisters a voice client. Returns the session that lost its owner.
    pub fn forget(&mut self, client: &C) -> Option<SessionId> {
        let at = self.registered.iter().position(|entry| entry.client == *client)?;
        self.registered.remove(at).owned().cloned()
    }

    /// Unbinds the clients of a deleted session. Returns its owner.
    pub fn session_deleted(&mut self, session: &SessionId) -> Option<C> {
        let mut owner = None;
        for entry in self.registered.iter_mut().filter(|entry| entry.is_bound_to(session)) {
            if !entry.is_idle() {
                owner = Some(entry.client.clone());
            }
            entry.be_idle();
            entry.bound = None;
        }
        owner
    }

    fn entry(&self, client: &C) -> Option<&Registration<C, T>> {
        self.registered.iter().find(|entry| entry.client == *client)
    }

    fn entry_mut(&mut self, client: &C) -> Option<&mut Registration<C, T>> {
        self.registered.iter_mut().find(|entry| entry.client == *client)
    }

    fn owner_entry(&self, session: &SessionId) -> Option<&Registration<C, T>> {
        self.registered.iter().find(|entry| entry.owns(session))
    }
}
