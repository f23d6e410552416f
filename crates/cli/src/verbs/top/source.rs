//! What `quack top` shows and does, from and at the daemon: one task with a connection of its own, which it makes
//! again when the daemon comes back. Used by [`super`].

use crate::connect::{REPLY_TIMEOUT, connect};
use crate::display;
use crate::verbs::ps;
use crate::which;
use quackd_client::{Client, ClientError};
use quackd_home::Home;
use quackd_protocol::client::{AbortData, KillData, PinData, PinParams, PsData, SessionParams};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);

/// What a person wants done to a session, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// End its calls.
    Abort(String),
    /// Kill its worker.
    Kill(String),
    /// Keep its processes, or let them go.
    Pin(String, bool),
}

/// What there is to show.
#[derive(Debug)]
pub(super) enum Update {
    /// How it is, and when that was.
    Data(Box<PsData>, Instant),
    /// Nobody can be asked, and why.
    NoDaemon(String),
    /// What became of a deed.
    Done(String),
}

/// Looks until nobody wants to know any more.
pub(super) async fn run(
    home: Home,
    client: Client,
    mut deeds: Receiver<Deed>,
    updates: Sender<Update>,
) {
    let mut client = Some(client);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            _ = ticks.tick() => None,
            deed = deeds.recv() => match deed {
                None => return,
                Some(deed) => Some(Update::Done(perform(client.as_ref(), deed).await)),
            },
        };
        // After a deed too: what became of it is seen at once.
        for update in done.into_iter().chain([look(&home, &mut client).await]) {
            if updates.send(update).await.is_err() {
                return;
            }
        }
    }
}

async fn look(home: &Home, client: &mut Option<Client>) -> Update {
    let connected = match client.take() {
        Some(client) => Ok(client),
        None => connect(home).await,
    };
    let looked = match connected {
        Ok(connected) => {
            let data = ps::ask(&connected).await;
            data.map(|data| (connected, data))
        }
        Err(error) => Err(error),
    };
    match looked {
        Ok((connected, data)) => {
            *client = Some(connected);
            Update::Data(Box::new(data), Instant::now())
        }
        Err(error) => Update::NoDaemon(error.to_string()),
    }
}

async fn perform(client: Option<&Client>, deed: Deed) -> String {
    let Some(client) = client else { return "There is no daemon.".to_owned() };
    done(client, deed).await.unwrap_or_else(|error| error.to_string())
}

async fn done(client: &Client, deed: Deed) -> Result<String, ClientError> {
    match deed {
        Deed::Abort(session) => {
            let label = display::name(&which::label(client, &session).await?);
            let params = SessionParams { session_id: Some(session) };
            let _data: AbortData = client.request("abort", params, REPLY_TIMEOUT).await?;
            Ok(format!("Ended the calls of {label}."))
        }
        Deed::Kill(session) => {
            let params = SessionParams { session_id: Some(session) };
            let data: KillData = client.request("quack.kill", params, REPLY_TIMEOUT).await?;
            Ok(format!(
                "Killed the worker of {}.",
                display::name(display::label(&data.label, &data.session_name))
            ))
        }
        Deed::Pin(session, pinned) => {
            let params = PinParams { session_id: Some(session), pinned: Some(pinned) };
            let data: PinData = client.request("quack.pin", params, REPLY_TIMEOUT).await?;
            let what = if data.pinned { "stays" } else { "is ended again when nobody uses it" };
            Ok(format!(
                "{} {what}.",
                display::name(display::label(&data.label, &data.session_name))
            ))
        }
    }
}
