//! Events of sessions, which are sent to followers.
//!
//! Owns the number of each session's last event, and the newest events while the session has followers or had them
//! recently. Not an actor: publishing is a function call on the actors' thread. The order of events is therefore the
//! order of the changes that they report.
//!
//! Followers pull events. Each has a position in the ring and reads as fast as its client does ([`follower`]). A
//! follower whose position was dropped from the ring is disconnected. The rings bound the memory, regardless of the
//! number and speed of followers.

pub(crate) mod answerers;
mod call_input;
mod claims;
pub(crate) mod client_registry;
mod death;
mod follower;
mod named_calls;
mod ring;
pub(crate) mod sent_rows;
mod session_call;
mod tool_events;
pub(crate) mod viewing;

pub(crate) use call_input::{CallInput, InputRequest, call_input};
pub(crate) use follower::{FollowStarted, Follower};
pub(crate) use session_call::{CallFacts, SessionCall};
pub(crate) use tool_events::shown_arguments;

use crate::wire;
use answerers::Answerers;
use quackd_protocol::SessionId;
use quackd_protocol::client::EventLine;
use quackd_protocol::foreign_text::one_line_cut;
use quackd_protocol::limits::{RING_KEPT_FOR, RINGS_BYTES};
use ring::Ring;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::watch;

/// Maximum length of the line that [`Events::keep_last_line`] keeps, in characters.
const MAX_LAST_LINE_CHARS: usize = 120;

/// Events of all sessions. One instance per daemon, behind an `Rc` on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Identifies this run of the daemon. Event numbers of other runs are not valid.
    epoch: String,
    /// Clients that can answer questions about permissions.
    pub(crate) answerers: Rc<Answerers>,
    feeds: RefCell<HashMap<SessionId, Rc<SessionFeed>>>,
    /// Bytes in all rings.
    bytes: Cell<usize>,
    /// Number of events since the start.
    published: Cell<u64>,
}

/// One session's events.
#[derive(Debug, Default)]
struct SessionFeed {
    /// Filled only while [`SessionFeed::has_followers`].
    ring: RefCell<Ring>,
    /// Number of the newest event. Followers wait for a change.
    last: watch::Sender<u64>,
    followers: Cell<usize>,
    /// When the last follower left.
    left: Cell<Option<Instant>>,
    /// Time of the newest event. `None` before the first.
    published: Cell<Option<Instant>>,
    /// See [`Events::keep_last_line`].
    last_line: RefCell<Option<Box<str>>>,
}

impl SessionFeed {
    /// Returns whether the session has a follower, or a recent follower may return and request the
    /// events since then.
    fn has_followers(&self) -> bool {
        0 < self.followers.get()
            || self.left.get().is_some_and(|left| left.elapsed() < RING_KEPT_FOR)
    }
}

impl Events {
    /// Starts without events. `epoch` must differ from run to run.
    pub(crate) fn new(epoch: String) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Returns the id of this run of the daemon, which followers send back to continue.
    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Returns the number of events of all sessions since the start.
    pub(crate) fn published(&self) -> u64 {
        self.published.get()
    }

    /// Returns the bytes in all rings.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Returns whether the session has followers, now or recently. Without them, events are only
    /// counted.
    pub(crate) fn has_followers(&self, session: &SessionId) -> bool {
        self.feeds.borrow().get(session).is_some_and(|feed| feed.has_followers())
    }

    /// Returns the number of a session's followers, without recent ones.
    pub(crate) fn followers(&self, session: &SessionId) -> usize {
        self.feeds.borrow().get(session).map_or(0, |feed| feed.followers.get())
    }

    /// Returns the number of a session's newest event. 0 before the first.
    pub(crate) fn last(&self, session: &SessionId) -> u64 {
        self.feeds.borrow().get(session).map_or(0, |feed| *feed.last.borrow())
    }

    /// Publishes an event and returns its number. Does not call `data` if there are no followers.
    pub(crate) fn publish<D: Serialize>(
        &self,
        session: &SessionId,
        event: &str,
        data: impl FnOnce() -> D,
    ) -> u64 {
        self.publish_in_turn(session, None, event, data)
    }

    /// Like [`Self::publish`]. Adds the event's name to the data, as `type`.
    pub(crate) fn publish_typed<D: Serialize>(
        &self,
        session: &SessionId,
        event: &str,
        data: impl FnOnce() -> D,
    ) -> u64 {
        #[derive(Serialize)]
        struct Typed<'a, D> {
            #[serde(rename = "type")]
            kind: &'a str,
            #[serde(flatten)]
            data: D,
        }
        self.publish(session, event, || Typed { kind: event, data: data() })
    }

    /// Like [`Self::publish`], for an event of this turn of the session's Pi.
    pub(crate) fn publish_in_turn<D: Serialize>(
        &self,
        session: &SessionId,
        turn: Option<u64>,
        event: &str,
        data: impl FnOnce() -> D,
    ) -> u64 {
        let feed = self.feed(session);
        let seq = feed.last.borrow().saturating_add(1);

        if feed.has_followers() {
            let line = EventLine { event, session_id: session, data: data(), seq, turn };
            self.change(&feed, |ring| ring.push(wire::event(&line)));
        } else {
            // Without a follower, the event is not formatted. Its number is used, so that a later
            // follower notices the gap.
            self.change(&feed, |ring| *ring = Ring::after(seq));
        }

        feed.published.set(Some(Instant::now()));
        self.published.set(self.published.get().saturating_add(1));
        // After the ring, which the woken followers read.
        feed.last.send_replace(seq);

        if RINGS_BYTES < self.bytes.get() {
            self.make_room();
        }
        seq
    }

    /// Keeps the last line of a call's output or of the agent's text, for lists of sessions. A blank text changes nothing.
    pub(crate) fn keep_last_line(&self, session: &SessionId, text: &str) {
        let is_shown = |line: &&str| !line.is_empty() && !line.starts_with("[Exit code: ");
        if let Some(line) = text.lines().map(str::trim).rfind(is_shown) {
            let line = one_line_cut(line, MAX_LAST_LINE_CHARS).into_boxed_str();
            self.feed(session).last_line.replace(Some(line));
        }
    }

    /// Returns the line of [`Self::keep_last_line`].
    pub(crate) fn last_line(&self, session: &SessionId) -> Option<String> {
        Some(self.feeds.borrow().get(session)?.last_line.borrow().as_deref()?.to_owned())
    }

    /// Removes a deleted session. Its followers still get the events in the ring.
    pub(crate) fn forget(&self, session: &SessionId) {
        if let Some(feed) = self.feeds.borrow_mut().remove(session) {
            // The followers still hold the ring, but its bytes no longer count.
            let freed = feed.ring.borrow().bytes();
            self.bytes.set(self.bytes.get().saturating_sub(freed));
        }
    }

    /// Changes a ring and updates the byte count. Every change of a ring must use this function.
    fn change(&self, feed: &SessionFeed, change: impl FnOnce(&mut Ring)) {
        let mut ring = feed.ring.borrow_mut();
        let before = ring.bytes();
        change(&mut ring);
        self.bytes.set(self.bytes.get().saturating_add(ring.bytes()).saturating_sub(before));
    }

    fn feed(&self, session: &SessionId) -> Rc<SessionFeed> {
        if let Some(feed) = self.feeds.borrow().get(session) {
            return Rc::clone(feed);
        }
        Rc::clone(self.feeds.borrow_mut().entry(session.clone()).or_default())
    }

    /// Clears rings until a quarter of the limit is free, starting with the longest inactive session. A follower that
    /// has read all events does not notice.
    fn make_room(&self) {
        let mut feeds: Vec<Rc<SessionFeed>> = self.feeds.borrow().values().cloned().collect();
        // The most recently active sessions keep their events.
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

    fn feed_of(events: &Events, session: &SessionId) -> Rc<SessionFeed> {
        Rc::clone(&events.feeds.borrow()[session])
    }

    #[test]
    fn the_last_line_is_short_and_safe_and_goes_with_its_session() {
        let (events, session) = (Events::new("e".into()), SessionId::from("s"));
        assert_eq!(events.last_line(&session), None);
        for (text, line) in [
            ("", None),
            ("one\n two\t\n\n \n", Some("two")),
            ("\n", Some("two")),
            ("three\n\n[Exit code: 1]", Some("three")),
            ("\u{202e}txt\u{1b}[2J", Some("\u{fffd}txt\u{fffd}[2J")),
        ] {
            events.keep_last_line(&session, text);
            assert_eq!(events.last_line(&session).as_deref(), line, "{text:?}");
        }
        events.keep_last_line(&session, &"ä".repeat(10_000));
        assert_eq!(events.last_line(&session).unwrap().chars().count(), MAX_LAST_LINE_CHARS);
        events.forget(&session);
        assert_eq!(events.last_line(&session), None);
    }

    #[test]
    fn what_nobody_watches_is_counted_and_not_kept() {
        let events = Events::new("e".into());
        let session = SessionId::from("s");
        events.publish(&session, "x", || -> u8 { panic!("looked at") });
        assert!(!events.has_followers(&session));
        let follow = events.follow(&session, None, None);
        assert_eq!((follow.seq, follow.resync, follow.replayed), (1, false, 0));
        events.publish(&session, "x", || 7);
        let lines = feed_of(&events, &session).ring.borrow().read(2, 1000).unwrap();
        assert_eq!(lines, [&b"{\"event\":\"x\",\"sessionId\":\"s\",\"data\":7,\"seq\":2}\n"[..]]);
        drop(follow);
        assert!(events.has_followers(&session), "somebody may come back");
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
                // As if all followers had left long ago.
                for session in &sessions {
                    feed_of(&events, session).left.set(None);
                }
            }
        }
        sessions.iter().for_each(|session| events.forget(session));
        assert_eq!(events.bytes.get(), 0);
    }
}
