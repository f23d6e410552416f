//! One client: its lines in, its replies out.
//!
//! A connection is two tasks and not an actor: nobody sends it messages. What others may hold of it is
//! its [`Outbox`]. The reading task handles one line at a time; a method that waits for a worker runs in
//! a task of its own, so that a slow call delays nobody, and at most [`MAX_CLIENT_REQUESTS`] of them per
//! client. Methods that do not wait are answered in the order in which they came.
//!
//! A client that leaves does not end its calls: they run to their end or deadline.

use crate::methods::{self, Caller};
use crate::metrics::Metrics;
use crate::outbox::{Outbox, WriteEnd, outbox};
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use actix::Addr;
use quackd_ipc::lines::{Line, LineError, LineReader};
use quackd_ipc::listener::ClientStream;
use quackd_protocol::limits::{MAX_CLIENT_REQUESTS, MAX_LINE_BYTES, PARTIAL_LINE_TIMEOUT};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::AsyncRead;
use tokio::sync::Semaphore;

/// Serves one client until it leaves or the last of its replies is written.
pub(crate) async fn serve(stream: ClientStream, services: Rc<Services>, registry: Addr<Registry>) {
    let metrics = Arc::clone(&services.metrics);
    metrics.clients.up();
    let _counted = Counted(&metrics);
    let stream = Arc::new(stream);
    let (reading, writing) = (&*stream, &*stream);
    let (outbox, writing) = outbox(writing, Arc::clone(&metrics));
    let reading = read(reading, Caller::new(services, registry), outbox);
    tokio::pin!(reading, writing);
    let end = tokio::select! {
        // When the client has closed its sending side, what it asked for is still written.
        () = &mut reading => writing.await,
        end = &mut writing => end,
    };
    if end == WriteEnd::Slow {
        tracing::warn!(reason = "slow_client", "client disconnected");
    }
}

struct Counted<'a>(&'a Metrics);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.clients.down();
    }
}

async fn read<R: AsyncRead + Unpin>(reading: R, caller: Caller, outbox: Outbox) {
    let caller = Rc::new(caller);
    let slots = Arc::new(Semaphore::new(MAX_CLIENT_REQUESTS));
    let mut lines = LineReader::new(reading, MAX_LINE_BYTES).with_patience(PARTIAL_LINE_TIMEOUT);
    let mut bad_lines = 0_u64;
    loop {
        let parsed = match lines.next().await {
            Ok(Some(Line::Text(line))) => wire::parse(&line),
            Ok(Some(Line::TooLong)) => Err(wire::too_long()),
            Ok(None) => break,
            Err(error @ LineError::Unfinished(_)) => {
                outbox.send(wire::goodbye(&error.to_string())).await.ok();
                break;
            }
            // The client is gone, rudely: nothing to tell it.
            Err(LineError::Read(_)) => break,
        };
        let sent = match parsed {
            Ok(None) => Ok(()),
            Err(reply) => {
                bad_lines += 1;
                outbox.send(reply).await
            }
            Ok(Some(request)) if methods::waits(&request) => {
                let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
                let (caller, outbox) = (Rc::clone(&caller), outbox.clone());
                actix::spawn(async move {
                    let reply = methods::answer(request, &caller).await;
                    if outbox.send(reply).await.is_err() {
                        caller.services.metrics.unread_answers.add(1);
                    }
                    caller.replied(&outbox);
                    drop(slot);
                });
                // Its first step is taken before the next line is looked at: an `abort` that follows
                // a call finds the call, unless the call had to look for its session's directory first.
                tokio::task::yield_now().await;
                Ok(())
            }
            Ok(Some(request)) => outbox.send(methods::answer(request, &caller).await).await,
        };
        if sent.is_err() {
            break;
        }
    }
    if bad_lines != 0 {
        caller.services.metrics.bad_lines.add(bad_lines);
        tracing::warn!(bad_lines, "client sent lines that are no requests");
    }
}
