//! Following one session to the end: events in, text or JSON lines out, across restarts of the daemon.
//! Used by `quack follow` and `quack [DIR]`.
//!
//! Owns: the connection, the number of the last event that was shown.
//! Ends: with Ctrl-C, when nobody reads the output, when the session is deleted (all exit 0), or when
//! the daemon is gone and does not come back in time (exit 3).

use crate::connect::{CONNECT_TIMEOUT, REPLY_TIMEOUT};
use crate::display;
use crate::exit::{Exit, Fault};
use crate::output::{Output, Reader};
use crate::render::{Look, Renderer};
use quackd_client::{Client, ClientError, Event, Events};
use quackd_home::Home;
use quackd_protocol::client::{FollowData, FollowParams, SessionParams, StateData};
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::{Instant, interval, sleep};

/// How long a daemon that went away is waited for: it may be restarting.
const RECONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Time before each attempt, also before the first: nothing makes us hammer a daemon.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// How often, and how many times, is looked whether a worker that starts has started.
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);
const SETTLE_LOOKS: u32 = 10;

/// How often is looked whether the output still has a reader while there is nothing to print.
const READER_INTERVAL: Duration = Duration::from_secs(1);

/// Events that are there are gathered into pieces of about this many bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Longest reason of the daemon's that is shown, in characters.
const MAX_REMARK: usize = 200;

/// A session that is being followed.
#[derive(Debug)]
pub(crate) struct Watch {
    client: Client,
    events: Events,
    followed: FollowData,
    /// Number of the last event that was shown, or that need not be.
    seq: u64,
}

/// Why no more is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// There is nobody to show it to.
    ReaderGone,
    /// There is no such session any more.
    Deleted,
    /// There is no connection any more.
    Disconnected,
}

impl Watch {
    /// Follows a session, from event `since` on if it is given.
    ///
    /// # Errors
    /// Of the request.
    pub(crate) async fn begin(
        client: Client,
        session: String,
        since: Option<u64>,
    ) -> Result<Self, ClientError> {
        let params =
            FollowParams { session_id: Value::from(session), since_seq: since, epoch: None };
        Self::follow(client, params).await
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

    async fn follow(client: Client, params: FollowParams) -> Result<Self, ClientError> {
        // Before the request: the first events may come before its answer.
        let events = client.events().await?;
        let since = params.since_seq;
        let followed: FollowData = client.request("follow", params, REPLY_TIMEOUT).await?;
        let seq = since.filter(|_| !followed.resync).unwrap_or(followed.seq);
        Ok(Self { client, events, followed, seq })
    }

    /// Shows events until one of the ends.
    ///
    /// # Errors
    /// The daemon is gone, or nothing can be printed.
    pub(crate) async fn until_interrupted(
        self,
        look: Look,
        output: Output,
    ) -> anyhow::Result<Exit> {
        tokio::select! {
            biased;
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                Ok(Exit::Ok)
            }
            ended = self.show_all(look, output) => ended,
        }
    }

    async fn show_all(mut self, look: Look, output: Output) -> anyhow::Result<Exit> {
        let mut renderer = Renderer::new(look);
        if self.followed.resync {
            remark(&mut renderer, "some events were lost", output).await?;
        }
        loop {
            match self.show(&mut renderer, output).await? {
                End::ReaderGone | End::Deleted => return Ok(Exit::Ok),
                End::Disconnected => match self.client.why_closed() {
                    // What is no daemon of ours does not become one by asking again.
                    ClientError::Protocol(text) => return Err(ClientError::Protocol(text).into()),
                    ClientError::Refused(why) => remark(&mut renderer, &why, output).await?,
                    _ => {}
                },
            }
            let again = self.again().await?;
            let is_complete = !again.followed.resync && again.followed.epoch == self.followed.epoch;
            self = again;
            let text = if is_complete {
                "reconnected"
            } else {
                renderer.forget();
                "reconnected; some events were lost"
            };
            remark(&mut renderer, text, output).await?;
        }
    }

    /// Shows events until there are no more.
    async fn show(&mut self, renderer: &mut Renderer, output: Output) -> anyhow::Result<End> {
        let mut reader = interval(READER_INTERVAL);
        loop {
            let first = tokio::select! {
                event = self.events.recv() => event,
                _ = reader.tick() => {
                    if Reader::look() == Reader::Gone {
                        return Ok(End::ReaderGone);
                    }
                    continue;
                }
            };
            let Some(mut event) = first else { return Ok(End::Disconnected) };
            let mut piece = String::new();
            let mut is_deleted = false;
            loop {
                is_deleted |= self.take(&event, renderer, output, &mut piece)?;
                if is_deleted || PIECE_BYTES <= piece.len() {
                    break;
                }
                match self.events.try_recv() {
                    Some(next) => event = next,
                    None => break,
                }
            }
            if output.piece(piece).await? == Reader::Gone {
                return Ok(End::ReaderGone);
            }
            if is_deleted {
                return Ok(End::Deleted);
            }
        }
    }

    /// Adds what is to be shown of one event. True: it was the session's last one.
    fn take(
        &mut self,
        event: &Event,
        renderer: &mut Renderer,
        output: Output,
        piece: &mut String,
    ) -> anyhow::Result<bool> {
        // What is about another session is not what was asked for.
        if event.session_id.as_deref().is_some_and(|id| id != self.followed.session_id.as_str()) {
            return Ok(false);
        }
        self.seq = event.seq.unwrap_or(0).max(self.seq);
        if output.is_json() {
            piece.push_str(&serde_json::to_string(event)?);
            piece.push('\n');
        } else {
            let data = event.data.as_deref().map_or("null", RawValue::get);
            // JSON that nests too deep is not for people either.
            let data = serde_json::from_str(data).unwrap_or(Value::Null);
            piece.push_str(&renderer.render(&event.name, &data));
        }
        Ok(event.name == "session_deleted")
    }

    /// Waits for a daemon, the same one or the next, and follows the session there from where we were.
    async fn again(&self) -> anyhow::Result<Self> {
        let socket = Home::from_process_env_blocking()?.socket().path;
        let deadline = Instant::now() + RECONNECT_LIMIT;
        loop {
            sleep(RECONNECT_INTERVAL).await;
            let params = FollowParams {
                session_id: Value::from(self.followed.session_id.as_str()),
                since_seq: Some(self.seq),
                epoch: Some(self.followed.epoch.clone()),
            };
            let attempt = async {
                let client = Client::connect(&socket, CONNECT_TIMEOUT).await?;
                Self::follow(client, params).await
            };
            let error = match attempt.await {
                Ok(watch) => return Ok(watch),
                Err(error) => error,
            };
            if deadline < Instant::now() {
                return Err(match error {
                    // It is there, and says why not.
                    ClientError::Refused(text) => ClientError::Refused(text).into(),
                    _ => Fault::daemon_gone("Daemon disconnected.").into(),
                });
            }
        }
    }
}

/// Says something about the stream: in it to a person, beside it to a script.
async fn remark(renderer: &mut Renderer, text: &str, output: Output) -> anyhow::Result<()> {
    if output.is_json() {
        output.warning(text);
    } else {
        // A reader that is gone is noticed with the next event.
        let text = display::cut(text, MAX_REMARK);
        output.piece(renderer.remark(&format!("-- {text} --"))).await?;
    }
    Ok(())
}
