//! The thread `egress`: a small runtime with all connections to the internet, separate from the actors.
//!
//! Started by [`crate::Egress`] with the first task. Exits when the last sender of tasks is dropped.

use crate::endpoint::Connection;
use crate::error_text::reason;
use crate::http::{self, exchange};
use crate::requests::{ListTask, MAX_MODEL_STREAMS, ModelTask};
use crate::settings::{Settings, failed};
use quackd_protocol::limits::MAX_WEB_SEARCHES;
use quackd_protocol::worker::WebOutcome;
use reqwest::Client;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Idle time after which the clients are dropped, with their certificates and open connections. The next task creates
/// another client and reads the current certificates.
const CLIENT_IDLE: Duration = Duration::from_secs(60);

/// Tasks in the queue of the thread. Each kind is limited by its slots, so the queue is never full.
const QUEUE: usize = MAX_WEB_SEARCHES + 2 * MAX_MODEL_STREAMS;

/// A task of the thread.
#[derive(Debug)]
pub(crate) enum Task {
    Search(SearchTask),
    Model(Box<ModelTask>),
    List(ListTask),
}

/// One search in flight.
#[derive(Debug)]
pub(crate) struct SearchTask {
    pub(crate) settings: Arc<Settings>,
    /// The request as JSON.
    pub(crate) body: Vec<u8>,
    /// Closed by the caller when it no longer needs the result.
    pub(crate) answer: oneshot::Sender<WebOutcome>,
    /// Held until all resources of the search are released.
    pub(crate) slot: OwnedSemaphorePermit,
}

impl Task {
    fn connection(&self) -> Connection {
        match self {
            Self::Search(task) => task.settings.endpoint.connection(),
            Self::Model(task) => task.route.connection(),
            Self::List(task) => task.route.connection(),
        }
    }

    async fn run(self, client: Client) {
        match self {
            Self::Search(task) => run(client, task).await,
            Self::Model(task) => task.run(client).await,
            Self::List(task) => task.run(client).await,
        }
    }

    async fn fail(self, text: String) {
        match self {
            Self::Search(task) => {
                // The caller may be gone by now.
                task.answer.send(failed(text)).ok();
            }
            Self::Model(task) => task.fail(text).await,
            Self::List(task) => task.fail(text),
        }
    }
}

/// Starts the thread. The channel has room for as many tasks as may run.
pub(crate) fn start(distrust: watch::Receiver<Option<String>>) -> io::Result<mpsc::Sender<Task>> {
    let (sender, tasks) = mpsc::channel(QUEUE);
    // Name lookups block and cannot be canceled. Further ones wait for a thread.
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(MAX_WEB_SEARCHES)
        .thread_name("egress-names")
        .build()?;

    std::thread::Builder::new().name("egress".to_owned()).spawn(move || {
        runtime.block_on(serve(tasks, distrust));
        runtime.shutdown_background();
    })?;
    Ok(sender)
}

async fn serve(mut tasks: mpsc::Receiver<Task>, distrust: watch::Receiver<Option<String>>) {
    let mut clients: Vec<(Connection, Client)> = Vec::new();
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            task = tasks.recv() => {
                let Some(task) = task else { return };
                let connection = task.connection();
                let ready = clients.iter().find(|(kind, _)| *kind == connection);
                let refusal = distrust.borrow().clone();

                if let Some(refusal) = refusal.filter(|_| ready.is_none() && connection.is_encrypted) {
                    running.spawn(task.fail(refusal));
                    continue;
                }

                match ready.map_or_else(|| http::client(connection), |(_, ready)| Ok(ready.clone())) {
                    Ok(client) => {
                        if ready.is_none() {
                            clients.push((connection, client.clone()));
                        }
                        running.spawn(task.run(client));
                    }
                    Err(error) => drop(running.spawn(task.fail(reason(&error)))),
                }
            }
            Some(_) = running.join_next() => {}
            () = sleep(CLIENT_IDLE), if !clients.is_empty() && running.is_empty() => clients.clear(),
        }
    }
}

/// Runs a search until the result, the timeout, or the cancellation by the caller.
async fn run(client: Client, task: SearchTask) {
    let SearchTask { settings, body, mut answer, slot } = task;
    let limit = settings.timeout;

    let search = async {
        let after_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let in_time = timeout(limit, exchange(&client, &settings, body)).await;
        in_time.unwrap_or(WebOutcome::TimedOut { after_ms })
    };

    let outcome = tokio::select! {
        outcome = search => Some(outcome),
        () = answer.closed() => None,
    };
    // The connection is closed or back in the pool. Release the slot first, because a caller with a result may search
    // again at once.
    drop(slot);
    if let Some(outcome) = outcome {
        // A caller that disconnected at this point no longer needs the result.
        answer.send(outcome).ok();
    }
}
