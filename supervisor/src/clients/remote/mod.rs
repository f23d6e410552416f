//! Remote control as the daemon sees it: its configuration, its state, and what comes through the door.
//!
//! The door itself is [`quackd_remote`], on a thread of its own. Here is who may change it
//! ([`crate::methods`]), what is written to disk ([`files`], [`config`]), and the task that hands remote
//! clients to [`connection`] as if they had come through the socket. Started by the daemon; a door that
//! cannot be opened is a line in the state and in the log, and nothing else.

mod config;
mod configure;
mod files;

use files::{Files, Loaded};

use crate::clients::connection::{self, Origin, RemoteReady};
use crate::events::client_registry::Transport;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use actix::Addr;
use bytes::Bytes;
use config::DaemonConfig;
use quackd_home::Home;
use quackd_protocol::client::{RemoteData, RemoteStatus};
use quackd_protocol::limits::MIN_REMOTE_TOKEN_BYTES;
use quackd_remote::{Ask, Remote, RpcAnswer};
use secrecy::{ExposeSecret, SecretString};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// Requests without a connection that are answered at the same time, those of clients that went away
/// included.
const MAX_ALONE: usize = 256;

/// How long a look at the state waits for a change that is under way.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// How long the daemon's end waits for the door's.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct RemoteControl {
    door: Remote,
    files: Files,
    state: RefCell<State>,
    /// One change at a time; closed for good when the daemon ends.
    turn: Semaphore,
    asked: RefCell<Option<mpsc::Receiver<Ask>>>,
}

#[derive(Debug, Clone)]
struct State {
    config: DaemonConfig,
    /// The port it listens on.
    port: Option<u16>,
    last_error: Option<String>,
    /// The token in the clear, as far as it is known.
    token: Option<SecretString>,
    /// `config.json` must not be written.
    is_locked: bool,
}

impl State {
    /// Whether the token is one of an earlier version; false while only its hash is known.
    fn has_short_token(&self) -> bool {
        let is_short = |token: &SecretString| token.expose_secret().len() < MIN_REMOTE_TOKEN_BYTES;
        self.token.as_ref().is_some_and(is_short)
    }
}

impl RemoteControl {
    /// What was found on disk; nothing is opened yet.
    pub(crate) fn new(files: Files, loaded: Loaded) -> Self {
        let (door, asked) = Remote::new();
        if let Some(problem) = &loaded.problem {
            tracing::error!(problem, "remote control is off");
        }
        let state = State {
            config: loaded.config,
            port: None,
            last_error: loaded.problem,
            token: None,
            is_locked: loaded.is_locked,
        };
        Self {
            door,
            files,
            state: RefCell::new(state),
            turn: Semaphore::new(1),
            asked: RefCell::new(Some(asked)),
        }
    }

    /// The state after all changes that are under way.
    pub(crate) async fn status(&self) -> RemoteStatus {
        // Should one of them hang, this is the state before it.
        let turn = timeout(LOOK_LIMIT, self.turn.acquire()).await;
        drop(turn);
        self.status_now()
    }

    fn status_now(&self) -> RemoteStatus {
        let state = self.state.borrow();
        let remote = &state.config.remote;
        let has_tls = remote.has_tls();
        let urls = state.port.map(|port| quackd_remote::urls(&remote.host, port, has_tls));
        let (http_url, ws_url) = urls.unzip();
        RemoteStatus {
            enabled: remote.enabled,
            listening: state.port.is_some(),
            host: remote.host.clone(),
            port: state.port.unwrap_or(remote.port),
            protocol: if has_tls { "https" } else { "http" }.to_owned(),
            tls_enabled: has_tls,
            http_url,
            ws_url,
            token_configured: remote.token().is_some(),
            token_updated_at: remote.auth_token_updated_at.clone(),
            last_error: state.last_error.clone(),
            connected_clients: self.door.connected(),
            token_is_short: self.door.is_token_short() || state.has_short_token(),
        }
    }

    /// The state, and the token if that is asked for and known.
    pub(crate) async fn data(&self, is_token_wanted: bool) -> RemoteData {
        let status = self.status().await;
        let token = if is_token_wanted { self.known_token().await } else { None };
        RemoteData { status, auth_token: token.map(|token| token.expose_secret().to_owned()) }
    }

    /// The token in the clear, if its file has it still.
    async fn known_token(&self) -> Option<SecretString> {
        let (files, hash, known) = {
            let state = self.state.borrow();
            (self.files.clone(), state.config.remote.token(), state.token.clone())
        };
        let look = move || files.token_blocking(hash.as_ref(), known.as_ref());
        let token =
            timeout(LOOK_LIMIT, actix_rt::task::spawn_blocking(look)).await.ok()?.ok()??;
        self.state.borrow_mut().token = Some(token.clone());
        Some(token)
    }

    /// The daemon ends: the door is closed, and stays so.
    pub(crate) async fn close(&self) {
        self.turn.close();
        if timeout(CLOSE_LIMIT, self.door.close()).await.is_err() {
            tracing::warn!("remote control did not close in time; it ends with the daemon");
        }
    }
}

/// Where the files are, and what the configuration says. To be read before the log is started, since
/// it has a word about that.
pub(crate) fn load_blocking(home: &Home) -> (Files, Loaded) {
    let files = Files::of(home);
    let loaded = files.load_blocking();
    (files, loaded)
}

/// Opens the door if the configuration says so, and hands in who comes. Returns at once.
pub(crate) fn start(services: &Rc<Services>, registry: &Addr<Registry>) {
    let Some(asked) = services.remote.asked.take() else { return };
    actix::spawn(hand_in(asked, Rc::clone(services), registry.clone()));
    if services.remote.state.borrow().config.remote.enabled {
        let services = Rc::clone(services);
        actix::spawn(async move { services.remote.open().await });
    }
}

async fn hand_in(mut asked: mpsc::Receiver<Ask>, services: Rc<Services>, registry: Addr<Registry>) {
    let alone = Arc::new(Semaphore::new(MAX_ALONE));
    while let Some(ask) = asked.recv().await {
        let (services, registry) = (Rc::clone(&services), registry.clone());
        match ask {
            Ask::WebSocket { lines, url } => {
                let origin = Origin {
                    transport: Transport::RemoteWs,
                    remote_ready: Some(RemoteReady { websocket_url: url }),
                };
                // As many as the door lets in.
                actix::spawn(async move {
                    let (reading, writing) = tokio::io::split(lines);
                    connection::serve(reading, writing, origin, services, registry).await;
                });
            }
            Ask::Rpc { body, client, answer } => {
                let Ok(place) = Arc::clone(&alone).try_acquire_owned() else {
                    let busy = wire::goodbye("Too many requests at the same time");
                    answer.send(RpcAnswer::Reply(busy)).ok();
                    continue;
                };
                actix::spawn(async move {
                    let reply = alone_answer(&body, client.as_deref(), &services, &registry).await;
                    if answer.send(reply).is_err() {
                        services.metrics.unread_answers.add(1);
                    }
                    drop(place);
                });
            }
        }
    }
}

async fn alone_answer(
    body: &Bytes,
    client: Option<&str>,
    services: &Rc<Services>,
    registry: &Addr<Registry>,
) -> RpcAnswer {
    match connection::answer_alone(body, client, services, registry).await {
        Ok(Some(reply)) => RpcAnswer::Reply(reply),
        // The door lets no blank body in.
        Ok(None) => RpcAnswer::Reply(wire::goodbye("Failed to parse request: it is blank")),
        Err(connection::UnknownClient) => RpcAnswer::UnknownClient,
    }
}
