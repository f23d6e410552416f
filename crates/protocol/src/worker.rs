//! Frames between the supervisor and one session worker.
//!
//! A frame is a big-endian `u32` length and a JSON body of at most [`crate::limits::MAX_LINE_BYTES`].
//! Enums are externally tagged, so that a raw JSON value can ride inside without being parsed. A
//! variant that the reader does not know is skipped with a warning: a worker may one day be remote
//! and a version away.
//!
//! Order: the supervisor writes [`ToWorker::Start`] first; the worker reads it in stage 0, confines
//! itself and answers [`FromWorker::Hello`] before anything else.

use crate::denial::Denial;
use crate::output::OutputPiece;
use crate::policy::{Policy, Profile};
use crate::{CallId, SessionId};
use schemars::JsonSchema;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::marker::PhantomData;

/// Version of these frames. The supervisor refuses a worker with another number, naming both.
pub const FRAME_PROTOCOL: u32 = 1;

/// Exit code by which a worker says that starting it again cannot help.
pub const EXIT_TERMINAL: u8 = 100;

/// Tags of [`ToWorker`], so that a reader can tell an unknown variant from a malformed one.
pub const TO_WORKER_TAGS: &[&str] =
    &["start", "tool_call", "cancel", "ping", "shutdown", "credit", "output_taken", "web_done"];

/// Tags of [`FromWorker`].
pub const FROM_WORKER_TAGS: &[&str] = &[
    "hello",
    "cannot_start",
    "tool_finished",
    "pong",
    "warning",
    "tool_update",
    "tool_output",
    "web_search",
    "jobs",
];

/// Supervisor to worker. Every variant names the reply it expects.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    /// All that the worker is told about its session. First frame; answered by [`FromWorker::Hello`].
    Start(Box<Start>),
    /// Run one tool. Answered by exactly one [`FromWorker::ToolFinished`] with the same id.
    ToolCall(ToolCall),
    /// Stop one call. It still ends with its [`FromWorker::ToolFinished`]; a call that already
    /// finished makes this a no-op.
    Cancel {
        /// The call to stop.
        call_id: CallId,
    },
    /// Liveness probe. Answered by [`FromWorker::Pong`] with the same number.
    Ping {
        /// Counts up from 1 for each worker.
        seq: u64,
    },
    /// End every call and exit 0.
    Shutdown {},
    /// So many more [`FromWorker::ToolUpdate`] may be sent.
    Credit {
        /// How many.
        n: u32,
    },
    /// One [`FromWorker::ToolOutput`] of this call was passed on: one more may be sent.
    OutputTaken {
        /// The call.
        call_id: CallId,
    },
    /// The end of a [`FromWorker::WebSearch`].
    WebDone {
        /// The call that asked.
        call_id: CallId,
        /// What came of it.
        outcome: WebOutcome,
    },
}

/// The first frame: the worker reads no configuration and no environment of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// [`FRAME_PROTOCOL`] of the supervisor.
    pub proto: u32,
    /// The session that this worker serves.
    pub session_id: SessionId,
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Absolute path of the session's private run directory, for spills; it exists already.
    pub run_dir: String,
    /// The whole environment of the commands that tools start.
    pub env: Vec<(String, String)>,
    /// True if the session only allows what does not change anything.
    pub safe_mode: bool,
    /// True if `grep_search` leaves out what ignore files name.
    #[serde(default)]
    pub respect_ignore_files: bool,
    /// What each command may use.
    #[serde(default)]
    pub limits: CommandLimits,
    /// What the worker confines itself to.
    pub sandbox: SandboxStart,
}

/// What a worker needs to know in order to confine itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxStart {
    /// What it may do.
    pub policy: Policy,
    /// The tier that a person asked for; the best that the system has if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Result of `quack probe`, which the supervisor ran. Without it the worker probes for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The user's home directory. Most of it is not shown.
    pub home: String,
    /// The daemon's state directory, of which nothing but the run directory is shown.
    pub state_dir: String,
    /// The control group that was made for the session's commands, as `quackd-process` describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Value>,
}

/// Layers of confinement that work on this system for this user, found by trying.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Probe {
    /// `None` if namespaces of all needed kinds can be made and a fresh `/proc` mounted in them; else the step that
    /// failed and why.
    pub namespaces_fail: Option<String>,
    /// Version of Landlock, 0 without.
    pub landlock_abi: i32,
    /// True if system calls can be filtered.
    pub seccomp: bool,
    /// True if package caches can be written to a private layer.
    pub overlay: bool,
    /// True for user 0.
    pub is_root: bool,
    /// True on macOS with its sandbox program.
    pub seatbelt: bool,
}

/// What the commands of one session may use. Nothing is limited that is not named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandLimits {
    /// Processes at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Largest file that is written, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Processor time of each process, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<u64>,
    /// What has to be free on the disk for long outputs to be written to files, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_bytes: Option<u64>,
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within the worker.
    pub call_id: CallId,
    /// Tool name as the client sent it.
    pub tool: String,
    /// Arguments as JSON text, as the client sent them.
    pub arguments: String,
    /// Time that the call may take, in milliseconds from its arrival.
    pub deadline_ms: u64,
    /// True if this call only allows what does not change anything.
    pub safe_mode: bool,
    /// True if the command's whole output is wanted while it runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
}

/// Worker to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "the largest variant is the most frequent one")]
pub enum FromWorker {
    /// In the place of [`FromWorker::Hello`]: it ends, and starting it again cannot help.
    CannotStart {
        /// Why, one line for a person.
        reason: String,
    },
    /// The worker is confined and ready. First frame.
    Hello(Hello),
    /// A call has ended. Sent exactly once for each [`ToWorker::ToolCall`].
    ToolFinished(ToolFinished),
    /// Answer to [`ToWorker::Ping`].
    Pong {
        /// The number of the ping.
        seq: u64,
    },
    /// A fact for the log, at most a few per minute.
    Warning {
        /// One line.
        text: String,
    },
    /// What a running call has printed since the last update. Costs one credit: a worker starts with
    /// [`crate::limits::UPDATE_CREDITS`] and gets each back by [`ToWorker::Credit`].
    ToolUpdate(ToolUpdate),
    /// The next bytes that a streamed call has printed. Costs one of the call's
    /// [`crate::output::PIECE_CREDITS`] and gets it back by [`ToWorker::OutputTaken`].
    ToolOutput {
        /// The call.
        call_id: CallId,
        /// The bytes.
        piece: OutputPiece,
    },
    /// Search the web for a `web_search` call in flight: a worker has no network and no key. Answered by
    /// [`ToWorker::WebDone`]; at most one per call.
    WebSearch {
        /// The call.
        call_id: CallId,
        /// What to search.
        search: WebSearch,
    },
    /// The background jobs that run now. Sent when one has begun, before the answer of the call that
    /// began it, and when one has ended: at most [`crate::limits::JOB_REPORTS_PER_CALL`] for each call.
    Jobs {
        /// All of them, at most [`crate::limits::MAX_JOBS_PER_SESSION`], oldest first.
        running: Vec<JobInfo>,
    },
}

/// A background job that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Unique within the worker, at most [`crate::limits::MAX_JOB_ID_BYTES`].
    pub id: String,
    /// The first line of its command, at most [`crate::limits::MAX_JOB_COMMAND_BYTES`].
    pub command: String,
}

/// The worker's introduction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`FRAME_PROTOCOL`] of the worker.
    pub proto: u32,
    /// Program version of the worker.
    pub version: String,
    /// Process id of the worker. Information for people: the supervisor never signals it.
    pub pid: u32,
    /// What confinement is in force.
    pub sandbox: SandboxReport,
}

/// The tier of a worker that is not confined.
pub const UNCONFINED: &str = "unconfined";

/// What confinement is in force, as `ps` and `doctor` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxReport {
    /// The tier. `unconfined` until the worker confines itself.
    pub tier: String,
    /// The profile's name.
    pub policy: String,
    /// Whether the machine's network may be used.
    #[serde(default)]
    pub network: bool,
    /// What could not be confined as it should, each a sentence for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub notes: Vec<String>,
}

impl SandboxReport {
    /// The report of a worker that nothing confines.
    #[must_use]
    pub fn unconfined() -> Self {
        Self {
            tier: UNCONFINED.to_owned(),
            policy: Profile::FullAccess.name().to_owned(),
            network: true,
            notes: Vec::new(),
        }
    }
}

/// The end of one call.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolFinished {
    /// The call.
    pub call_id: CallId,
    /// The answer, a JSON string that the supervisor forwards without parsing it.
    pub text: Box<RawValue>,
    /// What followers are shown instead of a long text, a JSON string of at most
    /// [`crate::limits::MAX_SHOWN_BYTES`]; absent if the text itself is that short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Box<RawValue>>,
    /// What the call printed after its last [`FromWorker::ToolUpdate`]; costs no credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<ToolUpdate>,
    /// Output of a streamed call after its last [`FromWorker::ToolOutput`]; costs no credit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<OutputPiece>,
    /// End of the text of a streamed call, after the command's output: how the command ended. A JSON string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Box<RawValue>>,
    /// What is known besides the text.
    #[serde(default)]
    pub report: ToolReport,
    /// Structured result of tools that have one, forwarded without parsing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// What is known of a finished call besides its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolReport {
    /// The tool failed, or its command ended with another code than 0.
    pub is_error: bool,
    /// Exit code of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The deadline ended the call.
    pub timed_out: bool,
    /// A client ended the call.
    pub aborted: bool,
    /// The text does not hold the whole output.
    pub truncated: bool,
    /// Where the whole output was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Processes that were still running when the command ended, and were ended with it.
    pub background_ended: u32,
    /// The command's output was still held open when its shell had ended by itself: what came later is lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub output_open: bool,
    /// Processes that held it, at most [`MAX_LISTED`]; more are not read. They have ended.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub background_pids: Vec<u32>,
    /// Processes of the command that could not be ended.
    #[serde(skip_serializing_if = "is_zero")]
    pub survivors: u32,
    /// The workspace that the worker holds was deleted: another worker would see what is there now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub workspace_gone: bool,
    /// The call was refused before its tool started. With `workspace_gone` the supervisor may send it to the next
    /// worker.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_run: bool,
    /// Reason and advice in plain words, for a failure whose text is fixed; at most [`MAX_HINT_BYTES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What the confinement refused, as far as it was noticed, at most [`MAX_LISTED`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub denials: Vec<Denial>,
    /// Files that later programs run or obey, and that are not as they were when they were last looked at, at
    /// most [`MAX_LISTED`], each a line of at most [`crate::denial::MAX_TARGET_BYTES`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub audit: Vec<String>,
    /// Processor time of a command in its own code, in milliseconds, with what it waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ms: Option<u64>,
    /// Processor time in the kernel for it, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_ms: Option<u64>,
    /// The most memory that one of its processes had, in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rss_kb: Option<u64>,
    /// Time from arrival to end inside the worker, in milliseconds.
    pub duration_ms: u64,
}

/// Most processes, and most denials, that a [`ToolReport`] names.
pub const MAX_LISTED: usize = 8;

/// Longest hint of a [`ToolReport`], in bytes; the supervisor cuts what is longer.
pub const MAX_HINT_BYTES: usize = 1024;

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Reads the first elements of a list, at most [`MAX_LISTED`].
fn first_few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct First<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for First<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut first = Vec::new();
            while first.len() < MAX_LISTED {
                let Some(element) = list.next_element()? else { return Ok(first) };
                first.push(element);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }

    deserializer.deserialize_seq(First(PhantomData))
}

/// What a running call has printed.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolUpdate {
    /// The call.
    pub call_id: CallId,
    /// What came since the last update, a JSON string.
    pub delta: Box<RawValue>,
    /// The beginning of the whole output, a JSON string that only grows. Absent once it is full and was
    /// said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Box<RawValue>>,
    /// Bytes of output until now.
    pub total_bytes: u64,
    /// Bytes that came since the last update and are not in `delta`.
    pub omitted_bytes: u64,
}

/// One web search, as the provider understands it. Bounded by the supervisor before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebSearch {
    /// What is searched for.
    pub query: String,
    /// Results wanted, 1 to 10.
    pub num_results: u32,
    /// Whether the pages' texts are wanted.
    pub include_text: bool,
    /// Only these domains, if any are named.
    pub include_domains: Vec<String>,
    /// Not these domains.
    pub exclude_domains: Vec<String>,
}

/// What came of a web search. The worker words it; the supervisor reads nothing in a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebOutcome {
    /// The provider answered, with whatever status.
    Reply {
        /// HTTP status.
        status: u16,
        /// The status in words, empty if the provider gave none.
        status_text: String,
        /// The body as text; bytes that are not UTF-8 are replaced.
        body: String,
    },
    /// The session's policy does not allow it. Nothing was sent.
    Refused {
        /// True for [`crate::policy::WebSearchRule::Ask`], false for `Off`.
        ask: bool,
    },
    /// There is no key.
    NoKey,
    /// Too many searches are running.
    Busy,
    /// Nothing came in time.
    TimedOut {
        /// The limit in milliseconds.
        after_ms: u64,
    },
    /// The body is longer than is read.
    TooLong {
        /// The limit in bytes.
        limit: u64,
    },
    /// No answer came.
    Failed {
        /// Why, without the key and without the address's secrets.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_report_does_not_know_is_not_written_and_what_is_too_much_is_not_read() {
        let plain = serde_json::to_value(ToolReport::default()).unwrap();
        for key in ["output_open", "background_pids", "survivors"] {
            assert_eq!(plain.get(key), None);
        }
        let read = |text: &str| serde_json::from_str::<ToolReport>(text);
        assert_eq!(read("{}").unwrap(), ToolReport::default());
        let many = format!("{{\"background_pids\":{:?}}}", (1..=9_000).collect::<Vec<u32>>());
        assert_eq!(read(&many).unwrap().background_pids, (1..=8).collect::<Vec<u32>>());
        for wrong in ["{\"background_pids\":7}", "{\"background_pids\":[-1]}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
