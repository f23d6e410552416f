//! The thread `egress`: a small runtime with all connections to the internet, separate from the actors.
//!
//! Started by [`crate::Egress`] at the first search. Exits when the last sender of tasks is dropped.

use crate::Settings;
use crate::error_text::reason;
use crate::http::{self, exchange};
use quackd_protocol::limits::MAX_WEB_SEARCHES;
use quackd_protocol::worker::WebOutcome;
use reqwest::Client;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Idle time after which the client is dropped, with its certificates and its open connections. The next search creates
/// another client and reads the current certificates.
const CLIENT_IDLE: Duration = Duration::from_secs(60);

/// One search in flight.
#[derive(Debug)]
pub(crate) struct SearchTask {
    /// Body of the request.
    pub(crate) body: Vec<u8>,
    /// Closed by the caller when it no longer needs the result.
    pub(crate) answer: oneshot::Sender<WebOutcome>,
    /// Held until all resources of the search are released.
    pub(crate) slot: OwnedSemaphorePermit,
}

/// Starts the thread. The channel has room for as many tasks as may run.
pub(crate) fn start(settings: Arc<Settings>) -> io::Result<mpsc::Sender<SearchTask>> {
    let (sender, jobs) = mpsc::channel(MAX_WEB_SEARCHES);
    // Name lookups block and cannot be canceled. There is never a need for more of them than searches.
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(MAX_WEB_SEARCHES)
        .thread_name("egress-names")
        .build()?;
    std::thread::Builder::new().name("egress".to_owned()).spawn(move || {
        runtime.block_on(serve(settings, jobs));
        runtime.shutdown_background();
    })?;
    Ok(sender)
}

async fn serve(settings: Arc<Settings>, mut jobs: mpsc::Receiver<SearchTask>) {
    let mut client = None;
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            job = jobs.recv() => {
                let Some(job) = job else { return };
                match client.take().map_or_else(|| http::client(&settings.endpoint), Ok) {
                    Ok(ready) => {
                        client = Some(ready.clone());
                        running.spawn(run(ready, Arc::clone(&settings), job));
                    }
                    Err(error) => {
                        let _gone = job.answer.send(crate::failed(reason(&error)));
                    }
                }
            }
            Some(_) = running.join_next() => {}
            () = sleep(CLIENT_IDLE), if client.is_some() && running.is_empty() => client = None,
        }
    }
}

/// Runs a search until the result, the timeout, or the cancellation by the caller.
async fn run(client: Client, settings: Arc<Settings>, job: SearchTask) {
    let SearchTask { body, mut answer, slot } = job;
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
        let _gone = answer.send(outcome);
    }
}
