//! Limits of HTTP clients: remote control and the metrics endpoint.

use std::time::Duration;

/// Connections to the remote port at the same time, WebSockets included; one more is closed.
pub const MAX_REMOTE_CONNECTIONS: usize = 256;

/// Connections to the remote port from one address. Prevents one machine from using all connections. All clients behind
/// a proxy on this machine share one address.
pub const MAX_REMOTE_CONNECTIONS_PER_PEER: usize = 128;

/// Minimum length of a new remote control token, in bytes of printable ASCII. Tokens made by quackd have 32.
pub const MIN_REMOTE_TOKEN_BYTES: usize = 16;

/// WebSockets at the same time; one more is answered with 503.
pub const MAX_REMOTE_CLIENTS: usize = 64;

/// WebSockets at the same time whose client has not sent its token yet; one more closes the oldest.
pub const MAX_UNAUTHENTICATED_CLIENTS: usize = 16;

/// Timeout of the first message of a WebSocket, which has the token.
pub const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that a WebSocket client may send before it is authenticated.
pub const MAX_UNAUTHENTICATED_BYTES: usize = 16 * 1024;

/// Lifetime of a code for which the page gets a token.
pub const PAGE_CODE_LIFETIME: Duration = Duration::from_secs(600);

/// Time without a use after which the token of a page expires.
pub const PAGE_TOKEN_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Codes that are not used yet. One more replaces the oldest.
pub const MAX_PAGE_CODES: usize = 16;

/// Tokens of pages. One more replaces the one that was not used for longest.
pub const MAX_PAGE_TOKENS: usize = 32;

/// Interval at which a waiting `quack.session_rows` compares the rows, and the longest wait.
pub const ROWS_INTERVAL: Duration = Duration::from_secs(2);
/// See [`ROWS_INTERVAL`].
pub const ROWS_TIMEOUT: Duration = Duration::from_secs(25);

/// Largest body of `POST /token`, in bytes; a longer one is answered with 413.
pub const MAX_TOKEN_BODY_BYTES: usize = 1024;

/// Largest head of a request to the remote port, in bytes; a longer one is answered with 431.
pub const MAX_REMOTE_HEAD_BYTES: usize = 16 * 1024;

/// Largest body of `POST /rpc`, in bytes; a longer one is answered with 413.
pub const MAX_RPC_BODY_BYTES: usize = 1_000_000;

/// Timeout of a remote client's TLS handshake, of each request's head, and of the wait for the next request.
pub const REMOTE_HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Timeout of a remote client's request body.
pub const REMOTE_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval of WebSocket pings.
pub const REMOTE_PING_INTERVAL: Duration = Duration::from_secs(25);

/// Time without a message from the client after which its WebSocket is closed: three unanswered pings.
pub const REMOTE_SILENCE: Duration = Duration::from_secs(80);

/// Largest number of events in a reply to `GET /history`.
pub const MAX_HISTORY_EVENTS: usize = 1000;

/// Default number of events in a reply to `GET /history`.
pub const DEFAULT_HISTORY_EVENTS: usize = 200;

/// Largest part of a history file that is read, in bytes from its end.
pub const MAX_HISTORY_BYTES: u64 = 8 * 1024 * 1024;

/// Connections to the metrics endpoint that are served at the same time. More wait in the kernel.
pub const MAX_METRICS_CONNECTIONS: usize = 8;

/// Largest head of a request to the metrics endpoint, in bytes; the smallest value that hyper accepts. A longer head is
/// answered with 431.
pub const MAX_METRICS_HEAD_BYTES: usize = 8 * 1024;

/// Timeout of a metrics client's request head. Otherwise a silent client would keep its connection slot.
pub const METRICS_HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which a metrics client without a complete head keeps its connection slot. Later it is disconnected if others
/// wait and all slots are in use.
pub const METRICS_HEAD_GRACE: Duration = Duration::from_millis(100);

/// Longest duration of a connection to the metrics endpoint, including the reply.
pub const METRICS_CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Lifetime of the cached metrics text. Frequent requests then cost the daemon nothing.
pub const METRICS_KEPT_FOR: Duration = Duration::from_secs(1);
