//! Events: what happens in a session, told to those who follow it.
//!
//! Owns: per session, the number of its last event, and the newest events themselves while somebody
//! follows it or did so lately. Not an actor: publishing is a function call on the actors' thread, so
//! that the order of events is the order of what they tell, and no queue stands between.
//!
//! Followers pull. Each has a place in the ring and takes from there as fast as its client reads
//! ([`follower`]); one that is so far behind that its place was dropped is disconnected. Memory is
//! bounded by the rings, whoever follows and however slowly.

pub(crate) mod client_registry;
mod death;
mod follower;
mod named_calls;
mod ring;
mod tool_events;

pub(crate) use follower::{Follow, Following};
pub(crate) use tool_events::{ShownCall, shown_arguments};

use crate::wire;
use quackd_protocol::SessionId;
use quackd_protocol::client::EventLine;
use quackd_protocol::limits::{RING_KEPT_FOR, RINGS_BYTES};
use ring::Ring;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::watch;

/// All sessions' events. One instance per daemon, behind an `Rc` on the actors' thread.
#[derive(Debug)]
pub(crate) struct Events {
    /// Tells this run of the daemon from others: numbers of another run mean nothing.
    epoch: String,
    feeds: RefCell<HashMap<SessionId, Rc<Feed>>>,
    /// Bytes in all rings.
    bytes: Cell<usize>,
    /// Events since the start.
    published: Cell<u64>,
}

/// One session's events.
#[derive(Debug)]
struct Feed {
    /// Kept only while [`Feed::is_watched`].
    ring: RefCell<Ring>,
    /// Number of the newest event; followers wait for it to change.
    last: watch::Sender<u64>,
    followers: Cell<usize>,
    /// When the last follower left.
    left: Cell<Option<Instant>>,
    /// When the newest event was published.
    published: Cell<Instant>,
}

impl Feed {
    fn new() -> Self {
        Self {
            ring: RefCell::default(),
            last: watch::Sender::new(0),
            followers: Cell::new(0),
            left: Cell::new(None),
            published: Cell::new(Instant::now()),
        }
    }

    /// Whether somebody follows, or may come back for what happened meanwhile.
    fn is_watched(&self) -> bool {
        0 < self.followers.get()
            || self.left.get().is_some_and(|left| left.elapsed() < RING_KEPT_FOR)
    }
}

impl Events {
    /// No events yet. `epoch` differs from run to run.
    pub(crate) fn new(epoch: String) -> Self {
        Self { epoch, feeds: RefCell::default(), bytes: Cell::new(0), published: Cell::new(0) }
    }

    /// This run of the daemon.
    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Events of all sessions since the start.
    pub(crate) fn published(&self) -> u64 {
        self.published.get()
    }

    /// Bytes of those that are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Whether anybody wants to know what happens in a session. Events that nobody wants are only
    /// counted.
    pub(crate) fn is_watched(&self, session: &SessionId) -> bool {
        self.feeds.borrow().get(session).is_some_and(|feed| feed.is_watched())
    }

    /// How many follow a session now.
    pub(crate) fn followers(&self, session: &SessionId) -> usize {
        self.feeds.borrow().get(session).map_or(0, |feed| feed.followers.get())
    }

    /// Number of a session's newest event; 0 if there was none.
    pub(crate) fn last(&self, session: &SessionId) -> u64 {
        self.feeds.borrow().get(session).map_or(0, |feed| *feed.last.borrow())
    }

    /// Tells the followers of a session, and gives the number of the event. `data` is not looked at if there
    /// are none.
    pub(crate) fn publish<D: Serialize>(
        &self,
        session: &SessionId,
        event: &str,
        data: impl FnOnce() -> D,
    ) -> u64 {
        let feed = self.feed(session);
        let seq = feed.last.borrow().saturating_add(1);
        if feed.is_watched() {
            let line = EventLine { event, session_id: session, data: data(), seq };
            self.change(&feed, |ring| ring.push(wire::event(&line)));
        } else {
            self.change(&feed, |ring| *ring = Ring::after(seq));
        }
        feed.published.set(Instant::now());
        self.published.set(self.published.get().saturating_add(1));
        feed.last.send_replace(seq);
        if RINGS_BYTES < self.bytes.get() {
            self.make_room();
        }
        seq
    }

    /// Forgets a session that was deleted. Its followers get what is there, and nothing more.
    pub(crate) fn forget(&self, session: &SessionId) {
        if let Some(feed) = self.feeds.borrow_mut().remove(session) {
            // Those who follow still have it: what they have not read stays theirs, and counts no more.
            let freed = feed.ring.borrow().bytes();
            self.bytes.set(self.bytes.get().saturating_sub(freed));
        }
    }

    /// Changes a ring and keeps count of the bytes in all of them. There is no other way to change one.
    fn change(&self, feed: &Feed, change: impl FnOnce(&mut Ring)) {
        let mut ring = feed.ring.borrow_mut();
        let before = ring.bytes();
        change(&mut ring);
        self.bytes.set(self.bytes.get().saturating_add(ring.bytes()).saturating_sub(before));
    }

    fn feed(&self, session: &SessionId) -> Rc<Feed> {
        if let Some(feed) = self.feeds.borrow().get(session) {
            return Rc::clone(feed);
        }
        let feed = Rc::new(Feed::new());
        self.feeds.borrow_mut().insert(session.clone(), Rc::clone(&feed));
        feed
    }

    /// Clears rings, those first in which nothing has happened for longest, until a quarter is free.
    /// A follower that has read everything does not notice.
    fn make_room(&self) {
        let mut feeds: Vec<Rc<Feed>> = self.feeds.borrow().values().cloned().collect();
        feeds.sort_by_key(|feed| feed.published.get());
        for feed in feeds {
            if self.bytes.get() <= RINGS_BYTES / 4 * 3 {
                return;
            }
            self.change(&feed, Ring::clear);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed_of(events: &Events, session: &SessionId) -> Rc<Feed> {
        Rc::clone(&events.feeds.borrow()[session])
    }

    #[test]
    fn what_nobody_watches_is_counted_and_not_kept() {
        let events = Events::new("e".into());
        let session = SessionId::from("s");
        events.publish(&session, "x", || -> u8 { panic!("looked at") });
        assert!(!events.is_watched(&session));
        let follow = events.follow(&session, None, None);
        assert_eq!((follow.seq, follow.resync, follow.replayed), (1, false, 0));
        events.publish(&session, "x", || 7);
        let lines = feed_of(&events, &session).ring.borrow().read(2, 1000).unwrap();
        assert_eq!(lines, [&b"{\"event\":\"x\",\"sessionId\":\"s\",\"data\":7,\"seq\":2}\n"[..]]);
        drop(follow);
        assert!(events.is_watched(&session), "somebody may come back");
    }

    #[test]
    fn the_count_of_bytes_is_that_of_the_rings_whatever_happens_to_them() {
        let events = Events::new("e".into());
        let total = |events: &Events| -> usize {
            events.feeds.borrow().values().map(|feed| feed.ring.borrow().bytes()).sum()
        };
        let text = "x".repeat(100_000);
        let sessions: Vec<SessionId> = (0..30).map(|n| SessionId(n.to_string())).collect();
        let mut following = Vec::new();
        for round in 0..20 {
            for session in &sessions {
                if round % 3 == 0 {
                    following.push(events.follow(session, Some(round), None));
                }
                events.publish(session, "x", || &text);
                assert!(events.bytes.get() <= RINGS_BYTES, "bounded over all sessions");
            }
            assert_eq!(events.bytes.get(), total(&events));
            if round % 5 == 4 {
                following.clear();
                // As if everybody had been away for long.
                for session in &sessions {
                    feed_of(&events, session).left.set(None);
                }
            }
        }
        sessions.iter().for_each(|session| events.forget(session));
        assert_eq!(events.bytes.get(), 0);
    }
}
