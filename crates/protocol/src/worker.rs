//! Frames between the supervisor and one session worker.
//!
//! A frame is a big-endian `u32` length and a JSON body of at most [`crate::limits::MAX_LINE_BYTES`]. Enums are
//! externally tagged, so that a raw JSON value can be embedded without being parsed. A reader skips an unknown variant
//! with a warning, because a worker could run another version.
//!
//! Order: the supervisor writes [`ToWorker::Start`]. The worker confines itself and answers [`FromWorker::Hello`].

use crate::approval::ApprovalKind;
pub use crate::call_spec::{CallOrigin, CallSpec, TurnOrigin};
use crate::credentials::Credentials;
use crate::denial::Denial;
use crate::far::{FarStart, LinkState};
use crate::isolate::CopiedTree;
pub use crate::job::{EndedJob, JobInfo};
use crate::output::{InputPiece, OutputPiece};
use crate::policy::{NetworkMode, Policy, Profile};
pub use crate::shorten::MAX_LISTED;
use crate::shorten::first_few;
use crate::terminal::{FromTerminal, ToTerminal};
use crate::tiers::{GitProtection, Probe, Tier, known};
pub use crate::web::{WebOutcome, WebSearch};
use crate::{CallId, CeilingKind, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Version of these frames. The supervisor refuses a worker with another number, and its error names both numbers.
pub const FRAME_PROTOCOL: u32 = 1;

/// Exit code of a worker that another start cannot help.
pub const EXIT_TERMINAL: u8 = 100;

/// Tags of [`ToWorker`], so that a reader can tell an unknown variant from a malformed one.
pub const TO_WORKER_TAGS: &[&str] = &[
    "start",
    "template",
    "tool_call",
    "cancel",
    "ping",
    "shutdown",
    "credit",
    "output_taken",
    "stdin",
    "web_done",
    "network_mode",
    "terminal",
];

/// Tags of [`FromWorker`].
pub const FROM_WORKER_TAGS: &[&str] = &[
    "hello",
    "cannot_start",
    "tool_finished",
    "pong",
    "warning",
    "tool_update",
    "tool_output",
    "stdin_wanted",
    "web_search",
    "jobs",
    "terminal",
    "link",
];

/// Supervisor to worker. Every variant names the reply it expects.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    /// Settings of the session. First frame; answered by [`FromWorker::Hello`].
    Start(Box<Start>),
    /// Instead of [`ToWorker::Start`] in the first frame: the process is the template of workers. No other frame
    /// follows; each fork of the template gets its own channel.
    Template {},
    /// Run one tool. Answered by exactly one [`FromWorker::ToolFinished`] with the same id.
    ToolCall(CallSpec),
    /// Stop one call. It still ends with its [`FromWorker::ToolFinished`]. Has no effect on a finished call.
    Cancel {
        /// The call to stop.
        call_id: CallId,
    },
    /// Liveness probe. Answered by [`FromWorker::Pong`] with the same number.
    Ping {
        /// Counts up from 1 for each worker.
        seq: u64,
    },
    /// Stop every call and exit with 0.
    Shutdown {},
    /// The worker may send `n` more [`FromWorker::ToolUpdate`] frames.
    Credit {
        /// Number of returned credits.
        n: u32,
    },
    /// The supervisor has passed on one [`FromWorker::ToolOutput`] of this call. The worker may send one more.
    OutputTaken {
        /// The call.
        call_id: CallId,
    },
    /// The piece of input that a [`FromWorker::StdinWanted`] requested. Has no effect on a finished call.
    Stdin {
        /// The call.
        call_id: CallId,
        /// The bytes.
        piece: InputPiece,
    },
    /// Result of a [`FromWorker::WebSearch`].
    WebDone {
        /// The call that requested the search.
        call_id: CallId,
        /// Result of the search.
        outcome: WebOutcome,
    },
    /// The user has changed the network between off and hosts, which the proxy enforces. For later texts.
    NetworkMode {
        /// The mode.
        mode: NetworkMode,
    },
    /// For one terminal.
    Terminal {
        /// The terminal.
        terminal: String,
        /// The message.
        message: ToTerminal,
    },
}

/// The first frame. The worker reads no configuration and no environment itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// [`FRAME_PROTOCOL`] of the supervisor.
    pub proto: u32,
    /// The session that this worker serves.
    pub session_id: SessionId,
    /// Label of the session, for the commands in texts. Empty if it is unknown.
    #[serde(default)]
    pub label: String,
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Absolute path of the session's private run directory, for spill files. It already exists.
    pub run_dir: String,
    /// The whole environment of the commands that tools start.
    pub env: Vec<(String, String)>,
    /// True if the session may only use tools that change nothing.
    pub safe_mode: bool,
    /// True if `grep_search` skips files that match ignore files.
    #[serde(default)]
    pub respect_ignore_files: bool,
    /// Resource limits of each command.
    #[serde(default)]
    pub limits: CommandLimits,
    /// Settings of the confinement.
    pub sandbox: SandboxStart,
    /// Credentials of the user that commands may use without getting them.
    #[serde(default)]
    pub credentials: Credentials,
    /// True if the supervisor is on another machine, or outside of the container. Set by the far side. The supervisor then
    /// refuses some changes of permissions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_far: bool,
    /// Argument lists and limits for the link process of a far worker. Absent for other workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<Box<FarStart>>,
}

/// Settings that a worker needs to confine itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxStart {
    /// Permissions of the worker.
    pub policy: Policy,
    /// The tier that the user configured. If absent, the best tier of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Program that tests run in place of `sandbox-exec`, for tier M on another system than macOS. `None` outside of tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_exec: Option<String>,
    /// Result of `quack probe`, which the supervisor ran. Without it the worker runs the probe itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The user's home directory. Most of it is hidden.
    pub home: String,
    /// The daemon's state directory. Only the run directory in it is visible.
    pub state_dir: String,
    /// Directory that keeps the package caches of the workspace. It already exists. Without it they are in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caches: Option<String>,
    /// State of agents of the workspace. Without it, their state is in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<AgentsStart>,
    /// The private copy that the session sees in place of its workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<IsolatedStart>,
    /// Further ports of allowed hosts for programs that use no proxy. `None` if these are not served.
    pub ports: Option<Vec<u16>>,
    /// The control group for the session's commands, as `quackd-process` describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Value>,
}

/// State of agents that a worker keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentsStart {
    /// Directory with the state of agents of the workspace. It already exists.
    pub directory: String,
    /// Directories in it to show, at [`crate::guest_agents::kept_path`].
    pub kept: Vec<KeptState>,
    /// Notes about state that is not kept and files that were not copied.
    pub notes: Vec<String>,
}

/// A kept directory of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptState {
    /// Name of the agent.
    pub agent: String,
    /// Directory, relative to the home.
    pub state: String,
}

/// The private copy of an isolated session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedStart {
    /// The session's private directory with the copy in `tree` and the layers of ignored directories in `out`.
    pub directory: String,
    /// Facts of the copy.
    pub copied: CopiedTree,
}

/// Resource limits of one session's commands. An absent limit is not enforced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandLimits {
    /// Most processes at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Memory of the worker and its commands together, in bytes. If they have more, the command with most ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Largest file that a command may write, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Processor time of each process, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<u64>,
    /// Free disk space required to write spill files, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_bytes: Option<u64>,
}

/// Worker to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "the largest variant is the most frequent one")]
pub enum FromWorker {
    /// Sent instead of [`FromWorker::Hello`]: the worker exits, and another start cannot help.
    CannotStart {
        /// Reason, one line for the user.
        reason: String,
    },
    /// The worker is confined and ready. First frame.
    Hello(Hello),
    /// A call has finished. Sent exactly once for each [`ToWorker::ToolCall`].
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
    /// Output of a running call since the last update. Costs one credit. A worker starts with
    /// [`crate::limits::UPDATE_CREDITS`] and gets each back by [`ToWorker::Credit`].
    ToolUpdate(ToolUpdate),
    /// The next output of a streamed call. Costs one of its credits, which [`ToWorker::OutputTaken`] returns.
    ToolOutput {
        /// The call.
        call_id: CallId,
        /// The bytes.
        piece: OutputPiece,
    },
    /// The command of a call with `stdin` takes its next piece of input: once at its start, then once after each
    /// [`ToWorker::Stdin`].
    StdinWanted {
        /// The call.
        call_id: CallId,
        /// False: it takes none any longer.
        open: bool,
    },
    /// Request to search the web for a `web_search` call in flight: a worker has no network and no key. Answered by
    /// [`ToWorker::WebDone`]. At most one per call.
    WebSearch {
        /// The call.
        call_id: CallId,
        /// The search.
        search: WebSearch,
    },
    /// The running background jobs. Sent after a job has started, before the reply of the call that started it, and
    /// after a job has exited. At most [`crate::limits::JOB_REPORTS_PER_CALL`] for each call.
    Jobs {
        /// All running jobs, at most [`crate::limits::MAX_JOBS_PER_SESSION`], oldest first.
        running: Vec<JobInfo>,
        /// Jobs that have exited since the last report, at most [`MAX_LISTED`].
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
        ended: Vec<EndedJob>,
    },
    /// From one terminal.
    Terminal {
        /// The terminal: id of a running job.
        terminal: String,
        /// The message.
        message: FromTerminal,
    },
    /// From the link process of a far worker: state of the link.
    Link(LinkState),
}

/// First report of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`FRAME_PROTOCOL`] of the worker.
    pub proto: u32,
    /// Program version of the worker.
    pub version: String,
    /// Process id of the worker. For display only: the supervisor never signals it.
    pub pid: u32,
    /// The confinement in force.
    pub sandbox: SandboxReport,
}

/// The confinement in force, as `ps` and `doctor` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxReport {
    /// The tier. `unconfined` until the worker confines itself.
    #[serde(deserialize_with = "known")]
    #[schemars(with = "String")]
    pub tier: Option<Tier>,
    /// The profile's name.
    #[serde(deserialize_with = "known")]
    #[schemars(with = "String")]
    pub policy: Option<Profile>,
    /// Whether the worker may use the machine's network.
    #[serde(default)]
    pub network: bool,
    /// In a hello: whether the worker has passed on its sockets, so that a proxy can serve hosts. For clients: whether
    /// commands reach the hosts of rules only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosts: bool,
    /// Kind of protection of git directories: `top` or `names`. Absent if nothing there can be written, or
    /// without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known")]
    #[schemars(with = "String")]
    pub git: Option<GitProtection>,
    /// Parts that could not be confined as intended, each a sentence for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub notes: Vec<String>,
}

/// Result of one call.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolFinished {
    /// The call.
    pub call_id: CallId,
    /// The reply, a JSON string that the supervisor forwards without parsing it.
    pub text: Box<RawValue>,
    /// Text for followers instead of a long reply. A JSON string of at most [`crate::limits::MAX_SHOWN_BYTES`]. Absent
    /// if the reply itself is that short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Box<RawValue>>,
    /// Output of the call after its last [`FromWorker::ToolUpdate`]. Costs no credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<ToolUpdate>,
    /// Output of a streamed call after its last [`FromWorker::ToolOutput`]. Costs no credit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<OutputPiece>,
    /// End of the text of a streamed call, after the command's output: the exit of the command. A JSON string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Box<RawValue>>,
    /// Facts in addition to the text.
    #[serde(default)]
    pub report: ToolReport,
    /// Structured result of tools that have one, forwarded without parsing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// Facts about a finished call in addition to its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolReport {
    /// Whether the tool failed, or its command exited with another code than 0.
    pub is_error: bool,
    /// Exit code of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that killed a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the deadline stopped the call.
    pub timed_out: bool,
    /// Whether a client cancelled the call.
    pub aborted: bool,
    /// Ceiling that ended the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<CeilingKind>,
    /// Whether the text lacks a part of the output.
    pub truncated: bool,
    /// Path of the file with the whole output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Processes that were still running when the command exited, and were killed.
    pub background_ended: u32,
    /// Whether other processes still had the command's output open when its shell exited. Later output is lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub output_open: bool,
    /// Processes that had the output open, at most [`MAX_LISTED`]. Further ones are not read. They have exited.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub background_pids: Vec<u32>,
    /// Processes of the command that could not be killed.
    #[serde(skip_serializing_if = "is_zero")]
    pub survivors: u32,
    /// Whether the worker's workspace directory was deleted. A new worker would open the current directory at the same
    /// path.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub workspace_gone: bool,
    /// The call was refused before its tool started. With `workspace_gone` the supervisor may send it to the next
    /// worker.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_run: bool,
    /// Files of the host that the worker shows were replaced. With `not_run` the supervisor sends the call to the next
    /// worker, or again to this one if other calls or jobs keep it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub files_replaced: bool,
    /// The user may allow this kind of call: `command` or `safe_mode`. The call was refused before its tool started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_ask: Option<ApprovalKind>,
    /// Absolute path that a failed command probably wanted to write, in a directory that the worker does not show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Reason and advice in plain words, for a failure whose text is fixed; at most [`MAX_HINT_BYTES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the hint adds to the text. Otherwise it says the same in plain words.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hint_adds: bool,
    /// Noticed denials of the confinement, at most [`MAX_LISTED`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub denials: Vec<Denial>,
    /// Whether the denials are those of a background job, which [`FromWorker::Jobs`] reports with its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_job: bool,
    /// Files that other programs run or obey and that changed since the last check. At most [`MAX_LISTED`], each a line
    /// of at most [`crate::denial::MAX_TARGET_BYTES`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub audit: Vec<String>,
    /// Files that a file tool wrote, relative to the workspace: the first [`MAX_LISTED`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "first_few")]
    pub written: Vec<String>,
    /// Number of files that a file tool wrote.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_written: u32,
    /// User processor time of a command and of its waited-for children, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ms: Option<u64>,
    /// System processor time of the command and those children, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_ms: Option<u64>,
    /// Largest resident memory of one of its processes, in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rss_kb: Option<u64>,
    /// Time from the arrival to the end of the call inside the worker, in milliseconds.
    pub duration_ms: u64,
}

/// Longest hint of a [`ToolReport`], in bytes. The supervisor cuts a longer hint.
pub const MAX_HINT_BYTES: usize = 1024;

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Output of a running call.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolUpdate {
    /// The call.
    pub call_id: CallId,
    /// Output since the last update, a JSON string.
    pub delta: Box<RawValue>,
    /// Start of the whole output, a JSON string that only grows. Absent after it was sent in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Box<RawValue>>,
    /// Bytes of output so far.
    pub total_bytes: u64,
    /// Bytes since the last update that are not in `delta`.
    pub omitted_bytes: u64,
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
