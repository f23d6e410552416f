//! The listener: opens it, applies new settings, and accepts connections.
//!
//! One [`ServerState`] exists for the thread's lifetime, and one [`ListenerState`] per applied settings. A
//! connection keeps the `epoch` of its listener, which closes it. It reads the current [`ListenerState`] for
//! each request, so that a new token applies immediately.

use crate::accept::next_connection;
use crate::attempt_limiter::AttemptLimiter;
use crate::gate::TokenVerifier;
use crate::settings::Settings;
use crate::state::{ListenerState, PeerSlot, ServerState};
use crate::{ApplyError, Ask, Pages, connection, tls};
use quackd_protocol::limits::MAX_REMOTE_CONNECTIONS;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Timeout of resolving and binding the host name.
const BIND_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for open connections when the listener is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Listener of remote control. Runs on the thread `remote`.
#[derive(Debug)]
pub(crate) struct Server {
    state: Rc<ServerState>,
    limiter: Rc<RefCell<AttemptLimiter>>,
    /// See [`crate::Remote::is_token_short`].
    is_token_short: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(
        asks: mpsc::Sender<Ask>,
        connected: Arc<AtomicUsize>,
        is_token_short: Arc<AtomicBool>,
        pages: watch::Receiver<Pages>,
    ) -> Self {
        let state = ServerState::new(asks, connected, pages);
        let limiter = Rc::new(RefCell::new(AttemptLimiter::new(Instant::now())));
        Self { state: Rc::new(state), limiter, is_token_short, accepting: None }
    }

    pub(crate) fn port(&self) -> Option<u16> {
        self.state.listener().map(|listener| listener.port)
    }

    /// Implements [`crate::Remote::apply`].
    pub(crate) async fn apply(&mut self, settings: Settings) -> Result<u16, ApplyError> {
        let tls = match settings.tls.clone() {
            None => None,
            Some(paths) => {
                // An unusable certificate must not close the old listener, so it is read first.
                let reading =
                    tokio::task::spawn_blocking(move || tls::acceptor_blocking(&paths)).await;
                Some(reading.map_err(|_ended| ApplyError::Ended)??)
            }
        };

        let old = self.state.listener();
        let verifier = match &old {
            // Keep the verifier of an unchanged token: it may remember the digest.
            Some(old) if old.verifier.is_for(&settings.token) => Rc::clone(&old.verifier),
            _ => Rc::new(TokenVerifier::new(
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
            if old.settings.is_same_listener(&settings) {
                epoch = old.epoch.clone();
            } else {
                old.epoch.cancel();
            }
            if !Rc::ptr_eq(&old.verifier, &verifier) {
                old.verifier.revoked.cancel();
            }
        }

        self.state.set_listener(Rc::new(ListenerState { settings, port, verifier, tls, epoch }));
        Ok(port)
    }

    /// Listens on another address. Restores the old listener on failure.
    async fn move_to(
        &mut self,
        to: &Settings,
        from: Option<&ListenerState>,
    ) -> Result<u16, ApplyError> {
        // Two addresses with the same port may overlap. Then the old listener prevents binding the new one.
        if from.is_some_and(|from| from.port == to.port) {
            self.stop_listening().await;
        }

        match listen(&to.host, to.port).await {
            Ok((tcp, port)) => {
                self.stop_listening().await;
                self.accept(tcp);
                Ok(port)
            }
            Err(error) => {
                if let (Some(from), None) = (from, &self.accepting) {
                    match listen(&from.settings.host, from.port).await {
                        Ok((tcp, _port)) => self.accept(tcp),
                        Err(error) => {
                            tracing::error!(%error, "remote: previous port is taken, remote control closed");
                            self.close().await;
                        }
                    }
                }
                Err(error)
            }
        }
    }

    fn accept(&mut self, tcp: TcpListener) {
        self.accepting = Some(tokio::task::spawn_local(accept(tcp, Rc::clone(&self.state))));
    }

    /// Returns after the port is free.
    async fn stop_listening(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // The task was aborted, so it returns an error.
            accepting.await.ok();
        }
    }

    /// Implements [`crate::Remote::close`].
    pub(crate) async fn close(&mut self) {
        self.stop_listening().await;
        if let Some(old) = self.state.take_listener() {
            old.epoch.cancel();
            self.is_token_short.store(false, Ordering::Relaxed);

            self.state.tasks.close();
            // A client that does not read gets no close frame.
            timeout(CLOSE_TIMEOUT, self.state.tasks.wait()).await.ok();
            self.state.tasks.reopen();
        }
    }
}

async fn listen(host: &str, port: u16) -> Result<(TcpListener, u16), ApplyError> {
    let refused =
        |source| ApplyError::Listen { address: crate::host_header::authority(host, port), source };
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let bound = timeout(BIND_TIMEOUT, TcpListener::bind((name, port))).await;
    let tcp = bound.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(refused)?;
    let port = tcp.local_addr().map_err(refused)?.port();
    Ok((tcp, port))
}

/// Accepts connections until the task is aborted.
async fn accept(tcp: TcpListener, state: Rc<ServerState>) {
    let slots = Arc::new(Semaphore::new(MAX_REMOTE_CONNECTIONS));
    loop {
        let (stream, peer) = next_connection(&tcp, "remote").await;
        let peer = peer.ip().to_canonical();
        // Without a slot, close the connection without a reply, because a reply would need a slot.
        let Some(listener) = state.listener() else { continue };
        let Ok(total) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let Some(slot) = PeerSlot::take(&state, peer) else { continue };

        let shared = Rc::clone(&state);
        state.tasks.spawn_local(async move {
            connection::serve(stream, peer, shared, listener).await;
            drop((slot, total));
        });
    }
}
