//! State that all connections share: the current listener, peers and tasks. State of one connection.

use crate::attempt_limiter::network;
use crate::gate::TokenVerifier;
use crate::host_header::{DialedHost, Urls};
use crate::settings::Settings;
use crate::{Ask, Page, Pages};
use hyper::HeaderMap;
use quackd_protocol::client::RemoteStatus;
use quackd_protocol::limits::{
    MAX_REMOTE_CLIENTS, MAX_REMOTE_CONNECTIONS_PER_PEER, MAX_UNAUTHENTICATED_CLIENTS,
    MAX_UNFINISHED_BYTES,
};
use quackd_supervision::Budget;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// State that exists for the lifetime of the thread.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) asks: mpsc::Sender<Ask>,
    /// Number of clients with an open WebSocket.
    pub(crate) connected: Arc<AtomicUsize>,
    /// Slots for WebSockets.
    pub(crate) sockets: Arc<Semaphore>,
    /// WebSockets whose client has not sent its token yet.
    pub(crate) unauthenticated: WaitingRoom,
    /// The valid page tokens.
    pub(crate) pages: watch::Receiver<Pages>,
    /// Messages of WebSockets that are not complete.
    pub(crate) unfinished: Arc<Budget<CancellationToken>>,
    /// All tasks of connections.
    pub(crate) tasks: TaskTracker,
    listener: RefCell<Option<Rc<ListenerState>>>,
    peers: RefCell<HashMap<IpAddr, usize>>,
}

/// Settings, token and certificate of the open listener.
pub(crate) struct ListenerState {
    pub(crate) settings: Settings,
    /// Actual port, also if 0 was configured.
    pub(crate) port: u16,
    pub(crate) verifier: Rc<TokenVerifier>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Cancelled when the listener is closed or moved, which disconnects its clients.
    pub(crate) epoch: CancellationToken,
}

impl std::fmt::Debug for ListenerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerState")
            .field("settings", &self.settings)
            .field("port", &self.port)
            .finish()
    }
}

impl ListenerState {
    /// Returns the URLs for the client's page. Prefers the host that the client dialed.
    pub(crate) fn page_urls(&self, seen: Option<&DialedHost>) -> Urls {
        let has_tls = self.settings.tls.is_some();
        match seen {
            Some(seen) => Urls::as_seen(seen, has_tls),
            None => Urls::of(&self.settings.host, self.port, has_tls, None),
        }
    }
}

impl ServerState {
    /// Creates the state without a listener.
    pub(crate) fn new(
        asks: mpsc::Sender<Ask>,
        connected: Arc<AtomicUsize>,
        pages: watch::Receiver<Pages>,
    ) -> Self {
        Self {
            asks,
            connected,
            sockets: Arc::new(Semaphore::new(MAX_REMOTE_CLIENTS)),
            unauthenticated: WaitingRoom::default(),
            pages,
            unfinished: Budget::new(MAX_UNFINISHED_BYTES),
            tasks: TaskTracker::new(),
            listener: RefCell::default(),
            peers: RefCell::default(),
        }
    }

    pub(crate) fn set_listener(&self, listener: Rc<ListenerState>) {
        self.listener.replace(Some(listener));
    }

    pub(crate) fn take_listener(&self) -> Option<Rc<ListenerState>> {
        self.listener.take()
    }

    /// Returns the current listener; `None` if closed.
    pub(crate) fn listener(&self) -> Option<Rc<ListenerState>> {
        self.listener.borrow().clone()
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }
}

/// Shared state, peer and lifetime of a connection.
#[derive(Clone)]
pub(crate) struct RouteContext {
    pub(crate) state: Rc<ServerState>,
    pub(crate) peer: IpAddr,
    /// Cancelled with the listener that accepted this connection.
    pub(crate) epoch: CancellationToken,
}

impl RouteContext {
    /// Returns the status for a client that dialed `seen`.
    pub(crate) fn status(
        &self,
        listener: &ListenerState,
        seen: Option<&DialedHost>,
    ) -> RemoteStatus {
        listener.settings.status(listener.port, self.state.connected(), seen)
    }

    /// Returns the page with this token.
    pub(crate) fn page_of(&self, token: &str) -> Option<Page> {
        self.state.pages.borrow().find(token)
    }

    /// See [`Pages::is_foreign`](crate::Pages).
    pub(crate) fn is_foreign(
        &self,
        headers: &HeaderMap,
        listener: &ListenerState,
        seen: Option<&DialedHost>,
    ) -> bool {
        self.state.pages.borrow().is_foreign(headers, seen, &listener.settings.host)
    }
}

/// The WebSockets whose client has not sent its token yet, the oldest first. One more closes the oldest: refusing it would
/// let a program that sends nothing keep all others out.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom(RefCell<VecDeque<CancellationToken>>);

impl WaitingRoom {
    /// Adds a WebSocket until the result is dropped.
    pub(crate) fn enter(&self) -> Waiting {
        let mut waiting = self.0.borrow_mut();
        // The others have left.
        waiting.retain(|token| !token.is_cancelled());
        if MAX_UNAUTHENTICATED_CLIENTS <= waiting.len()
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.cancel();
        }
        let token = CancellationToken::new();
        waiting.push_back(token.clone());
        Waiting(token)
    }
}

/// A WebSocket whose client has not sent its token yet.
#[derive(Debug)]
pub(crate) struct Waiting(
    /// Cancelled when it has to make room.
    pub(crate) CancellationToken,
);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Slot of one connection among those of its address.
pub(crate) struct PeerSlot {
    state: Rc<ServerState>,
    peer: IpAddr,
}

impl PeerSlot {
    pub(crate) fn take(state: &Rc<ServerState>, peer: IpAddr) -> Option<Self> {
        let peer = network(peer);
        let mut peers = state.peers.borrow_mut();
        let count = peers.entry(peer).or_default();
        if MAX_REMOTE_CONNECTIONS_PER_PEER <= *count {
            return None;
        }
        *count += 1;
        Some(Self { state: Rc::clone(state), peer })
    }
}

impl Drop for PeerSlot {
    fn drop(&mut self) {
        let mut peers = self.state.peers.borrow_mut();
        if let Some(count) = peers.get_mut(&self.peer) {
            *count -= 1;
            // The table has only addresses with connections, so the number of connections bounds it.
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}
