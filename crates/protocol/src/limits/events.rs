//! Limits of the events that followers get.

use std::time::Duration;

/// Events of one session that are kept for late or slow followers.
pub const RING_EVENTS: usize = 4096;

/// Bytes of one session's kept events.
pub const RING_BYTES: usize = 2 * 1024 * 1024;

/// Bytes of all sessions' kept events. Above it the oldest of all are dropped first.
pub const RINGS_BYTES: usize = 16 * 1024 * 1024;

/// Retention of a session's events after its last follower disconnects.
pub const RING_KEPT_FOR: Duration = Duration::from_secs(10 * 60);

/// Longest text of a tool's result in an event, and longest start of an output in an update, in bytes of text. The
/// complete text is in the reply or in the spill file.
pub const MAX_SHOWN_BYTES: usize = 16 * 1024;

/// Like [`MAX_SHOWN_BYTES`], in bytes of JSON. Escaping can multiply a text by six.
pub const MAX_SHOWN_JSON_BYTES: usize = 6 * MAX_SHOWN_BYTES + 2;

/// Longest arguments in an event, in bytes of JSON text.
pub const MAX_SHOWN_ARGUMENTS_BYTES: usize = 16 * 1024;

/// Shortest time between two output updates of one call.
pub const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

/// Updates of one worker that may be in flight.
pub const UPDATE_CREDITS: u32 = 8;

/// Time after which the supervisor returns a credit. A worker sends at most 80 updates per second.
pub const CREDIT_INTERVAL: Duration = Duration::from_millis(100);
