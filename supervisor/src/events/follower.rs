//! One client that follows one session: its place in the session's events, and the task that takes them
//! from there to its outbox.

use super::ring::{Overrun, Ring};
use super::{Events, Feed};
use crate::wire::client_outbox::Outbox;
use bytes::Bytes;
use quackd_protocol::SessionId;
use std::rc::Rc;
use std::time::Instant;
use tokio::task::JoinHandle;

/// Events taken from the ring at a time, in bytes.
const BATCH_BYTES: usize = 64 * 1024;

/// A place in a session's events. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Following {
    feed: Rc<Feed>,
    session: SessionId,
    /// Earlier events that still want an answer: told before all others.
    first: Vec<Bytes>,
    /// Number of the first event that is wanted.
    next: u64,
    task: Option<JoinHandle<()>>,
}

/// Where a follower begins.
#[derive(Debug)]
pub(crate) struct Follow {
    pub(crate) following: Following,
    /// Number of the session's last event.
    pub(crate) seq: u64,
    /// What happened since the event that was named cannot be told any more.
    pub(crate) resync: bool,
    /// Events that are told again.
    pub(crate) replayed: u64,
}

impl Events {
    /// Begins after event `since` of the run `epoch` if what followed is still there, else with what
    /// comes next.
    pub(crate) fn follow(
        &self,
        session: &SessionId,
        since: Option<u64>,
        epoch: Option<&str>,
    ) -> Follow {
        let feed = self.feed(session);
        let seq = *feed.last.borrow();
        let same_run = epoch.is_none_or(|epoch| epoch == self.epoch());
        if !feed.is_watched() {
            // What it holds was kept for somebody who did not come back.
            self.change(&feed, |ring| *ring = Ring::after(seq));
        }
        let next = since.and_then(|since| since.checked_add(1)).filter(|next| {
            same_run && *next <= seq.saturating_add(1) && feed.ring.borrow().reaches_back_to(*next)
        });
        let resync = since.is_some() && next.is_none();
        let next = next.unwrap_or_else(|| seq.saturating_add(1));
        feed.followers.set(feed.followers.get().saturating_add(1));
        let replayed = seq.saturating_add(1).saturating_sub(next);
        let session = session.clone();
        Follow {
            following: Following { feed, session, first: Vec::new(), next, task: None },
            seq,
            resync,
            replayed,
        }
    }
}

impl Following {
    /// Number of the first event that it gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Events that are told before all others. To be said before it is started.
    pub(crate) fn tell_first(&mut self, lines: Vec<Bytes>) {
        self.first = lines;
    }

    /// The session that is followed.
    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    /// Begins to send. Called when the answer to `follow` is on its way.
    pub(crate) fn start(&mut self, outbox: &Outbox) {
        if self.task.is_none() {
            let (feed, next, outbox) = (Rc::clone(&self.feed), self.next, outbox.clone());
            let first = std::mem::take(&mut self.first);
            self.task = Some(actix::spawn(async move {
                for line in first {
                    if outbox.send_event(line).await.is_err() {
                        return;
                    }
                }
                if let Err(Overrun) = forward(&feed, next, &outbox).await {
                    outbox.give_up();
                }
            }));
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.feed.followers.set(self.feed.followers.get().saturating_sub(1));
        self.feed.left.set(Some(Instant::now()));
    }
}

/// Sends events until the client is gone. `Err` if it is too far behind.
async fn forward(feed: &Feed, mut next: u64, outbox: &Outbox) -> Result<(), Overrun> {
    let mut last = feed.last.subscribe();
    loop {
        let lines = feed.ring.borrow().read(next, BATCH_BYTES)?;
        if lines.is_empty() {
            // The session's feed lives as long as its follower.
            if last.changed().await.is_err() {
                return Ok(());
            }
        }
        for line in lines {
            next = next.saturating_add(1);
            let sent = outbox.send_event(line);
            tokio::pin!(sent);
            loop {
                tokio::select! {
                    biased;
                    sent = &mut sent => match sent {
                        Ok(()) => break,
                        Err(_gone) => return Ok(()),
                    },
                    _ = last.changed() => {
                        if !feed.ring.borrow().reaches_back_to(next) {
                            return Err(Overrun);
                        }
                    }
                }
            }
        }
    }
}
