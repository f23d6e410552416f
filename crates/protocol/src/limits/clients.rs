//! Limits of the clients of the socket: lines, connections, waiting requests and bytes.

use std::time::Duration;

/// Longest line a client may send and longest frame a worker may send, in bytes. Tool arguments and results are at most
/// about 1 MiB of text. JSON escaping can multiply that by six, and the rest is envelope. A longer line is skipped to
/// its end and answered with one error.
pub const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Clients connected at the same time. One more is accepted, gets the error `Too many connections` and is disconnected.
pub const MAX_CLIENTS: usize = 1024;

/// Longest name and longest version of a client, in characters.
pub const MAX_CLIENT_NAME_CHARS: usize = 64;

/// Longest `door` of a client, in characters.
pub const MAX_CLIENT_DOOR_CHARS: usize = 16;

/// Longest name of a session that is named after its client, in characters, without the number.
pub const MAX_CLAIMED_NAME_CHARS: usize = 40;

/// Sessions that one client may claim.
pub const MAX_CLIENT_CLAIMS: usize = 64;

/// Clients that `quack.ps` lists.
pub const MAX_SHOWN_CLIENTS: usize = 256;

/// Unanswered requests of one client. At this number the supervisor stops reading from the client until one is
/// answered.
pub const MAX_CLIENT_REQUESTS: usize = 64;

/// Bytes of the unanswered requests of one client. With this many the supervisor stops reading from the client until one
/// is answered. Four of the longest lines fit.
pub const CLIENT_REQUEST_BYTES: usize = 4 * MAX_LINE_BYTES;

/// Bytes of the unanswered requests of all clients. If there are more, a request is refused, unless its client has at
/// most [`FREE_REQUEST_BYTES`] with it.
pub const MAX_REQUEST_BYTES: usize = 16 * MAX_LINE_BYTES;

/// Bytes of the unanswered requests of one client that it may always have.
pub const FREE_REQUEST_BYTES: usize = 64 * 1024;

/// Bytes of lines that are not complete, of all clients of one kind (sockets, WebSockets). The first 64 KiB of each client
/// do not count. If there are more, the client that holds most for longest is refused. Eight of the longest lines fit.
pub const MAX_UNFINISHED_BYTES: usize = 8 * MAX_LINE_BYTES;

/// Bytes waiting to be written to all clients. The first 64 KiB of each client do not count. If there are more, the client
/// that holds most without reading is disconnected as slow.
pub const MAX_QUEUED_BYTES: usize = 16 * MAX_LINE_BYTES;

/// Messages waiting to be written to one client.
pub const CLIENT_OUTBOX_MESSAGES: usize = 1024;

/// Bytes waiting to be written to one client. Two of the longest replies fit. The supervisor stops reading from a
/// client while this many bytes wait for it.
pub const CLIENT_OUTBOX_BYTES: usize = 2 * MAX_LINE_BYTES;

/// Bytes of events waiting to be written to one client. Further events stay in the session's ring. Some dozens of the
/// longest events fit, thousands of ordinary ones.
pub const CLIENT_EVENT_BYTES: usize = 256 * 1024;

/// Bytes of direct events waiting to be written to one client. Direct events are those for a single voice client:
/// session changed, start, stop, text. A client that lets more wait is disconnected as slow. One longer message is
/// accepted if nothing else waits.
pub const CLIENT_TOLD_BYTES: usize = 256 * 1024;

/// Direct events waiting to be written to one client; see [`CLIENT_TOLD_BYTES`].
pub const CLIENT_TOLD_MESSAGES: usize = 256;

/// Time in which a line must be complete after its first byte. Otherwise an incomplete line would hold a connection and
/// its buffer forever.
pub const PARTIAL_LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client that has replies waiting and reads no byte for this long is disconnected as slow.
pub const CLIENT_WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time that a client usually waits for a reply: no worker is needed for it.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a client waits for the daemon's checks. The daemon may run a login shell and wait for its disk.
pub const DOCTOR_TIMEOUT: Duration = Duration::from_secs(20);

/// Time that a client waits for a garbage collection, which may wait for a slow disk.
pub const GC_TIMEOUT: Duration = Duration::from_secs(10 * 60);
