//! Limits of tool calls, their commands and their output, and of web searches.

use std::time::Duration;

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
