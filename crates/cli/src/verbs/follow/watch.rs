//! The connection of a verb that follows a session, across restarts of the daemon. Used by [`super::live`].
//!
//! Owns: the connection, the number of the last event that was taken.

use crate::connect::{CONNECT_TIMEOUT, REPLY_TIMEOUT};
use crate::exit::Fault;
use quackd_client::{Client, ClientError, Event, Events};
use quackd_home::Home;
use quackd_protocol::client::{FollowData, FollowParams, SessionParams, StateData};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a daemon that went away is waited for: it may be restarting.
const RECONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Time before each attempt, also before the first: nothing makes us hammer a daemon.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// How often, and how many times, is looked whether a worker that starts has started.
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);
const SETTLE_LOOKS: u32 = 50;

/// A session that is being followed.
#[derive(Debug)]
pub(crate) struct Watch {
    client: Arc<Client>,
    events: Events,
    followed: FollowData,
    /// Number of the last event that was taken, or that need not be.
    seq: u64,
}

impl Watch {
    /// Follows a session from event `since` on if it is given.
    ///
    /// # Errors
    /// Of the request.
    pub(crate) async fn begin(
        client: Arc<Client>,
        session: String,
        since: Option<u64>,
    ) -> Result<Self, ClientError> {
        let session_id = Value::from(session);
        let params = FollowParams { session_id, since_seq: since, epoch: None };
        // Before the request: the first events may come before its answer.
        let events = client.events().await?;
        let followed = client.request("follow", params, REPLY_TIMEOUT).await?;
        Ok(Self::of(client, events, followed, since))
    }

    /// Waits a moment for a worker that is just starting: then its confinement is known.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..SETTLE_LOOKS {
            if self.followed.worker.state != "starting" {
                return;
            }
            sleep(SETTLE_INTERVAL).await;
            let session_id = Some(self.followed.session_id.0.clone());
            let state =
                self.client.request("get_state", SessionParams { session_id }, SETTLE_INTERVAL);
            // What cannot be asked is not worth waiting for; the events will tell.
            let Ok(StateData { worker, .. }) = state.await else { return };
            self.followed.worker = worker;
        }
    }

    /// What the daemon said of the session.
    pub(crate) fn followed(&self) -> &FollowData {
        &self.followed
    }

    /// The session's id.
    pub(crate) fn session(&self) -> &str {
        self.followed.session_id.as_str()
    }

    /// The connection, for requests beside the events.
    pub(crate) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// Follows a session again, by its id.
    async fn follow(client: Arc<Client>, params: FollowParams) -> Result<Self, ClientError> {
        let events = client.events().await?;
        let since = params.since_seq;
        let followed = client.request("follow", params, REPLY_TIMEOUT).await?;
        Ok(Self::of(client, events, followed, since))
    }

    fn of(client: Arc<Client>, events: Events, followed: FollowData, since: Option<u64>) -> Self {
        let seq = since.filter(|_| !followed.resync).unwrap_or(followed.seq);
        Self { client, events, followed, seq }
    }

    /// The next event of the session; `None` if the connection has ended. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<Event> {
        loop {
            let event = self.events.recv().await?;
            if self.counts(&event) {
                return Some(event);
            }
        }
    }

    /// The next event of the session, if it is there already.
    pub(crate) fn try_recv(&mut self) -> Option<Event> {
        loop {
            let event = self.events.try_recv()?;
            if self.counts(&event) {
                return Some(event);
            }
        }
    }

    /// Whether an event is of the session: what is about another one is not what was asked for.
    fn counts(&mut self, event: &Event) -> bool {
        if event.session_id.as_deref().is_some_and(|id| id != self.followed.session_id.as_str()) {
            return false;
        }
        self.seq = event.seq.unwrap_or(0).max(self.seq);
        true
    }

    /// Waits for a daemon, the same one or the next, and follows the session there from where we were. With
    /// `only_same` it is not waited for one that is not there: what it was doing is lost with it.
    ///
    /// # Errors
    /// Of the last attempt; a fault of its own if there is no daemon.
    pub(crate) async fn again(&self, only_same: bool) -> anyhow::Result<Self> {
        let socket = Home::from_process_env_blocking()?.socket().path;
        let deadline = Instant::now() + RECONNECT_LIMIT;
        loop {
            sleep(RECONNECT_INTERVAL).await;
            let params = FollowParams {
                session_id: Value::from(self.session()),
                since_seq: Some(self.seq),
                epoch: Some(self.followed.epoch.clone()),
            };
            let attempt = async {
                let client = Client::connect(&socket, CONNECT_TIMEOUT).await?;
                Self::follow(Arc::new(client), params).await
            };
            let error = match attempt.await {
                Ok(watch) if only_same && watch.followed.epoch != self.followed.epoch => {
                    return Err(gone());
                }
                Ok(watch) => return Ok(watch),
                Err(error) => error,
            };
            let is_gone =
                matches!(error, ClientError::NotRunning { .. } | ClientError::Disconnected);
            if deadline < Instant::now() || only_same && is_gone {
                return Err(match error {
                    // It is there, and says why not.
                    ClientError::Refused(text) => ClientError::Refused(text).into(),
                    _ => gone(),
                });
            }
        }
    }

    /// Nothing is missing between this and what was followed before.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        !self.followed.resync && self.followed.epoch == before.followed.epoch
    }
}

fn gone() -> anyhow::Error {
    Fault::daemon_gone("Daemon disconnected.").into()
}
