//! The way of events from a connection to its follower: lossless, bounded in bytes.
//!
//! Owns: what was read and not taken yet. The connection's task puts in, [`Events`] takes out.
//!
//! A follower that is behind stops the reading of the socket. What piles up then piles up in the
//! daemon, which alone decides when a client is too slow.

use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};

/// Bytes of events that wait for the follower when the connection stops reading.
const SOFT_BYTES: usize = 1024 * 1024;

/// Bytes of events that wait for the follower when the connection stops reading although a request is
/// waiting for its reply, which may stand behind them. More than a daemon holds for one client: its
/// outbox (16 MiB) and one session's kept events (2 MiB).
const HARD_BYTES: usize = 32 * 1024 * 1024;

/// Something that happened in a session, pushed by the daemon. Serializes as it came.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The event's name.
    #[serde(rename = "event")]
    pub name: String,
    /// The session that it belongs to, if to any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The payload as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// Its number within the session, if the daemon counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// Events of one connection, in order and without gaps. Dropping it lets later ones go unread.
#[derive(Debug)]
pub struct Events {
    queue: mpsc::UnboundedReceiver<(Event, usize)>,
    level: Arc<Level>,
}

/// The connection's side.
#[derive(Debug)]
pub(crate) struct Feed {
    /// Unbounded in number, bounded by `level` in bytes.
    queue: mpsc::UnboundedSender<(Event, usize)>,
    level: Arc<Level>,
}

/// How much waits.
#[derive(Debug, Default)]
struct Level {
    bytes: AtomicUsize,
    fell: Notify,
}

pub(crate) fn channel() -> (Feed, Events) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let level = Arc::new(Level::default());
    (Feed { queue: sender, level: Arc::clone(&level) }, Events { queue: receiver, level })
}

impl Events {
    /// The next event; `None` when the connection has ended and everything was taken, or when a later
    /// call of [`crate::Client::events`] took over. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Event> {
        let taken = self.queue.recv().await;
        taken.map(|taken| self.count(taken))
    }

    /// The next event if one is there.
    pub fn try_recv(&mut self) -> Option<Event> {
        let taken = self.queue.try_recv().ok();
        taken.map(|taken| self.count(taken))
    }

    fn count(&self, (event, bytes): (Event, usize)) -> Event {
        self.level.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.level.fell.notify_one();
        event
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.queue.close();
        self.level.fell.notify_one();
    }
}

impl Feed {
    /// Hands an event over that took `bytes` on the wire. For a follower that is gone it is dropped.
    pub(crate) fn push(&self, event: Event, bytes: usize) {
        self.level.bytes.fetch_add(bytes, Ordering::AcqRel);
        // Nobody follows any more: the event is for nobody.
        let _gone = self.queue.send((event, bytes));
    }

    /// Whether another line may be read. `has_callers`: somebody waits for a reply.
    pub(crate) fn has_room(&self, has_callers: bool) -> bool {
        let bytes = self.level.bytes.load(Ordering::Acquire);
        self.queue.is_closed() || bytes < if has_callers { HARD_BYTES } else { SOFT_BYTES }
    }

    /// Waits until [`Feed::has_room`] may give another answer. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.level.fell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64) -> Event {
        Event { name: "x".to_owned(), session_id: None, data: None, seq: Some(seq) }
    }

    #[test]
    fn an_event_is_written_as_it_came() {
        let line = r#"{"event":"agent_end","sessionId":"s","data":{"a": 1},"seq":7}"#;
        let data = RawValue::from_string(r#"{"a": 1}"#.to_owned()).unwrap();
        let event = Event {
            name: "agent_end".to_owned(),
            session_id: Some("s".to_owned()),
            data: Some(data),
            seq: Some(7),
        };
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
    }

    #[tokio::test]
    async fn reading_stops_at_the_soft_bound_and_for_callers_at_the_hard_one() {
        let (feed, mut events) = channel();
        assert!(feed.has_room(false));
        feed.push(event(1), SOFT_BYTES);
        assert!(!feed.has_room(false) && feed.has_room(true));
        feed.push(event(2), HARD_BYTES - SOFT_BYTES);
        assert!(!feed.has_room(true));
        assert_eq!(events.recv().await.and_then(|event| event.seq), Some(1));
        feed.changed().await;
        assert!(!feed.has_room(false) && feed.has_room(true));
        assert_eq!(events.try_recv().and_then(|event| event.seq), Some(2));
        assert!(feed.has_room(false) && events.try_recv().is_none());
    }

    #[tokio::test]
    async fn a_follower_that_goes_away_stops_nothing() {
        let (feed, events) = channel();
        feed.push(event(1), HARD_BYTES);
        drop(events);
        feed.changed().await;
        assert!(feed.has_room(false));
        feed.push(event(2), HARD_BYTES);
        assert!(feed.has_room(false));
    }
}
