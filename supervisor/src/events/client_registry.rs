//! The connected clients, and the session that each of them follows.
//!
//! The connection adds a client and removes it. [`crate::voice`] and remote control look clients up by id. Not an
//! actor: every function runs on the actors' thread. Bounded by the connections that the listeners accept.

use super::Following;
use super::named_calls::NamedCalls;
use crate::wire::client_outbox::{Gone, Outbox};
use bytes::Bytes;
use quackd_protocol::SessionId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

/// One connection's name while it lasts. Not to be guessed: who knows it may speak for that client
/// where a door allows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(Rc<str>);

impl ClientId {
    /// As remote clients are told it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// By which door a client came in. Some methods are for local clients only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The Unix socket.
    Socket,
    /// A WebSocket of the remote door.
    RemoteWs,
    /// One HTTP request of the remote door; nothing can be told to it but the answer.
    RemoteHttp,
}

/// Who asks.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its name.
    pub(crate) id: ClientId,
    /// Its door.
    pub(crate) transport: Transport,
    /// The way to it; `None` if it cannot be told anything but an answer.
    pub(crate) outbox: Option<Outbox>,
    /// The session that this client follows. Following again replaces it.
    following: RefCell<Option<Following>>,
    /// Number of the client's last request about following. That request decides, not the one whose look-ups take
    /// longest.
    turn: Cell<u64>,
    /// Calls of this client that it named.
    pub(crate) named_calls: NamedCalls,
}

impl Client {
    /// A client with a name of its own.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn new(transport: Transport, outbox: Option<Outbox>) -> io::Result<Rc<Self>> {
        let id = ClientId(quackd_home::new_id()?.into());
        let (following, turn) = (RefCell::new(None), Cell::new(0));
        Ok(Rc::new(Self {
            id,
            transport,
            outbox,
            following,
            turn,
            named_calls: NamedCalls::default(),
        }))
    }

    /// Another request about following has come.
    pub(crate) fn take_turn(&self) -> u64 {
        self.turn.set(self.turn.get() + 1);
        self.turn.get()
    }

    /// Replaces what this client follows, unless a later request has decided already.
    pub(crate) fn set_following(&self, turn: u64, following: Option<Following>) {
        if turn == self.turn.get() {
            drop(self.following.replace(following));
        }
    }

    /// Ends following, and returns the session that the client followed. A request about following that is still
    /// running no longer counts.
    pub(crate) fn stop_following(&self) -> Option<SessionId> {
        self.take_turn();
        self.following.take().map(|following| following.session().clone())
    }

    /// A reply is in the outbox: the events that it announced may follow it.
    pub(crate) fn replied(&self) {
        let mut following = self.following.borrow_mut();
        if let (Some(following), Some(outbox)) = (following.as_mut(), &self.outbox) {
            following.start(outbox);
        }
    }
}

/// The connected clients. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    connected: RefCell<HashMap<ClientId, Rc<Client>>>,
}

impl Clients {
    /// Whether the client is still there.
    pub(crate) fn is_connected(&self, id: &ClientId) -> bool {
        self.connected.borrow().contains_key(id)
    }

    /// Adds a client. The connection calls [`Clients::remove`] at its end.
    pub(crate) fn add(&self, client: &Rc<Client>) {
        self.connected.borrow_mut().insert(client.id.clone(), Rc::clone(client));
    }

    /// Removes a client.
    pub(crate) fn remove(&self, id: &ClientId) {
        // Dropped after the borrow has ended.
        let _client = self.connected.borrow_mut().remove(id);
    }

    /// The connected client with this id.
    pub(crate) fn get(&self, id: &str) -> Option<Rc<Client>> {
        self.connected.borrow().get(&ClientId(id.into())).cloned()
    }

    /// Tells one client something. It is not waited for; see [`Outbox::tell`].
    pub(crate) fn tell(&self, id: &ClientId, line: Bytes) -> Result<(), Gone> {
        let connected = self.connected.borrow();
        let outbox = connected.get(id).and_then(|client| client.outbox.as_ref());
        outbox.ok_or(Gone)?.tell(line)
    }
}
