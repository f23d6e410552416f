//! Frames between the supervisor and one session worker.
//!
//! A frame is a big-endian `u32` length and a JSON body of at most [`crate::limits::MAX_LINE_BYTES`].
//! Enums are externally tagged, so that a raw JSON value can ride inside without being parsed. A
//! variant that the reader does not know is skipped with a warning: a worker may one day be remote
//! and a version away.
//!
//! Order: the supervisor writes [`ToWorker::Start`] first; the worker reads it in stage 0, confines
//! itself and answers [`FromWorker::Hello`] before anything else.

use crate::{CallId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Version of these frames. The supervisor refuses a worker with another number, naming both.
pub const FRAME_PROTOCOL: u32 = 1;

/// Exit code by which a worker says that starting it again cannot help.
pub const EXIT_TERMINAL: u8 = 100;

/// Tags of [`ToWorker`], so that a reader can tell an unknown variant from a malformed one.
pub const TO_WORKER_TAGS: &[&str] = &["start", "tool_call", "cancel", "ping", "shutdown"];

/// Tags of [`FromWorker`].
pub const FROM_WORKER_TAGS: &[&str] = &["hello", "tool_finished", "pong", "warning"];

/// Supervisor to worker. Every variant names the reply it expects.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    /// All that the worker is told about its session. First frame; answered by [`FromWorker::Hello`].
    Start(Start),
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
}

/// Worker to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
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

/// What confinement is in force, as `ps` and `doctor` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxReport {
    /// The tier. `unconfined` until the worker confines itself.
    pub tier: String,
    /// The policy's name.
    pub policy: String,
}

/// The end of one call.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolFinished {
    /// The call.
    pub call_id: CallId,
    /// The answer, a JSON string that the supervisor forwards without parsing it.
    pub text: Box<RawValue>,
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
    /// Time from arrival to end inside the worker, in milliseconds.
    pub duration_ms: u64,
}
