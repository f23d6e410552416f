//! The door: what it is now, how it becomes another one, and who comes in.
//!
//! One [`House`] for the thread's life, one [`Door`] for each state of the settings. A connection remembers
//! by which door it came (its `epoch` ends with it), and looks at the door of the moment for each request,
//! so that a new token counts at once.

use crate::gate::Gate;
use crate::limiter::{Limiter, network};
use crate::settings::Settings;
use crate::{ApplyError, Ask, connection, tls};
use quackd_protocol::limits::{
    MAX_REMOTE_CLIENTS, MAX_REMOTE_CONNECTIONS, MAX_REMOTE_CONNECTIONS_PER_PEER,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// First and longest pause after a failed accept, for example when descriptors are used up.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long a name may take to become an address.
const BIND_LIMIT: Duration = Duration::from_secs(5);

/// How long the end of the clients is waited for when the door is closed.
const FAREWELL: Duration = Duration::from_millis(500);

/// What all connections share.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) asks: mpsc::Sender<Ask>,
    /// Clients with an open WebSocket.
    pub(crate) connected: Arc<AtomicUsize>,
    /// Places for them.
    pub(crate) sockets: Arc<Semaphore>,
    /// Everything that runs for clients.
    pub(crate) tasks: TaskTracker,
    door: RefCell<Option<Rc<Door>>>,
    peers: RefCell<HashMap<IpAddr, usize>>,
}

/// What a connection finds.
pub(crate) struct Door {
    pub(crate) settings: Settings,
    /// The real port.
    pub(crate) port: u16,
    pub(crate) gate: Rc<Gate>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Cancelled when the door is closed or moved: who came through it has to go.
    pub(crate) epoch: CancellationToken,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("settings", &self.settings).field("port", &self.port).finish()
    }
}

impl House {
    /// The door of this moment; `None` if it is closed.
    pub(crate) fn door(&self) -> Option<Rc<Door>> {
        self.door.borrow().clone()
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }
}

/// One connection's place among those of its address.
struct Place {
    house: Rc<House>,
    peer: IpAddr,
}

impl Place {
    fn take(house: &Rc<House>, peer: IpAddr) -> Option<Self> {
        let peer = network(peer);
        let mut peers = house.peers.borrow_mut();
        let count = peers.entry(peer).or_default();
        if MAX_REMOTE_CONNECTIONS_PER_PEER <= *count {
            return None;
        }
        *count += 1;
        Some(Self { house: Rc::clone(house), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.house.peers.borrow_mut();
        if let Some(count) = peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

/// See the module. Lives on the thread of remote control.
#[derive(Debug)]
pub(crate) struct Server {
    house: Rc<House>,
    limiter: Rc<RefCell<Limiter>>,
    /// See [`crate::Remote::is_token_short`].
    is_token_short: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(
        asks: mpsc::Sender<Ask>,
        connected: Arc<AtomicUsize>,
        is_token_short: Arc<AtomicBool>,
    ) -> Self {
        let house = House {
            asks,
            connected,
            sockets: Arc::new(Semaphore::new(MAX_REMOTE_CLIENTS)),
            tasks: TaskTracker::new(),
            door: RefCell::default(),
            peers: RefCell::default(),
        };
        let limiter = Rc::new(RefCell::new(Limiter::new(Instant::now())));
        Self { house: Rc::new(house), limiter, is_token_short, accepting: None }
    }

    pub(crate) fn port(&self) -> Option<u16> {
        self.house.door().map(|door| door.port)
    }

    /// See [`crate::Remote::apply`].
    pub(crate) async fn apply(&mut self, settings: Settings) -> Result<u16, ApplyError> {
        let tls = match settings.tls.clone() {
            None => None,
            Some(paths) => {
                let reading =
                    tokio::task::spawn_blocking(move || tls::acceptor_blocking(&paths)).await;
                Some(reading.map_err(|_ended| ApplyError::Ended)??)
            }
        };
        let old = self.house.door();
        let gate = match &old {
            // It may remember the token already.
            Some(old) if old.gate.is_for(&settings.token) => Rc::clone(&old.gate),
            _ => Rc::new(Gate::new(
                settings.token.clone(),
                settings.plain_token.as_ref(),
                Rc::clone(&self.limiter),
                Arc::clone(&self.is_token_short),
            )?),
        };
        let port = match &old {
            Some(old) if old.settings.is_same_address(&settings) => old.port,
            _ => self.move_to(&settings, old.as_deref()).await?,
        };
        let mut epoch = CancellationToken::new();
        if let Some(old) = &old {
            if old.settings.is_same_door(&settings) {
                epoch = old.epoch.clone();
            } else {
                old.epoch.cancel();
            }
            if !Rc::ptr_eq(&old.gate, &gate) {
                old.gate.revoked.cancel();
            }
        }
        self.house.door.replace(Some(Rc::new(Door { settings, port, gate, tls, epoch })));
        Ok(port)
    }

    /// Listens on another address. If that cannot be, the old one is listened on as before.
    async fn move_to(&mut self, to: &Settings, from: Option<&Door>) -> Result<u16, ApplyError> {
        // Two addresses with one port may overlap, and the old one is in the way then.
        if from.is_some_and(|from| from.port == to.port) {
            self.stop_listening().await;
        }
        match listen(&to.host, to.port).await {
            Ok((listener, port)) => {
                self.stop_listening().await;
                self.accept(listener);
                Ok(port)
            }
            Err(error) => {
                if let (Some(from), None) = (from, &self.accepting) {
                    match listen(&from.settings.host, from.port).await {
                        Ok((listener, _port)) => self.accept(listener),
                        Err(error) => {
                            tracing::error!(%error, "remote: the port that was left is taken");
                            self.close().await;
                        }
                    }
                }
                Err(error)
            }
        }
    }

    fn accept(&mut self, listener: TcpListener) {
        self.accepting = Some(tokio::task::spawn_local(accept(listener, Rc::clone(&self.house))));
    }

    /// Returns when the port is free again.
    async fn stop_listening(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // It was told to end, and so has not ended well.
            accepting.await.ok();
        }
    }

    /// See [`crate::Remote::close`].
    pub(crate) async fn close(&mut self) {
        self.stop_listening().await;
        if let Some(old) = self.house.door.take() {
            old.epoch.cancel();
            self.is_token_short.store(false, Ordering::Relaxed);
            self.house.tasks.close();
            timeout(FAREWELL, self.house.tasks.wait()).await.ok();
            self.house.tasks.reopen();
        }
    }
}

async fn listen(host: &str, port: u16) -> Result<(TcpListener, u16), ApplyError> {
    let refused =
        |source| ApplyError::Listen { address: crate::advertise::authority(host, port), source };
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let bound = timeout(BIND_LIMIT, TcpListener::bind((name, port))).await;
    let listener =
        bound.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(refused)?;
    let port = listener.local_addr().map_err(refused)?.port();
    Ok((listener, port))
}

/// Accepts until it is aborted.
async fn accept(listener: TcpListener, house: Rc<House>) {
    let places = Arc::new(Semaphore::new(MAX_REMOTE_CONNECTIONS));
    let mut pause = BACKOFF.0;
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, ?pause, "remote: cannot accept");
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
                continue;
            }
        };
        pause = BACKOFF.0;
        let peer = peer.ip().to_canonical();
        // One that finds no place is closed without a word: an answer would need a place too.
        let Some(door) = house.door() else { continue };
        let Ok(total) = Arc::clone(&places).try_acquire_owned() else { continue };
        let Some(place) = Place::take(&house, peer) else { continue };
        let here = Rc::clone(&house);
        house.tasks.spawn_local(async move {
            connection::serve(stream, peer, here, door).await;
            drop((place, total));
        });
    }
}
