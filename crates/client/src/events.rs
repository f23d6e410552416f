//! The channel of events from a connection to its follower: lossless, bounded in bytes.
//!
//! Contains the events that were read but not taken. The connection's task sends, [`Events`] receives.
//!
//! A slow follower pauses reading from the socket. Further events then accumulate in the daemon, which alone decides
//! when a client is too slow.

use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};

/// Bytes of waiting events at which the connection pauses reading.
const SOFT_BYTES: usize = 1024 * 1024;

/// Like [`SOFT_BYTES`], while a request waits for its reply, which may be behind the events. Larger than the daemon's
/// buffers for one client: its outbox (16 MiB) and one session's kept events (2 MiB).
const HARD_BYTES: usize = 32 * 1024 * 1024;

/// An event of a session, sent by the daemon. Serializes unchanged.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Name of the event.
    #[serde(rename = "event")]
    pub name: String,
    /// The session of the event. `None` for events without a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The payload as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// Number of the event within the session, if the daemon counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The turn of the session's Pi that the event belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
}

/// Events of one connection, in order and without gaps. Dropping it discards later events.
#[derive(Debug)]
pub struct Events {
    queue: mpsc::UnboundedReceiver<(Event, usize)>,
    level: Arc<BufferedBytes>,
}

/// Sending half of the channel, owned by the connection's task.
#[derive(Debug)]
pub(crate) struct EventSender {
    /// Unbounded in number, bounded by `level` in bytes.
    queue: mpsc::UnboundedSender<(Event, usize)>,
    level: Arc<BufferedBytes>,
}

/// Bytes in the channel.
#[derive(Debug, Default)]
struct BufferedBytes {
    bytes: AtomicUsize,
    fell: Notify,
}

pub(crate) fn channel() -> (EventSender, Events) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let level = Arc::new(BufferedBytes::default());
    (EventSender { queue: sender, level: Arc::clone(&level) }, Events { queue: receiver, level })
}

impl Events {
    /// Returns the next event. `None` after the connection has closed and all events were taken, or after a later call
    /// of [`crate::Client::events`]. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Event> {
        let taken = self.queue.recv().await;
        taken.map(|(event, bytes)| self.count(event, bytes))
    }

    /// Returns the next event without waiting, or `None`.
    pub fn try_recv(&mut self) -> Option<Event> {
        let taken = self.queue.try_recv().ok();
        taken.map(|(event, bytes)| self.count(event, bytes))
    }

    fn count(&self, event: Event, bytes: usize) -> Event {
        self.level.bytes.fetch_sub(bytes, Ordering::AcqRel);
        // Only the connection's task waits. A notification that arrives before the wait is kept.
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

impl EventSender {
    /// Sends an event that has `bytes` on the wire. Discards it if the receiver was dropped.
    pub(crate) fn push(&self, event: Event, bytes: usize) {
        self.level.bytes.fetch_add(bytes, Ordering::AcqRel);
        // The receiver was dropped, so the event can be discarded.
        self.queue.send((event, bytes)).ok();
    }

    /// Returns true if the connection may read another line. `has_callers`: a caller waits for a reply.
    pub(crate) fn has_room(&self, has_callers: bool) -> bool {
        let bytes = self.level.bytes.load(Ordering::Acquire);
        self.queue.is_closed() || bytes < if has_callers { HARD_BYTES } else { SOFT_BYTES }
    }

    /// Waits until [`EventSender::has_room`] may return another value. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.level.fell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64) -> Event {
        Event { name: "x".to_owned(), session_id: None, data: None, seq: Some(seq), turn: None }
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
            turn: None,
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
