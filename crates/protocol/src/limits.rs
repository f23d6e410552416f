//! Every bound in one place, each with its reason.

use std::time::Duration;

// --- the client wire ------------------------------------------------------------------------

/// Longest line a client may send and longest frame a worker may send, in bytes. Tool arguments and
/// results are at most about 1 MiB of text; JSON escaping can multiply that by six, and the rest is
/// envelope. A longer line is skipped to its end and answered with one error.
pub const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Clients connected at the same time. One more is accepted, told `Too many connections` and closed.
pub const MAX_CLIENTS: usize = 1024;

/// Requests of one client that may wait for an answer at the same time. The client is not read
/// further until one of them is answered.
pub const MAX_CLIENT_REQUESTS: usize = 64;

/// Messages waiting to be written to one client.
pub const CLIENT_OUTBOX_MESSAGES: usize = 1024;

/// Bytes waiting to be written to one client. Two of the longest replies fit; a client that reads
/// nothing while this many bytes wait is not read further either.
pub const CLIENT_OUTBOX_BYTES: usize = 2 * MAX_LINE_BYTES;

/// Bytes of events waiting to be written to one client; what it has not read beyond them stays in the
/// session's ring. Some dozens of the longest fit, thousands of ordinary ones.
pub const CLIENT_EVENT_BYTES: usize = 256 * 1024;

/// Bytes of what one client alone is told (a voice client: another session, start, stop, text) waiting to
/// be written to it. A client that lets more wait is disconnected as slow. One longer message is taken
/// if nothing else waits.
pub const CLIENT_TOLD_BYTES: usize = 256 * 1024;

/// The same in messages.
pub const CLIENT_TOLD_MESSAGES: usize = 256;

/// A line that was begun must be complete after this long: half a line and silence must not hold a
/// connection and its buffer for ever.
pub const PARTIAL_LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client that has replies waiting and takes no byte for this long is disconnected as slow.
pub const CLIENT_WRITE_TIMEOUT: Duration = Duration::from_secs(60);

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

/// Deadline of a tool call that names none.
pub const DEFAULT_TOOL_DEADLINE: Duration = Duration::from_secs(30);

/// Longest deadline that a caller may ask for.
pub const MAX_TOOL_DEADLINE: Duration = Duration::from_secs(600);

/// Shortest deadline that a caller may ask for.
pub const MIN_TOOL_DEADLINE: Duration = Duration::from_millis(100);

/// Longest deadline of a call by a voice client of the type `local-app`: the macOS app gives every request
/// up after 10 s.
pub const LOCAL_APP_DEADLINE: Duration = Duration::from_millis(9000);

/// When such a call is answered even if what it ran has not ended yet, because it ignores TERM.
pub const LOCAL_APP_ANSWER: Duration = Duration::from_millis(9600);

/// Time between TERM and KILL when a deadline has passed.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(2);

/// Time between TERM and KILL when a caller aborts.
pub const ABORT_GRACE: Duration = Duration::from_millis(100);

/// What the supervisor adds to a call's deadline before it answers in the worker's place: the grace,
/// the drain of the pipes and the way back.
pub const DEADLINE_SLACK: Duration = Duration::from_secs(4);

/// Calls that one worker runs at the same time; one more is answered as busy.
pub const MAX_CALLS_PER_SESSION: usize = 32;

/// Largest file to which a long bash output is spilled, in bytes.
pub const MAX_SPILL_BYTES: u64 = 64 * 1024 * 1024;

/// Spill files kept per session; the oldest is deleted first.
pub const MAX_SPILL_FILES: usize = 8;

/// Commands of all sessions that run at the same time; more wait for a place. Each holds about ten
/// descriptors and up to half a mebibyte of output in its worker.
pub const MAX_COMMANDS: usize = 256;

/// Places for commands that a session has in any case, however many the others take.
pub const COMMANDS_PER_SESSION_ANYWAY: usize = 4;

/// How long a command waits for a place, within half of its deadline; then it is refused.
pub const COMMAND_PLACE_WAIT: Duration = Duration::from_secs(10);

/// Processes that the commands of one session may have at the same time.
pub const MAX_PROCESSES_PER_SESSION: usize = 512;

/// Processes that the commands of all sessions may have at the same time, where the kernel counts them.
pub const MAX_PROCESSES: usize = 4096;

/// Bytes that the spill files of all sessions may have together; the oldest are deleted first.
pub const MAX_SPILLS_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Longest search pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 64 * 1024;

/// Rows of one answer of a search tool: a reader who wants more goes on from there.
pub const MAX_ROWS: u64 = 10_000;

/// Bytes of text that a caller of `search`, `find` or `replace` may ask for in one answer, at least.
pub const MIN_SEARCH_OUTPUT_BYTES: usize = 1024;

/// The same at most. The answer has the rows twice, as text and as data, and must fit into a frame.
pub const MAX_SEARCH_OUTPUT_BYTES: usize = 1024 * 1024;

// --- background jobs ------------------------------------------------------------------------

/// Jobs of one session that run at the same time; one more is refused.
pub const MAX_JOBS_PER_SESSION: usize = 8;

/// Jobs of all sessions that run at the same time; one more is refused.
pub const MAX_JOBS: usize = 128;

/// Jobs that have ended and can still be asked for; the oldest is forgotten first, with its file.
pub const MAX_ENDED_JOBS: usize = 32;

/// Running time of a job that names none, and the longest that one may ask for: whoever started it has
/// certainly forgotten it.
pub const MAX_JOB_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Newest bytes of a running job's output that are kept in memory: more than can be on its way to the
/// job's file.
pub const JOB_MEMORY_BYTES: usize = 1024 * 1024;

/// The same for a job that has ended and whose file does not hold everything.
pub const ENDED_JOB_MEMORY_BYTES: usize = MAX_OUTPUT_BYTES;

/// Bytes that the files of ended jobs may have together; the oldest is deleted first. The newest fits
/// always.
pub const MAX_ENDED_JOBS_BYTES: u64 = 8 * MAX_SPILL_BYTES;

/// Longest id of a job, in bytes.
pub const MAX_JOB_ID_BYTES: usize = 32;

/// Longest text that stands for a job's command in lists, in bytes.
pub const MAX_JOB_COMMAND_BYTES: usize = 200;

/// Reports on its jobs that a worker may send for each call that it was sent: a job begins by a call, and
/// ends.
pub const JOB_REPORTS_PER_CALL: u32 = 2;

/// Reports that a worker may have saved up: for the ends of all running jobs, for what may begin and end
/// by all calls in flight, and a few.
pub const MAX_JOB_REPORTS: u32 = 80;

// --- events ---------------------------------------------------------------------------------

/// Events of one session that are kept for followers that come late or are behind.
pub const RING_EVENTS: usize = 4096;

/// Bytes of one session's kept events.
pub const RING_BYTES: usize = 2 * 1024 * 1024;

/// Bytes of all sessions' kept events; beyond it the oldest of all are dropped first.
pub const RINGS_BYTES: usize = 16 * 1024 * 1024;

/// How long the events of a session that nobody follows any more are kept for whoever comes back.
pub const RING_KEPT_FOR: Duration = Duration::from_secs(10 * 60);

/// Longest text of a tool's answer in an event, and longest beginning of an output in an update, in
/// bytes of text. A follower watches; who wants everything reads the answer or the spill file.
pub const MAX_SHOWN_BYTES: usize = 16 * 1024;

/// The same as JSON: escaping can multiply a text by six.
pub const MAX_SHOWN_JSON_BYTES: usize = 6 * MAX_SHOWN_BYTES + 2;

/// Longest arguments in an event, in bytes of JSON text.
pub const MAX_SHOWN_ARGUMENTS_BYTES: usize = 16 * 1024;

/// Output of running calls is published at most this often per call.
pub const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

/// Updates of one worker that may be under way.
pub const UPDATE_CREDITS: u32 = 8;

/// Credits are given back after this long: a worker sends at most 80 updates in a second.
pub const CREDIT_INTERVAL: Duration = Duration::from_millis(100);

// --- the web --------------------------------------------------------------------------------

/// How long a web search may take.
pub const WEB_SEARCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest body of a provider's answer that is read, in bytes. Ten results with their texts fit.
pub const MAX_WEB_BODY_BYTES: usize = 1024 * 1024;

/// Longest search query, in bytes.
pub const MAX_WEB_QUERY_BYTES: usize = 8 * 1024;

/// Domains that one search may name, and the longest of them, in bytes.
pub const MAX_WEB_DOMAINS: usize = 64;

/// See [`MAX_WEB_DOMAINS`].
pub const MAX_WEB_DOMAIN_BYTES: usize = 253;

/// Web searches of one session at the same time; one more is told that too many are running.
pub const MAX_WEB_SEARCHES_PER_SESSION: usize = 4;

/// Web searches of all sessions at the same time.
pub const MAX_WEB_SEARCHES: usize = 16;

// --- workers --------------------------------------------------------------------------------

/// Frames waiting to be written to one worker.
pub const WORKER_OUTBOX_FRAMES: usize = 64;

/// How long a call waits for a worker that starts or backs off, within its own deadline.
pub const WORKER_READY_WAIT: Duration = Duration::from_secs(2);

/// With less memory available than this, in MiB, workers that nobody uses are ended: a machine that begins to
/// swap is worse for everybody than a worker that starts again in some milliseconds.
pub const EVICT_BELOW_MB: usize = 256;

/// An idle worker is ended after this long without a call; the next call starts a new one.
pub const WORKER_IDLE_TTL: Duration = Duration::from_secs(30 * 60);

/// Live workers at the same time.
pub const MAX_WORKERS: usize = 1200;

/// Last bytes of a worker's stderr that are kept for its death report.
pub const WORKER_STDERR_BYTES: usize = 8 * 1024;

/// Sessions and workspaces that the metadata may hold.
pub const MAX_SESSIONS: usize = 10_000;

/// Longest name that a person may give a session, in characters.
pub const MAX_NAME_CHARS: usize = 100;

/// Largest `metadata.json` that is read, in bytes.
pub const MAX_METADATA_BYTES: u64 = 64 * 1024 * 1024;

/// Largest `quackd-state.json` that is read, in bytes: 1.6 KiB for each of the sessions.
pub const MAX_STATE_BYTES: u64 = 16 * 1024 * 1024;

/// Time that running calls get when the daemon stops.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

// --- Pi -------------------------------------------------------------------------------------

/// Live Pis at the same time unless somebody says otherwise: each takes 100 to 170 MiB before it has done
/// anything.
pub const MAX_PIS: usize = 16;

/// How long Pi may take to answer a command. Upstream's limit, and its clients'.
pub const PI_COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// How long a Pi that is told to abort may take before it is ended with everything below it.
pub const PI_ABORT_LIMIT: Duration = Duration::from_secs(3);

/// How long `get_state` and `follow` wait for Pi's own state before they answer with the last one. Pi answers
/// within some milliseconds, also while it works.
pub const PI_STATE_WAIT: Duration = Duration::from_millis(150);

/// Largest event of Pi's, in bytes of JSON. In a longer one the long texts are cut.
pub const MAX_PI_EVENT_BYTES: usize = 512 * 1024;

/// Largest state of Pi's that is shown, in bytes of JSON.
pub const MAX_PI_STATE_BYTES: usize = 64 * 1024;

/// Prompts of one session that wait for Pi to start or to answer; one more is refused.
pub const MAX_PI_PROMPTS: usize = 16;

/// Questions of one Pi that wait for a person; more are cancelled at once.
pub const MAX_PI_DIALOGS: usize = 32;

/// Events of one Pi in a second, and how many may come at once. Beyond that Pi waits. More than a model writes,
/// and so few that a client which reads nothing for some seconds finds all of them in the ring.
pub const PI_EVENTS_PER_SECOND: u32 = 1_000;

/// See [`PI_EVENTS_PER_SECOND`].
pub const PI_EVENTS_BURST: u32 = 500;

/// Last bytes of Pi's stderr that are kept for its death report.
pub const PI_STDERR_BYTES: usize = 8 * 1024;

// --- keeping house --------------------------------------------------------------------------

/// How long files with long outputs are kept unless somebody says otherwise.
pub const OUTPUTS_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long originals of replaced files are.
pub const UNDO_KEPT: Duration = OUTPUTS_KEPT;

/// Bytes that the originals of all sessions may have together; the oldest are deleted first. Eight sessions may
/// have all that one may have.
pub const MAX_UNDO_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// What has to be free on the disk of the state directory, in bytes, and at most a tenth of the disk: with less,
/// what can be done without is not written. Hundreds of saves of the metadata fit.
pub const MIN_FREE_BYTES: u64 = 200 * 1024 * 1024;

// --- logs -----------------------------------------------------------------------------------

/// Size at which `duck-daemon.log` is rotated, in bytes.
pub const LOG_FILE_BYTES: usize = 8 * 1024 * 1024;

/// Rotated log files kept besides the current one.
pub const LOG_FILES_KEPT: usize = 4;

// --- remote control -------------------------------------------------------------------------

/// Connections to the remote port at the same time, WebSockets included; one more is closed.
pub const MAX_REMOTE_CONNECTIONS: usize = 256;

/// Those of them from one address: one machine cannot take all places. A proxy on this machine is one
/// address for all who come through it.
pub const MAX_REMOTE_CONNECTIONS_PER_PEER: usize = 128;

/// Minimum length of a new remote control token, in bytes of printable ASCII. Tokens made by quackd have 32.
pub const MIN_REMOTE_TOKEN_BYTES: usize = 16;

/// WebSockets at the same time; one more is answered with 503.
pub const MAX_REMOTE_CLIENTS: usize = 64;

/// Largest head of a request to the remote port, in bytes; a longer one is answered with 431.
pub const MAX_REMOTE_HEAD_BYTES: usize = 16 * 1024;

/// Largest body of `POST /rpc`, in bytes; a longer one is answered with 413.
pub const MAX_RPC_BODY_BYTES: usize = 1_000_000;

/// How long a remote client may take for the handshake of TLS, and then for the head of each request. It
/// is also how long a connection may wait for its next request.
pub const REMOTE_HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a remote client may take for a body.
pub const REMOTE_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two pings of a WebSocket, and after how long without a word of the client it is closed.
pub const REMOTE_PING_INTERVAL: Duration = Duration::from_secs(25);

/// See [`REMOTE_PING_INTERVAL`]: three pings were not answered.
pub const REMOTE_SILENCE: Duration = Duration::from_secs(80);

/// Events that `GET /history` gives at most, and how many if the client does not say.
pub const MAX_HISTORY_EVENTS: usize = 1000;

/// See [`MAX_HISTORY_EVENTS`].
pub const DEFAULT_HISTORY_EVENTS: usize = 200;

/// How much of a history file is read, in bytes from its end.
pub const MAX_HISTORY_BYTES: u64 = 8 * 1024 * 1024;

// --- housekeeping ---------------------------------------------------------------------------

/// How old damaged files and histories must be for `quack.gc` unless somebody says otherwise.
pub const GC_KEPT_ASIDE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Things that a dry run of `quack.gc` names.
pub const MAX_GC_NAMED: usize = 1000;

// --- metrics over HTTP ----------------------------------------------------------------------

/// Connections to the endpoint of metrics that are served at the same time; more wait in the kernel.
pub const MAX_METRICS_CONNECTIONS: usize = 8;

/// Largest head of a request to it, in bytes, the least that hyper can be told; a longer one is answered with
/// 431.
pub const MAX_METRICS_HEAD_BYTES: usize = 8 * 1024;

/// How long a client of it may take for its head, so that one without a word holds its place no longer.
pub const METRICS_HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// For how long a client has its place for certain without a whole head. Later it is sent away if others come and
/// all places are taken.
pub const METRICS_HEAD_GRACE: Duration = Duration::from_millis(100);

/// How long a connection to it may last, the answer included.
pub const METRICS_CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// For how long the same text is given to whoever asks: who asks more often costs the daemon nothing.
pub const METRICS_KEPT_FOR: Duration = Duration::from_secs(1);
