//! The thread `egress`: one small runtime that holds every connection to the internet, away from the actors.
//!
//! Started by [`crate::Egress`] at the first search. Ends when the last sender of jobs is gone.

use crate::Settings;
use crate::exchange::{self, exchange};
use crate::reason::reason;
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

/// After this long without a search the client is dropped: its certificates and its open connections. The
/// next search makes another, from certificates as they are then.
const CLIENT_IDLE: Duration = Duration::from_secs(60);

/// One search under way.
#[derive(Debug)]
pub(crate) struct Job {
    /// What is posted.
    pub(crate) body: Vec<u8>,
    /// Closed by who waits when the answer is not wanted any more.
    pub(crate) answer: oneshot::Sender<WebOutcome>,
    /// Held until nothing of the search runs any more.
    pub(crate) slot: OwnedSemaphorePermit,
}

/// Starts the thread. There is room for as many jobs as may run.
pub(crate) fn start(settings: Arc<Settings>) -> io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel(MAX_WEB_SEARCHES);
    // Looking up a name blocks, and cannot be ended: more of them than searches is never needed.
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

async fn serve(settings: Arc<Settings>, mut jobs: mpsc::Receiver<Job>) {
    let mut client = None;
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            job = jobs.recv() => {
                let Some(job) = job else { return };
                match client.take().map_or_else(|| exchange::client(&settings.endpoint), Ok) {
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

/// Searches, as long as somebody waits for the answer and the time is not over.
async fn run(client: Client, settings: Arc<Settings>, job: Job) {
    let Job { body, mut answer, slot } = job;
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
    // The connection is gone or back in the pool. Who gets an answer may search again at once.
    drop(slot);
    if let Some(outcome) = outcome {
        // Who hung up in this moment wanted no answer.
        let _gone = answer.send(outcome);
    }
}
