//! A client that follows a session: its position in the session's events, and the task that copies events to its
//! outbox.

use super::answerers::Answerer;
use super::ring::{Overrun, Ring};
use super::{Events, SessionFeed};
use crate::wire::client_outbox::ClientOutbox;
use bytes::Bytes;
use quackd_protocol::SessionId;
use std::rc::Rc;
use std::time::Instant;
use tokio::task::JoinHandle;

/// Maximum size of a batch that is read from the ring, in bytes.
const BATCH_BYTES: usize = 64 * 1024;

/// A position in a session's events. Dropping it ends the following.
#[derive(Debug)]
pub(crate) struct Follower {
    feed: Rc<SessionFeed>,
    session: SessionId,
    /// Earlier events that still need an answer. Sent before all others. Read by [`Follower::start`].
    pub(crate) first: Vec<Bytes>,
    /// Number of the first event to send.
    next: u64,
    task: Option<JoinHandle<()>>,
    /// Counts the client as one that answers questions about permissions. `None` if it does not.
    pub(crate) answerer: Option<Answerer>,
}

/// Start of a following.
#[derive(Debug)]
pub(crate) struct FollowStarted {
    pub(crate) following: Follower,
    /// Number of the session's last event.
    pub(crate) seq: u64,
    /// Whether events since the requested one are missing.
    pub(crate) resync: bool,
    /// Number of events that are sent again.
    pub(crate) replayed: u64,
}

impl Events {
    /// Starts after event `since` of the run `epoch` if the ring still contains the following events. Otherwise starts
    /// with the next event.
    pub(crate) fn follow(
        &self,
        session: &SessionId,
        since: Option<u64>,
        epoch: Option<&str>,
    ) -> FollowStarted {
        let feed = self.feed(session);
        let seq = *feed.last.borrow();
        let same_run = epoch.is_none_or(|epoch| epoch == self.epoch());

        if !feed.has_followers() {
            // The ring contains events for a follower that did not return in time.
            self.change(&feed, |ring| *ring = Ring::after(seq));
        }

        let next = since.and_then(|since| since.checked_add(1)).filter(|next| {
            // Numbers of another run, or from the future, are not valid here.
            same_run && *next <= seq.saturating_add(1) && feed.ring.borrow().reaches_back_to(*next)
        });
        let resync = since.is_some() && next.is_none();
        let next = next.unwrap_or_else(|| seq.saturating_add(1));

        let replayed = seq.saturating_add(1).saturating_sub(next);

        feed.followers.set(feed.followers.get().saturating_add(1));
        let (session, first) = (session.clone(), Vec::new());
        let following = Follower { feed, session, first, next, task: None, answerer: None };
        FollowStarted { following, seq, resync, replayed }
    }
}

impl Follower {
    /// Returns the number of the first event to send.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    /// Starts sending. Call it after the reply to `follow` is queued.
    pub(crate) fn start(&mut self, outbox: &ClientOutbox) {
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
                    outbox.disconnect_slow();
                }
            }));
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.feed.followers.set(self.feed.followers.get().saturating_sub(1));
        // The ring stays for a while, so that the client can connect again without losing events.
        self.feed.left.set(Some(Instant::now()));
    }
}

/// Sends events until the client is gone. Returns `Err` if the client is too far behind.
async fn forward(feed: &SessionFeed, mut next: u64, outbox: &ClientOutbox) -> Result<(), Overrun> {
    let mut last = feed.last.subscribe();
    loop {
        // The borrow ends with this line: no event could be published while the client is slow.
        let lines = feed.ring.borrow().read(next, BATCH_BYTES)?;
        if lines.is_empty() {
            // The session's feed exists as long as its follower.
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
                        // While the client is slow, the ring may drop the events that it still
                        // needs.
                        if !feed.ring.borrow().reaches_back_to(next) {
                            return Err(Overrun);
                        }
                    }
                }
            }
        }
    }
}
