//! Remote control: its configuration, its state and changes to it.
//!
//! The listener itself is [`quackd_remote`], on its own thread. [`crate::clients::remote`] hands remote clients over to
//! connections. A listener that cannot open is reported in the state and in the log, and has no other effect.

mod config;
mod configure;
mod files;

use files::{Files, Loaded};

use config::DaemonConfig;
use quackd_home::Home;
use quackd_protocol::client::{RemoteData, RemoteStatus};
use quackd_protocol::limits::MIN_REMOTE_TOKEN_BYTES;
use quackd_protocol::plain::without_numbers;
use quackd_remote::{Ask, Remote};
use secrecy::{ExposeSecret, SecretString};
use std::cell::RefCell;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

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

    /// Requests that the listener hands over. `None` after the first call.
    pub(crate) fn take_requests(&self) -> Option<mpsc::Receiver<Ask>> {
        self.asked.take()
    }

    /// Whether the configuration enables remote control.
    pub(crate) fn is_enabled(&self) -> bool {
        self.state.borrow().config.remote.enabled
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
            last_error: state.last_error.as_deref().map(without_numbers),
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
