//! Connection that follows a session across restarts of the daemon. Used by [`super::session_view`].
//!
//! Owns the connection and the number of the last processed event.

use super::requests::RequestTarget;
use crate::connect::CONNECT_TIMEOUT;
use crate::exit::CliError;
use quackd_client::{Client, ClientError, Event, Events};
use quackd_home::Home;
use quackd_protocol::client::{FollowData, FollowParams, ProcessState, StateData, StateParams};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Timeout for a daemon to return, for example after a restart.
const RECONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Delay before each attempt, including the first, to avoid hammering the daemon.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// Interval and number of checks for a worker that is starting.
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);
const SETTLE_LOOKS: u32 = 50;

/// Followed session.
#[derive(Debug)]
pub(crate) struct FollowConnection {
    client: Arc<Client>,
    events: Events,
    followed: FollowData,
    /// Number of the last event that was processed or may be skipped.
    seq: u64,
    answers: bool,
    /// Directory from which prompts are sent, if it is not the workspace.
    pub(crate) directory: Option<String>,
    /// Label of the session for hints. The id if it is not known.
    pub(crate) label: String,
}

impl FollowConnection {
    /// Follows a session, from event `since` on if given. `answers`: the user answers questions about permissions.
    ///
    /// # Errors
    /// Those of the request.
    pub(crate) async fn begin(
        client: Arc<Client>,
        session: String,
        since: Option<u64>,
        answers: bool,
    ) -> Result<Self, ClientError> {
        let params = FollowParams {
            session_id: Value::from(session),
            since_seq: since,
            epoch: None,
            answers: answers.then_some(true),
        };
        Self::follow(client, params).await
    }

    async fn follow(client: Arc<Client>, params: FollowParams) -> Result<Self, ClientError> {
        let (since, answers) = (params.since_seq, params.answers == Some(true));
        // Subscribe before the request, because the first events may precede its reply.
        let events = client.events().await?;
        let followed = client.call(params).await?;

        // After lost events, the requested number may be of an earlier daemon.
        let seq = since.filter(|_| !followed.resync).unwrap_or(followed.seq);
        let label = followed.session_id.0.clone();
        Ok(Self { client, events, followed, seq, answers, directory: None, label })
    }

    /// Waits briefly for a worker that is starting, so that its confinement is known.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..SETTLE_LOOKS {
            if self.followed.worker.state != ProcessState::Starting {
                return;
            }
            sleep(SETTLE_INTERVAL).await;

            let params = StateParams::of(self.followed.session_id.as_str());
            let state = self.client.call_within(params, SETTLE_INTERVAL);
            // Do not wait for a request that fails. The events report the worker's state.
            let Ok(StateData { worker, .. }) = state.await else { return };
            self.followed.worker = worker;
        }
    }

    /// Returns the daemon's description of the session.
    pub(crate) fn followed(&self) -> &FollowData {
        &self.followed
    }

    /// Returns the id of the session.
    pub(crate) fn session(&self) -> &str {
        self.followed.session_id.as_str()
    }

    /// Returns the connection for further requests.
    pub(crate) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// Returns the session as the target of a request of the view.
    pub(super) fn target(&self) -> RequestTarget {
        let (session, cwd) = (self.session().to_owned(), self.directory.clone());
        RequestTarget { client: self.client(), session, cwd }
    }

    /// Waits for the next event of the session; `None` if the connection has ended. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<Event> {
        loop {
            let event = self.events.recv().await?;
            if self.counts(&event) {
                return Some(event);
            }
        }
    }

    /// Returns the next event of the session if it has arrived.
    pub(crate) fn try_recv(&mut self) -> Option<Event> {
        loop {
            let event = self.events.try_recv()?;
            if self.counts(&event) {
                return Some(event);
            }
        }
    }

    /// Whether an event belongs to the session or to all sessions, and records its number.
    fn counts(&mut self, event: &Event) -> bool {
        if event.session_id.as_deref().is_some_and(|id| id != self.followed.session_id.as_str()) {
            return false;
        }

        // An event without a number must not move the position back.
        self.seq = event.seq.unwrap_or(0).max(self.seq);
        true
    }

    /// Waits for a daemon and follows the session from the last processed event on. With `only_same`, a daemon that
    /// exited is not awaited, because its running turn is lost.
    ///
    /// # Errors
    /// Those of the last attempt, and an error if no daemon is running.
    pub(crate) async fn again(&self, only_same: bool) -> anyhow::Result<Self> {
        let socket = Home::from_process_env_blocking()?.socket().path;
        let deadline = Instant::now() + RECONNECT_LIMIT;

        loop {
            sleep(RECONNECT_INTERVAL).await;

            let params = FollowParams {
                session_id: Value::from(self.session()),
                since_seq: Some(self.seq),
                epoch: Some(self.followed.epoch.clone()),
                answers: self.answers.then_some(true),
            };

            let attempt = async {
                let client = Client::connect(&socket, CONNECT_TIMEOUT).await?;
                Self::follow(Arc::new(client), params).await
            };

            let error = match attempt.await {
                Ok(watch) if only_same && watch.followed.epoch != self.followed.epoch => {
                    return Err(gone());
                }
                Ok(watch) => return Ok(self.handed_to(watch)),
                Err(error) => error,
            };

            let is_gone =
                matches!(error, ClientError::NotRunning { .. } | ClientError::Disconnected);
            if deadline < Instant::now() || only_same && is_gone {
                return Err(match error {
                    // The daemon answered with the reason.
                    refused @ ClientError::Refused { .. } => refused.into(),
                    _ => gone(),
                });
            }
        }
    }

    /// Follows another session on a separate connection, so that this client no longer answers for the earlier one.
    ///
    /// # Errors
    /// Those of the connection and of the request.
    pub(crate) async fn switch(&self, session: String) -> anyhow::Result<Self> {
        let socket = Home::from_process_env_blocking()?.socket().path;
        let client = Arc::new(Client::connect(&socket, CONNECT_TIMEOUT).await?);
        let next = Self::begin(client, session, None, self.answers).await?;
        Ok(self.handed_to(next))
    }

    /// Returns `next` with the directory and the label of this connection.
    fn handed_to(&self, next: Self) -> Self {
        Self { directory: self.directory.clone(), label: self.label.clone(), ..next }
    }

    /// Whether no event is missing between `before` and this connection.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        !self.followed.resync && self.followed.epoch == before.followed.epoch
    }
}

fn gone() -> anyhow::Error {
    CliError::daemon_gone("Daemon disconnected.").into()
}
