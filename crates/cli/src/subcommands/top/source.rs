//! Polls the daemon and runs actions for `quack top`, in one task with its own connection. Reconnects when the daemon
//! comes back. Used by [`super`].

use crate::connect::connect;
use crate::display;
use crate::session_ref;
use crate::subcommands::ps;
use quackd_client::{Client, ClientError};
use quackd_home::Home;
use quackd_protocol::client::{AbortParams, KillParams, PinParams, PsData};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Polling interval.
const EVERY: Duration = Duration::from_secs(1);

/// Action on a session, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SessionAction {
    /// Cancel its calls.
    Abort(String),
    /// Kill its worker, and with it the calls and jobs.
    Kill(String),
    /// Pin its processes, or unpin them.
    Pin(String, bool),
}

/// Update for the model.
#[derive(Debug)]
pub(super) enum Update {
    /// Process tree, and the time of the reply.
    Data(Box<PsData>, Instant),
    /// No daemon answers, with the reason.
    NoDaemon(String),
    /// Result of an action.
    Done(String),
}

/// Polls the daemon until the receiver is dropped.
pub(super) async fn run(
    home: Home,
    client: Client,
    mut actions: Receiver<SessionAction>,
    updates: Sender<Update>,
) {
    let mut client = Some(client);
    let mut ticks = interval(EVERY);
    // A slow daemon must not cause a burst of requests.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            _ = ticks.tick() => None,
            action = actions.recv() => match action {
                None => return,
                Some(action) => Some(Update::Done(perform(client.as_ref(), action).await)),
            },
        };

        // Poll after an action too, so that its effect is visible at once.
        for update in done.into_iter().chain([look(&home, &mut client).await]) {
            if updates.send(update).await.is_err() {
                return;
            }
        }
    }
}

async fn look(home: &Home, client: &mut Option<Client>) -> Update {
    let request = async {
        // Taken, so that a connection that failed is not used again.
        let connection = match client.take() {
            Some(connection) => connection,
            None => connect(home).await?,
        };
        let data = ps::ask(&connection).await?;
        *client = Some(connection);
        Ok::<_, ClientError>(data)
    };

    match request.await {
        Ok(data) => Update::Data(Box::new(data), Instant::now()),
        Err(error) => Update::NoDaemon(error.to_string()),
    }
}

async fn perform(client: Option<&Client>, action: SessionAction) -> String {
    let Some(client) = client else { return "There is no daemon.".to_owned() };
    try_perform(client, action).await.unwrap_or_else(|error| error.to_string())
}

async fn try_perform(client: &Client, action: SessionAction) -> Result<String, ClientError> {
    match action {
        SessionAction::Abort(session) => {
            // The reply of this method has no label.
            let label = display::name(&session_ref::label(client, &session).await?);
            client.call(AbortParams::of(session)).await?;
            Ok(format!("Ended the calls of {label}."))
        }
        SessionAction::Kill(session) => {
            let data = client.call(KillParams::of(session)).await?;
            let label = display::name(display::label(&data.label, &data.session_name));
            Ok(format!("Killed the worker of {label}."))
        }
        SessionAction::Pin(session, pinned) => {
            let params = PinParams { session_id: Some(session), pinned: Some(pinned) };
            let data = client.call(params).await?;
            let label = display::name(display::label(&data.label, &data.session_name));
            let state = if data.pinned { "stays" } else { "is ended again when nobody uses it" };
            Ok(format!("{label} {state}."))
        }
    }
}
