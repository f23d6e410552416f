//! Which clients are connected, and how to tell one of them something without being asked.
//!
//! Owns: an entry for each client that has a connection, from its first line to its last. The connection
//! ([`crate::clients::connection`]) makes the entry and ends it; [`crate::voice`] and the doors of other transports
//! find clients by it. Not an actor: everything here is a function call on the actors' thread.
//!
//! Bounded by the connections: the listener accepts so many, every other door as many as it says itself.

use crate::methods::Caller;
use crate::wire::client_outbox::{Gone, Outbox};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};

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
}

impl Client {
    /// A client with a name of its own.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn new(transport: Transport, outbox: Option<Outbox>) -> io::Result<Rc<Self>> {
        let id = ClientId(quackd_home::new_id()?.into());
        Ok(Rc::new(Self { id, transport, outbox }))
    }
}

/// The connected clients. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    connected: RefCell<HashMap<ClientId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    client: Rc<Client>,
    caller: Weak<Caller>,
}

impl Clients {
    /// Whether the client is still there.
    pub(crate) fn is_connected(&self, id: &ClientId) -> bool {
        self.connected.borrow().contains_key(id)
    }

    /// From now on the client can be found; [`Connected`] ends it.
    pub(crate) fn add(&self, client: Rc<Client>, caller: Weak<Caller>) {
        let id = client.id.clone();
        self.connected.borrow_mut().insert(id, Entry { client, caller });
    }

    /// The caller that belongs to a client's connection.
    pub(crate) fn caller(&self, id: &str) -> Option<Rc<Caller>> {
        self.connected.borrow().get(&ClientId(id.into()))?.caller.upgrade()
    }

    /// Tells one client something. It is not waited for; see [`Outbox::tell`].
    pub(crate) fn tell(&self, id: &ClientId, line: Bytes) -> Result<(), Gone> {
        let connected = self.connected.borrow();
        let outbox = connected.get(id).and_then(|entry| entry.client.outbox.as_ref());
        outbox.ok_or(Gone)?.tell(line)
    }
}

/// Being connected. Ends when it is dropped: the client is forgotten, and what was kept for it with it.
#[derive(Debug)]
pub(crate) struct Connected {
    caller: Rc<Caller>,
}

impl Connected {
    /// From now on the client can be found.
    pub(crate) fn new(caller: Rc<Caller>) -> Self {
        caller.services.clients.add(Rc::clone(&caller.client), Rc::downgrade(&caller));
        Self { caller }
    }

    /// Whose connection it is.
    pub(crate) fn caller(&self) -> &Rc<Caller> {
        &self.caller
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let clients = &self.caller.services.clients;
        // Dropped after the borrow has ended.
        let _entry = clients.connected.borrow_mut().remove(&self.caller.client.id);
        self.caller.leave();
    }
}
