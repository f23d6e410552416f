//! Every bound of the wire, the tools and the processes, each with its reason.

mod terminals;

pub use terminals::*;

use std::time::Duration;

// --- the client wire ------------------------------------------------------------------------

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

// --- tools ----------------------------------------------------------------------------------

/// Bytes of bash output, grep output and web results shown to the caller.
pub const MAX_OUTPUT_BYTES: usize = 102_400;

/// Bytes kept from the beginning and from the end of a longer bash output.
pub const OUTPUT_HALF_BYTES: usize = MAX_OUTPUT_BYTES / 2;

/// Longest arguments of one tool call, in bytes of JSON text: a file of the largest size that is read,
/// with its escapes.
pub const MAX_ARGUMENTS_BYTES: usize = 2 * 1024 * 1024;

/// Longest tool name that is looked up, in bytes.
pub const MAX_TOOL_NAME_BYTES: usize = 200;

/// Longest path that a worker may report, in bytes: the kernel's own limit.
pub const MAX_PATH_BYTES: usize = 4096;

/// Longest request id, in bytes of JSON text: it is echoed, and waits with its request.
pub const MAX_ID_BYTES: usize = 64 * 1024;

/// Largest file that `read_file` returns, in bytes.
pub const MAX_FILE_BYTES: u64 = 1_048_576;

/// Deadline of a tool call that sets none.
pub const DEFAULT_TOOL_DEADLINE: Duration = Duration::from_secs(30);

/// Longest deadline that a caller may set.
pub const MAX_TOOL_DEADLINE: Duration = Duration::from_secs(600);

/// Shortest deadline that a caller may set.
pub const MIN_TOOL_DEADLINE: Duration = Duration::from_millis(100);

/// Longest deadline of a call by a voice client of the type `local-app`. The macOS app gives up every request after 10
/// s.
pub const LOCAL_APP_DEADLINE: Duration = Duration::from_millis(9000);

/// Time after which a call of a `local-app` client is answered, even if its command is still running because it ignores
/// TERM.
pub const LOCAL_APP_ANSWER: Duration = Duration::from_millis(9600);

/// Time between TERM and KILL when a deadline has passed.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(2);

/// Time between TERM and KILL when a caller aborts.
pub const ABORT_GRACE: Duration = Duration::from_millis(100);

/// Time added to a call's deadline before the supervisor answers in the worker's place. Covers the grace period,
/// draining the pipes and the transfer of the result.
pub const DEADLINE_SLACK: Duration = Duration::from_secs(4);

/// Calls of one session without a reply, including those that wait for a worker or a command slot. The supervisor
/// answers one more as busy.
pub const MAX_CALLS_PER_SESSION: usize = 32;

/// Largest spill file of one bash output, in bytes.
pub const MAX_SPILL_BYTES: u64 = 64 * 1024 * 1024;

/// Spill files kept per session; the oldest is deleted first.
pub const MAX_SPILL_FILES: usize = 8;

/// Commands of all sessions that run at the same time. More wait for a command slot. Each command holds about ten
/// descriptors and up to 512 KiB of output in its worker.
pub const MAX_COMMANDS: usize = 256;

/// Command slots reserved for each session, regardless of the load from other sessions.
pub const COMMANDS_PER_SESSION_ANYWAY: usize = 4;

/// Longest wait for a command slot, and at most half of the command's deadline. Then the command is refused.
pub const COMMAND_PLACE_WAIT: Duration = Duration::from_secs(10);

/// Processes that the commands of one session may have at the same time.
pub const MAX_PROCESSES_PER_SESSION: usize = 512;

/// Processes that the commands of all sessions may have at the same time, where the kernel counts them.
pub const MAX_PROCESSES: usize = 4096;

/// Total size of the spill files of all sessions, in bytes. The oldest are deleted first.
pub const MAX_SPILLS_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Longest search pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 64 * 1024;

/// Most rows in one reply of a search tool. A caller can continue after the last row.
pub const MAX_ROWS: u64 = 10_000;

/// Smallest output size that a caller of `search`, `find` or `replace` may request, in bytes of text.
pub const MIN_SEARCH_OUTPUT_BYTES: usize = 1024;

/// Largest output size that a caller may request, in bytes. The reply contains the rows twice, as text and as data, and
/// must fit into a frame.
pub const MAX_SEARCH_OUTPUT_BYTES: usize = 1024 * 1024;

// --- background jobs ------------------------------------------------------------------------

/// Jobs of one session that run at the same time; one more is refused.
pub const MAX_JOBS_PER_SESSION: usize = 8;

/// Jobs of all sessions that run at the same time; one more is refused.
pub const MAX_JOBS: usize = 128;

/// Exited jobs of one session that are kept. The oldest is dropped first, with its file.
pub const MAX_ENDED_JOBS: usize = 32;

/// Default and longest running time of a job. Such a job was probably forgotten by the user.
pub const MAX_JOB_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Newest bytes of a running job's output that are kept in memory. More than the bytes in flight to the job's file.
pub const JOB_MEMORY_BYTES: usize = 1024 * 1024;

/// Like [`JOB_MEMORY_BYTES`], for an exited job whose file is incomplete.
pub const ENDED_JOB_MEMORY_BYTES: usize = MAX_OUTPUT_BYTES;

/// Total size of the files of exited jobs, in bytes. The oldest is deleted first. The newest always fits.
pub const MAX_ENDED_JOBS_BYTES: u64 = 8 * MAX_SPILL_BYTES;

/// Longest id of a job, in bytes.
pub const MAX_JOB_ID_BYTES: usize = 32;

/// Longest text that represents a job's command in lists, in bytes.
pub const MAX_JOB_COMMAND_BYTES: usize = 200;

/// Job reports that a worker may send for each call: one for the start of a job, one for its exit.
pub const JOB_REPORTS_PER_CALL: u32 = 2;

/// Job reports that a worker may have saved up. Covers the exits of all running jobs, the jobs that calls in flight may
/// start and end, and a few more.
pub const MAX_JOB_REPORTS: u32 = 80;

// --- events ---------------------------------------------------------------------------------

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

// --- the web --------------------------------------------------------------------------------

/// Timeout of a web search.
pub const WEB_SEARCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest body of a provider's response that is read, in bytes. Ten results with their texts fit.
pub const MAX_WEB_BODY_BYTES: usize = 1024 * 1024;

/// Longest search query, in bytes.
pub const MAX_WEB_QUERY_BYTES: usize = 8 * 1024;

/// Most domains in one search.
pub const MAX_WEB_DOMAINS: usize = 64;

/// Longest domain in a search, in bytes.
pub const MAX_WEB_DOMAIN_BYTES: usize = 253;

/// Web searches of one session at the same time. One more gets the error that too many are running.
pub const MAX_WEB_SEARCHES_PER_SESSION: usize = 4;

/// Web searches of all sessions at the same time.
pub const MAX_WEB_SEARCHES: usize = 16;

// --- workers --------------------------------------------------------------------------------

/// Frames waiting to be written to one worker.
pub const WORKER_OUTBOX_FRAMES: usize = 64;

/// Longest wait of a call for a worker that starts or backs off, within the call's deadline.
pub const WORKER_READY_WAIT: Duration = Duration::from_secs(2);

/// Available memory in MiB below which idle workers are evicted. Swapping slows the whole machine, and a worker starts
/// again within milliseconds.
pub const EVICT_BELOW_MB: usize = 256;

/// An idle worker is evicted after this long without a call. The next call starts a new one.
pub const WORKER_IDLE_TTL: Duration = Duration::from_secs(30 * 60);

/// Live workers at the same time.
pub const MAX_WORKERS: usize = 1200;

/// Last bytes of a worker's stderr that are kept for its death report.
pub const WORKER_STDERR_BYTES: usize = 8 * 1024;

/// Sessions and workspaces that the metadata may hold.
pub const MAX_SESSIONS: usize = 10_000;

/// Longest session name, in characters.
pub const MAX_NAME_CHARS: usize = 100;

/// Largest `metadata.json` that is read, in bytes.
pub const MAX_METADATA_BYTES: u64 = 64 * 1024 * 1024;

/// Largest `quackd-state.json` that is read, in bytes: the content of `metadata.json`, and 1.6 KiB for each of the
/// sessions.
pub const MAX_STATE_BYTES: u64 = MAX_METADATA_BYTES + 16 * 1024 * 1024;

/// Time that running calls get when the daemon stops.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

// --- Pi -------------------------------------------------------------------------------------

/// Default limit of running Pi processes. Each takes 100 to 170 MiB before it has done anything.
pub const MAX_PIS: usize = 16;

/// Timeout of a command to Pi. Upstream and its clients use the same timeout.
pub const AGENT_COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// Time that Pi has to abort. Then Pi is killed with all of its child processes.
pub const AGENT_ABORT_LIMIT: Duration = Duration::from_secs(3);

/// Time that `get_state` and `follow` wait for Pi's state before they answer with the last known state. Pi answers
/// within milliseconds, even while it is busy.
pub const AGENT_STATE_WAIT: Duration = Duration::from_millis(150);

/// Largest event of Pi, in bytes of JSON. Long texts in a larger event are cut.
pub const MAX_AGENT_EVENT_BYTES: usize = 512 * 1024;

/// Largest state of Pi in a reply, in bytes of JSON.
pub const MAX_AGENT_STATE_BYTES: usize = 64 * 1024;

/// Largest answer of Pi to a command of `quack.agent`, in bytes of JSON.
pub const MAX_AGENT_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Prompts of one session that wait for Pi to start or to answer; one more is refused.
pub const MAX_AGENT_PROMPTS: usize = 16;

/// Dialogs of one Pi that wait for the user. More are cancelled at once.
pub const MAX_PI_DIALOGS: usize = 32;

/// Events of one Pi per second. Beyond that Pi waits. A model writes fewer. A client that reads nothing for some
/// seconds still finds all of them in the ring.
pub const AGENT_EVENTS_PER_SECOND: u32 = 1_000;

/// Largest burst of events of one Pi; see [`AGENT_EVENTS_PER_SECOND`].
pub const AGENT_EVENTS_BURST: u32 = 500;

/// Last bytes of Pi's stderr that are kept for its death report.
pub const PI_STDERR_BYTES: usize = 8 * 1024;

// --- garbage collection ---------------------------------------------------------------------

/// Default retention of spill files.
pub const OUTPUTS_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Default retention of the originals of replaced files.
pub const UNDO_KEPT: Duration = OUTPUTS_KEPT;

/// Total size of the originals of all sessions, in bytes. The oldest are deleted first. Eight sessions can each use
/// their full quota.
pub const MAX_UNDO_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// Default of `keep.caches_mb`, in bytes: total size of the package caches of all workspaces.
pub const MAX_CACHES_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Default of `keep.journal_days`: retention of the journal of calls.
pub const JOURNAL_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Default of `keep.journal_mb`, in bytes: total size of the journal of calls. Some 200,000 calls fit.
pub const MAX_JOURNAL_BYTES: u64 = 64 * 1024 * 1024;

/// Largest text of a call in the journal, in bytes. A longer one keeps both ends.
pub const MAX_JOURNAL_TEXT_BYTES: usize = 8 * 1024;

/// Largest line of the journal, in bytes, with all of its parts escaped. A reader skips longer ones.
pub const MAX_JOURNAL_LINE_BYTES: usize = 128 * 1024;

/// Free space required on the disk of the state directory, in bytes, and at most a tenth of the disk. With less,
/// optional files are not written. Hundreds of saves of the metadata fit.
pub const MIN_FREE_BYTES: u64 = 200 * 1024 * 1024;

// --- logs -----------------------------------------------------------------------------------

/// Size at which `duck-daemon.log` is rotated, in bytes.
pub const LOG_FILE_BYTES: usize = 8 * 1024 * 1024;

/// Rotated log files kept in addition to the current one.
pub const LOG_FILES_KEPT: usize = 4;

// --- remote control -------------------------------------------------------------------------

/// Connections to the remote port at the same time, WebSockets included; one more is closed.
pub const MAX_REMOTE_CONNECTIONS: usize = 256;

/// Connections to the remote port from one address. Prevents one machine from using all connections. All clients behind
/// a proxy on this machine share one address.
pub const MAX_REMOTE_CONNECTIONS_PER_PEER: usize = 128;

/// Minimum length of a new remote control token, in bytes of printable ASCII. Tokens made by quackd have 32.
pub const MIN_REMOTE_TOKEN_BYTES: usize = 16;

/// WebSockets at the same time; one more is answered with 503.
pub const MAX_REMOTE_CLIENTS: usize = 64;

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

// --- garbage collection ---------------------------------------------------------------------

/// Default minimum age of damaged files and histories that `quack.gc` deletes.
pub const GC_KEPT_ASIDE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Largest number of items in a dry run of `quack.gc`.
pub const MAX_GC_NAMED: usize = 1000;

// --- metrics over HTTP ----------------------------------------------------------------------

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

// --- network by host and approvals ----------------------------------------------------------

/// Most rules of hosts in one layer of a policy.
pub const MAX_HOST_RULES: usize = 256;

/// Most grants of one scope.
pub const MAX_GRANTS: usize = 512;

/// Most forwards of one session.
pub const MAX_FORWARDS_PER_SESSION: usize = 8;

/// Most forwards of all sessions.
pub const MAX_FORWARDS: usize = 64;

/// Most servers of one session that are listed.
pub const MAX_SERVERS: usize = 16;

/// Requests for hosts that the daemon remembers for one session.
pub const MAX_NETWORK_LOG: usize = 1000;

/// Most questions to the user that are open in one session.
pub const MAX_APPROVALS_PER_SESSION: usize = 4;

/// Most questions to the user that are open in all sessions.
pub const MAX_APPROVALS: usize = 32;

/// Most questions to the user in one session within a minute.
pub const MAX_APPROVALS_PER_MINUTE: usize = 12;

/// Sessions whose questions one client watches, one by one.
pub const MAX_WATCHED_SESSIONS: usize = 64;

/// Closed questions that the daemon remembers.
pub const RECENT_APPROVALS: usize = 64;

/// Time in which a question that has expired can still be answered, for the next attempt.
pub const LATE_ANSWER: Duration = Duration::from_secs(10 * 60);

/// Time in which an operation that the user denied is denied again without a question.
pub const DENIED_FOR: Duration = Duration::from_secs(60);

/// Size of one file of `approvals.jsonl`. One older file is kept.
pub const APPROVALS_FILE_BYTES: u64 = 2 * 1024 * 1024;

/// Size of one file of `network.jsonl`. One older file is kept.
pub const NETWORK_FILE_BYTES: u64 = 8 * 1024 * 1024;
