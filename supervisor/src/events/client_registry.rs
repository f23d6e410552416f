//! The connected clients: the session that each of them follows, and the sessions that it claimed.
//!
//! The connection adds a client and removes it. [`crate::voice`] and remote control look clients up by id. Not an
//! actor: every function runs on the actors' thread. Bounded by the connections that the listeners accept.

use super::Follower;
use super::answerers::Watched;
use super::claims::Claims;
use super::named_calls::NamedCalls;
use super::sent_rows::SentRows;
use super::viewing::Viewings;
use crate::clock::now_text;
use crate::wire::client_outbox::{ClientGone, ClientOutbox};
use bytes::Bytes;
use quackd_protocol::SessionId;
use quackd_protocol::client::HelloParams;
use quackd_remote::Page;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// Id of a connection. Random, because a remote client that sends another client's id may act for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(Arc<str>);

impl ClientId {
    /// Returns the text of the id, which remote clients receive.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Transport of a client. Some methods are only for local clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The Unix socket.
    Socket,
    /// A WebSocket of remote control.
    RemoteWs,
    /// One HTTP request of remote control. It receives no events, only its reply.
    RemoteHttp,
}

/// A client of the daemon.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) transport: Transport,
    /// Queue to the client. `None` if it receives only a reply.
    pub(crate) outbox: Option<ClientOutbox>,
    /// The session that this client follows. Following again replaces it.
    following: RefCell<Option<Follower>>,
    /// Number of the client's last request about following. That request decides, regardless of the order in which
    /// lookups finish.
    turn: Cell<u64>,
    /// Running calls to which the client gave an id.
    pub(crate) named_calls: NamedCalls,
    /// The last `quack.hello` of the client.
    hello: RefCell<Option<Arc<HelloParams>>>,
    pub(crate) claims: Claims,
    /// Sessions whose questions about permissions the client gets.
    pub(crate) watched: Watched,
    /// Terminals that the client is attached to.
    pub(crate) viewings: Viewings,
    /// Rows of sessions that the client has.
    pub(crate) sent_rows: SentRows,
    /// Process of a local client, for display.
    pub(crate) pid: Cell<Option<u32>>,
    /// The page whose token the client has. Empty for other clients.
    pub(crate) page: OnceCell<Page>,
    /// ISO 8601 UTC.
    pub(crate) connected_at: String,
    /// Tool calls since the client named itself, and those of them without a reply.
    pub(crate) calls: Cell<u64>,
    pub(crate) calls_running: Cell<usize>,
}

impl Client {
    /// Returns the name for display: that of the client's `quack.hello`, else that of its program.
    pub(crate) fn shown_name(&self) -> String {
        if let Some(page) = self.page.get() {
            return format!("the page {}", page.id);
        }
        match (self.pid.get(), self.own_name()) {
            (Some(pid), own) => match own.or_else(|| program_of(pid)) {
                Some(name) => format!("{name} (process {pid})"),
                None => format!("process {pid}"),
            },
            (None, Some(name)) => name,
            (None, None) if self.transport == Transport::Socket => "a local client".to_owned(),
            (None, None) => "a remote client".to_owned(),
        }
    }

    /// Creates a client with a new id.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn new(transport: Transport, outbox: Option<ClientOutbox>) -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self {
            id: ClientId(quackd_home::new_id()?.into()),
            transport,
            outbox,
            following: RefCell::default(),
            turn: Cell::default(),
            named_calls: NamedCalls::default(),
            hello: RefCell::default(),
            claims: Claims::default(),
            watched: Watched::default(),
            viewings: Viewings::default(),
            sent_rows: SentRows::default(),
            pid: Cell::default(),
            page: OnceCell::new(),
            connected_at: now_text(),
            calls: Cell::default(),
            calls_running: Cell::default(),
        }))
    }

    /// Returns the client's last `quack.hello`. `None` before the first.
    pub(crate) fn hello(&self) -> Option<Arc<HelloParams>> {
        self.hello.borrow().clone()
    }

    /// Returns the name that the client gave itself with `quack.hello`. `None` before the first.
    pub(crate) fn own_name(&self) -> Option<String> {
        self.hello.borrow().as_ref().map(|hello| hello.client.name.clone())
    }

    /// Stores a `quack.hello`, which replaces an earlier one.
    pub(crate) fn set_hello(&self, hello: HelloParams) {
        self.hello.replace(Some(Arc::new(hello)));
    }

    /// Returns the number for a new request about following. Requests with earlier numbers no
    /// longer count.
    pub(crate) fn next_follow_generation(&self) -> u64 {
        self.turn.set(self.turn.get() + 1);
        self.turn.get()
    }

    /// Replaces the session that this client follows, unless a later request has already decided.
    pub(crate) fn set_following(&self, turn: u64, following: Option<Follower>) {
        // An earlier request, whose look-up took longer, must not undo a later one.
        if turn == self.turn.get() {
            drop(self.following.replace(following));
        }
    }

    /// Ends following, and returns the session that the client followed. A request about following that is still
    /// running no longer counts.
    pub(crate) fn stop_following(&self) -> Option<SessionId> {
        self.next_follow_generation();
        self.following.take().map(|following| following.session().clone())
    }

    /// Call this after queuing a reply: the events that it announced may follow it.
    pub(crate) fn replied(&self) {
        let Some(outbox) = &self.outbox else { return };
        if let Some(following) = self.following.borrow_mut().as_mut() {
            following.start(outbox);
        }
        self.viewings.start(outbox);
    }
}

/// Returns the name of a process's program, which the process may choose. `None` if it has exited,
/// or without procfs.
fn program_of(pid: u32) -> Option<String> {
    // The kernel limits the name to 15 bytes, and the read does not wait.
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let is_plain = |c: &char| c.is_ascii_graphic() && !matches!(c, '(' | ')');
    let name: String = String::from_utf8_lossy(&name).chars().filter(is_plain).take(15).collect();
    (!name.is_empty()).then_some(name)
}

/// The connected clients. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    connected: RefCell<HashMap<ClientId, Rc<Client>>>,
}

impl Clients {
    /// Returns whether the client is still connected.
    pub(crate) fn is_connected(&self, id: &ClientId) -> bool {
        self.connected.borrow().contains_key(id)
    }

    /// Adds a client. The connection calls [`Clients::remove`] when it ends.
    pub(crate) fn add(&self, client: &Rc<Client>) {
        self.connected.borrow_mut().insert(client.id.clone(), Rc::clone(client));
    }

    /// Removes a client.
    pub(crate) fn remove(&self, id: &ClientId) {
        // Drop the client after the borrow has ended.
        let _client = self.connected.borrow_mut().remove(id);
    }

    /// Returns the connected client with this id.
    pub(crate) fn get(&self, id: &str) -> Option<Rc<Client>> {
        self.connected.borrow().get(&ClientId(id.into())).cloned()
    }

    /// Returns the connected clients that named themselves, the first connected first.
    pub(crate) fn named(&self) -> Vec<(Arc<HelloParams>, Rc<Client>)> {
        let connected = self.connected.borrow();
        let mut named: Vec<_> = connected
            .values()
            .filter_map(|client| Some((client.hello()?, Rc::clone(client))))
            .collect();
        named.sort_by(|(_, a), (_, b)| a.connected_at.cmp(&b.connected_at));
        named
    }

    /// Returns the sessions that connected clients have claimed.
    pub(crate) fn claimed(&self) -> HashSet<SessionId> {
        self.connected.borrow().values().flat_map(|client| client.claims.all()).collect()
    }

    /// Sends an event to the clients that watch questions about permissions of a session. A client that does not read is
    /// disconnected.
    pub(crate) fn push_to_watchers(&self, session: &SessionId, line: &Bytes) {
        for client in self.connected.borrow().values() {
            if client.watched.is_for(session)
                && let Some(outbox) = &client.outbox
            {
                // A closed outbox means that the client is gone.
                outbox.push(line.clone()).ok();
            }
        }
    }

    /// Sends an event to one client without waiting; see [`ClientOutbox::push`].
    pub(crate) fn push(&self, id: &ClientId, line: Bytes) -> Result<(), ClientGone> {
        let connected = self.connected.borrow();
        let outbox = connected.get(id).and_then(|client| client.outbox.as_ref());
        outbox.ok_or(ClientGone)?.push(line)
    }
}
