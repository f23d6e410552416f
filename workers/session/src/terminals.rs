//! Passes the messages of terminals to the supervisor, one after the other for each terminal. A message waits while the
//! supervisor does not read; the program of the terminal does not. Started by the executor.

use crate::jobs::JobReporter;
use crate::link::FrameSender;
use quackd_protocol::worker::FromWorker;
use quackd_tools::{Jobs, NewTerminal};
use tokio::task::{JoinHandle, JoinSet, yield_now};

/// Starts a task for each terminal of the session. Aborting the returned task ends them.
pub(crate) fn start(jobs: &Jobs, reporter: &JobReporter, outbox: &FrameSender) -> JoinHandle<()> {
    let (jobs, reporter, outbox) = (jobs.clone(), reporter.clone(), outbox.clone());
    actix::spawn(async move {
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                new = jobs.next_terminal() => {
                    running.spawn_local(forward(new, reporter.clone(), outbox.clone()));
                }
                // Frees the task of a terminal that has ended.
                Some(_) = running.join_next() => {}
            }
        }
    })
}

/// Passes on the messages of one terminal, until its last one.
async fn forward(new: NewTerminal, reporter: JobReporter, outbox: FrameSender) {
    let NewTerminal { id, terminal } = new;
    // The supervisor refuses messages of a terminal that it does not know.
    reporter.report().await;
    while let Some(message) = terminal.next().await {
        outbox.send(&FromWorker::Terminal { terminal: id.clone(), message }).await;
        // A flood of requests for screens must not delay the answers to pings.
        yield_now().await;
    }
}
