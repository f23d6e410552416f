//! Remote control: its configuration, its state and changes to it.
//!
//! The listener itself is [`quackd_remote`], on its own thread. [`crate::clients::remote`] hands remote clients over to
//! connections. A listener that cannot open is reported in the state and in the log, and has no other effect.

mod config;
mod configure;
mod files;
mod pages;
mod sign_in;

use crate::obeyed::held_on_disk_blocking;
use config::RemoteState;
use files::RemoteFiles;
use pages::PageAccess;
use quackd_home::Home;
use quackd_protocol::client::{RemoteData, RemoteStatus};
use quackd_protocol::plain::without_numbers;
use quackd_remote::{Ask, Remote};
use secrecy::{ExposeSecret, SecretString};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// Timeout for a running change before the state is returned.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for closing the listener at shutdown.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct RemoteControl {
    door: Remote,
    files: RemoteFiles,
    state: RefCell<RemoteState>,
    pages: RefCell<PageAccess>,
    /// Permit for one change at a time. Closed at shutdown.
    turn: Semaphore,
    /// Requests that the listener hands over, until [`Self::take_requests`].
    requests: RefCell<Option<mpsc::Receiver<Ask>>>,
}

impl RemoteControl {
    /// Creates the state from the loaded files. Opens nothing.
    pub(crate) fn new(files: RemoteFiles, state: RemoteState, pages: PageAccess) -> Self {
        let (door, requests) = Remote::new();
        if let Some(problem) = &state.last_error {
            tracing::error!(problem, "remote control is off");
        }

        door.set_pages(pages.pages());
        Self {
            door,
            files,
            state: RefCell::new(state),
            pages: RefCell::new(pages),
            turn: Semaphore::new(1),
            requests: RefCell::new(Some(requests)),
        }
    }

    /// Returns the requests that the listener hands over. `None` after the first call.
    pub(crate) fn take_requests(&self) -> Option<mpsc::Receiver<Ask>> {
        self.requests.take()
    }

    /// Returns whether the configuration enables remote control.
    pub(crate) fn is_enabled(&self) -> bool {
        self.state.borrow().config.remote.enabled
    }

    /// Returns the state after all running changes. Waits for them at most [`LOOKUP_TIMEOUT`].
    pub(crate) async fn status(&self) -> RemoteStatus {
        // If a change hangs, the old state is returned.
        timeout(LOOKUP_TIMEOUT, self.turn.acquire()).await.ok();
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

    /// Returns the state after all running changes, and the token if it is requested and known.
    pub(crate) async fn data(&self, has_token: bool) -> RemoteData {
        let status = self.status().await;
        self.with_token(status, has_token).await
    }

    /// Adds the token to a state, if it is requested and known.
    async fn with_token(&self, status: RemoteStatus, has_token: bool) -> RemoteData {
        let token = if has_token { self.known_token().await } else { None };
        RemoteData { status, auth_token: token.map(|token| token.expose_secret().to_owned()) }
    }

    /// Returns the plaintext token, if its file still contains it.
    async fn known_token(&self) -> Option<SecretString> {
        // The borrow must not last while the file is read.
        let (files, hash, known) = {
            let state = self.state.borrow();
            (self.files.clone(), state.config.remote.token(), state.token.clone())
        };

        // On a disk that hangs, the token counts as unknown.
        let look = move || files.token_blocking(hash.as_ref(), known.as_ref());
        let token =
            timeout(LOOKUP_TIMEOUT, actix_rt::task::spawn_blocking(look)).await.ok()?.ok()??;

        self.state.borrow_mut().token = Some(token.clone());
        Some(token)
    }

    /// Closes the listener for good, at shutdown.
    pub(crate) async fn close(&self) {
        // Changes that wait for their turn fail, so none opens the listener again.
        self.turn.close();
        if timeout(CLOSE_LIMIT, self.door.close()).await.is_err() {
            tracing::warn!("remote control did not close in time");
        }
    }
}

/// Returns the paths and the configuration. Remote control is off if sessions could change the certificate or its key.
/// Call it before the log starts, because the configuration contains a setting of the log.
pub(crate) fn load_blocking(home: &Home) -> (RemoteFiles, RemoteState, PageAccess) {
    let files = RemoteFiles::of(home);
    let mut state = files.load_blocking();
    let remote = &mut state.config.remote;

    let mut of_tls = remote.tls_cert_path.iter().chain(&remote.tls_key_path).map(PathBuf::from);
    let held = of_tls.find_map(|path| {
        let held = held_on_disk_blocking(home, &path)?;
        Some(format!("{} {held}", path.display()))
    });

    if remote.enabled
        && let Some(why) = held
    {
        remote.enabled = false;
        state.last_error = Some(why);
    }
    (files, state, PageAccess::load_blocking(home.page_tokens()))
}
