//! Limits of the agents.

use std::time::Duration;

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
