//! The client wire: one JSON object per line, in both directions.
//!
//! A request is `{"id","method","params"}`. The reply echoes `id`, regardless of its type. A reply is
//! `{"id","ok":true,"data"?}` or `{"id","ok":false,"error","code"?}`. Parameter types are lenient where upstream's daemon is: a
//! missing `params` is an empty object, and unknown keys are ignored.

mod agent;
mod audit;
mod clients;
mod daemon;
mod doctor;
mod error_code;
mod events;
mod gc;
mod isolated;
mod keys;
mod lifecycle;
mod methods;
mod models;
mod network;
mod ps;
mod remote;
mod session_admin;
mod small_params;
mod terminals;
mod tool_params;
mod voice;

pub use crate::approval::{
    AnswerData, AnswerParams, ApprovalsData, ApprovalsParams, PendingApproval, RecentApproval,
};
pub use agent::{
    AgentData, AgentParams, PiInfo, SayData, SayParams, UiResponseData, UiResponseParams,
};
pub use audit::{
    AuditChange, AuditCommand, AuditFile, AuditNamed, AuditPlanted, AuditReport, AuditRepository,
    ExplainLayer, ExplainPath, ExplainReport, PathAccess, PlantedKind, RepositoryKind,
    RepositoryState, WorkerSaid, WorkerSays,
};
pub use clients::{ClaimParams, ClientInfo, ClientName, HelloParams};
pub use daemon::{
    DaemonData, ExecutableInfo, ExecutableState, InterruptedSession, Interruption, RestartData,
    RestartParams, UnfinishedWork, WorkKind,
};
pub use doctor::{Check, CheckStatus, ConfigData, ConfigSetting, DoctorData, DoctorParams};
pub use error_code::ErrorCode;
pub use events::{
    DeadProcess, EventLine, FollowData, FollowDataOf, FollowParams, ProcessDeath, PromptError,
    TextBlock, ToldLine, ToolContent, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate,
    UpdateDetails,
};
pub use gc::{DiskInfo, GcData, GcItem, GcKind, GcParams, PrunedSession};
pub use isolated::{IsolatedAction, IsolatedData, IsolatedParams};
pub use keys::{KeysData, KeysParams};
pub use lifecycle::{
    DeathInfo, ErrandInfo, HeartbeatInfo, KillData, LifeInfo, LoopLag, PauseInfo, PauseKind,
    PinData, PinParams, ProcessState, SessionStatus, SpecInfo, StatusInfo, TreeChild, TreeData,
    TreeWorker,
};
pub use methods::{
    Answer, LOCAL_AGENT_CHOICE, LOCAL_POLICY, ListedMethod, METHODS, Method, MethodRow,
    MethodServer, RemoteAccess, ReplyOrder, ServesMethod, served_by,
};
pub use models::{ChosenModel, ModelTest, ModelsData, ModelsParams};
pub use network::{
    ForwardData, ForwardInfo, ForwardParams, HostExplained, HostTotals, HostVerdict, NetworkData,
    NetworkRequest, PresetInfo, PresetsData, ServerInfo, SessionForward,
};
pub use ps::{
    CallInfo, MetricsData, PendingChange, PlacesInfo, PsData, RunningJob, SupervisorInfo,
    UsageInfo, WorkerInfo,
};
pub use remote::{RemoteConfigureParams, RemoteData, RemoteStatus, RemoteStatusParams};
pub use session_admin::{
    ActivateData, ActivatedSession, DenialsData, FindBy, FindData, FindParams, ForkData,
    ForkParams, FoundInfo, PolicyLayers, PolicyScope, SandboxData, SandboxParams,
    SessionDeleteData, SessionDeleteParams, SessionNewParams, SessionSetData, SessionSetParams,
    StateData, StateDataOf, TimedDenial, WorkerState, WorkspaceInfo, WorkspaceSession,
    WorkspacesData,
};
pub use small_params::{
    AbortParams, ActivateParams, AnySession, ConfigParams, DaemonParams, KillParams, MetricsParams,
    NoData, PingParams, PsParams, SandboxAllow, SandboxAudit, SandboxDenials, SandboxExplain,
    SandboxExplainHost, SandboxNetwork, SandboxPresets, SandboxRevoke, SandboxSession, SandboxSet,
    SandboxShow, SessionParams, ShutdownParams, StateParams, TreeParams, UnfollowParams,
    WorkspacesParams,
};
pub use terminals::{
    RunData, RunParams, TermAttachData, TermAttachParams, TermBytes, TermDetachData,
    TermDetachParams, TermDetached, TermExit, TermInputData, TermInputParams, TermKillData,
    TermKillParams, TermResizeParams, TermRows, TermRowsOf, TermSize, TerminalEvent,
};
pub use tool_params::ToolParams;
pub use voice::{
    LOCAL_APP, SaidMessage, SaidMessageStart, VoiceConnectData, VoiceConnectParams, VoiceSayEvent,
    VoiceSessionChanged, VoiceStartData, VoiceStartEvent, VoiceStartParams, VoiceState,
    VoiceStateParams, VoiceStatus, VoiceStopEvent,
};

use crate::denial::Denial;
use crate::state::is_false;
use crate::worker::ToolReport;
use crate::{CeilingKind, SessionId, WorkspaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Version of the additive part of this wire, reported by `ping`.
pub const CLIENT_PROTOCOL: u32 = 1;

/// A request as our client writes it.
#[derive(Debug, Serialize)]
pub struct Request<'a, P> {
    /// Echoed in the reply.
    pub id: &'a str,
    /// Method name.
    pub method: &'a str,
    /// Parameters of that method.
    pub params: P,
}

/// A reply as the supervisor writes it.
#[derive(Debug, Serialize)]
pub struct Reply<'a, D> {
    /// The request's id; absent if the request had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a Value>,
    /// Whether the request succeeded. A request whose tool fails still succeeds.
    pub ok: bool,
    /// Error text of a failed request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    /// The method's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<D>,
    /// Cause of a failed request. The last key, because upstream has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
}

/// A line from the supervisor as our client reads it: a reply (`ok` is present) or an event.
#[derive(Debug, Deserialize)]
pub struct ServerLine {
    /// The request's id, in a reply.
    #[serde(default)]
    pub id: Option<Value>,
    /// Present in replies only.
    #[serde(default)]
    pub ok: Option<bool>,
    /// Failure text of a reply.
    #[serde(default)]
    pub error: Option<String>,
    /// Cause of the failure.
    #[serde(default)]
    pub code: Option<ErrorCode>,
    /// Name of an event.
    #[serde(default)]
    pub event: Option<String>,
    /// Session of an event.
    #[serde(default, rename = "sessionId")]
    pub session_id: Option<String>,
    /// Number of an event within its session.
    #[serde(default)]
    pub seq: Option<u64>,
    /// Turn of an event.
    #[serde(default)]
    pub turn: Option<u64>,
    /// Result of a reply, payload of an event.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}

/// `ping` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PingData {
    /// The program's version.
    pub version: String,
    /// Milliseconds since the daemon started.
    pub uptime: u64,
    /// Clients connected.
    pub clients: usize,
    /// The daemon's process id.
    pub pid: u32,
    /// When the daemon started, ISO 8601 UTC.
    pub started_at: String,
    /// Version of this wire: 1 today.
    pub protocol: u32,
    /// Build description: profile and target.
    pub build: String,
}

/// `attach` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachParams {
    /// Directory; the daemon's own working directory if absent.
    // Accepts any JSON value, so that a wrong type gets its own error text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub path: Option<Value>,
    /// False: find or create the session without making it the active one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activate: Option<bool>,
    /// True: the session may only use tools that change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_mode: Option<bool>,
    /// True: only a session that no client has claimed or made for itself. Created if the directory has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<bool>,
}

/// `attach` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachData {
    /// The workspace.
    pub workspace: AttachedWorkspace,
    /// The session.
    pub session: AttachedSession,
    /// Display label, such as `api/review`. Absent in `attach`, which replies as upstream does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Reason why the workspace is the directory itself and not its repository, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The workspace part of [`AttachData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedWorkspace {
    /// Opaque id.
    pub id: WorkspaceId,
    /// Absolute path.
    pub path: String,
}

/// The session part of [`AttachData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedSession {
    /// Opaque id.
    pub id: SessionId,
    /// Display name.
    pub name: String,
}

/// `sessions` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionsParams {
    /// Any truthy value lists every session.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<bool>")]
    pub all: Value,
    /// Lists the sessions of this workspace id.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub workspace_id: Value,
}

/// `sessions` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SessionsData {
    /// In stored order.
    pub sessions: Vec<SessionInfo>,
}

/// One line of `sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// Opaque id.
    pub id: SessionId,
    /// Display name.
    pub name: String,
    /// Absolute path, or `unknown`.
    pub workspace_path: String,
    /// Whether this is the active session.
    pub is_active: bool,
    /// Whether a worker process of the session is alive.
    pub is_running: bool,
    /// ISO 8601 UTC.
    pub last_active_at: String,
    /// Status of the session.
    #[serde(flatten)]
    pub status: StatusInfo,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Whether the session works in a private copy of the workspace.
    #[serde(default, skip_serializing_if = "is_false")]
    pub isolated: bool,
}

/// `voice_tool_call` parameters. Every field takes any JSON value: wrong types are answered as
/// upstream answers them, not with a parse error.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VoiceToolCallParams {
    /// Echoed in the reply, left out there if absent here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Value>,
    /// Tool name.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub tool_name: Value,
    /// JSON text of the arguments.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub arguments: Value,
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// Must name the session's workspace, if given.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub workspace_path: Value,
    /// True: the call may only use tools that change nothing.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<bool>")]
    pub safe_mode: Value,
}

// `T` is the form of the texts, and `D` that of the structured result.
/// `quack.tool` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolResult")]
pub struct ToolResultOf<T, D> {
    /// The result as text for a model.
    #[schemars(with = "String")]
    pub text: T,
    /// Facts in addition to the text.
    #[serde(flatten)]
    pub info: ToolInfo,
    /// Structured result of tools that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<D>,
    /// For a call with `stream` whose command ran: the end of the text, which is not in its `tool_output` events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub closing: Option<T>,
}

/// `quack.tool` data as the supervisor writes it: the worker's JSON, unread. `text` has the same bytes as the string in
/// the reply of `voice_tool_call`.
pub type ToolData = ToolResultOf<Box<RawValue>, Box<RawValue>>;

/// `quack.tool` data as a client reads it.
pub type ToolResult = ToolResultOf<String, Value>;

/// `voice_tool_call` data.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct VoiceToolData {
    /// As in the request; absent if it was absent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Value>,
    /// The answer for a model. That of a tool that failed begins with `Error: `.
    #[schemars(with = "String")]
    pub result: Box<RawValue>,
    /// Reason and advice in plain words, for a failure whose text is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub hint: Option<String>,
}

/// Facts in a reply of `quack.tool` in addition to the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolInfo {
    /// The session that ran the call.
    pub session_id: String,
    /// Whether the tool failed.
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
    /// Whether the worker died during the call. The call may have taken effect and was not retried.
    pub worker_died: bool,
    /// Whether the call was refused because the session was at its limit or was not ready in time.
    pub busy: bool,
    /// Whether the daemon has no such tool.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown_tool: bool,
    /// Whether the text lacks a part of the output.
    pub truncated: bool,
    /// Path of the file with the whole output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Processes that were killed at the end of the call.
    pub background_ended: u32,
    /// Whether other processes still had the command's output open when its shell exited.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub output_open: bool,
    /// Processes that had the output open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub background_pids: Vec<u32>,
    /// Processes of the command that could not be killed.
    #[serde(skip_serializing_if = "is_zero")]
    pub survivors: u32,
    /// Reason and advice in plain words, for a failure whose text is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the hint adds to the text. Otherwise it says the same in plain words.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hint_adds: bool,
    /// Noticed denials of the confinement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Denial>,
    /// Changed files that other programs run or obey, each as one line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audit: Vec<String>,
    /// User processor time of a command and of its waited-for children, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ms: Option<u64>,
    /// System processor time of the command and those children, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_ms: Option<u64>,
    /// Largest resident memory of one of its processes, in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rss_kb: Option<u64>,
    /// Milliseconds from the call's arrival in the supervisor to its end.
    pub duration_ms: u64,
}

impl ToolInfo {
    /// Builds the client's view of a worker's report.
    #[must_use]
    pub fn from_report(session_id: &SessionId, report: &ToolReport, duration_ms: u64) -> Self {
        Self {
            session_id: session_id.0.clone(),
            is_error: report.is_error,
            exit_code: report.exit_code,
            signal: report.signal,
            timed_out: report.timed_out,
            aborted: report.aborted,
            ceiling: report.ceiling,
            truncated: report.truncated,
            full_output_path: report.full_output_path.clone(),
            background_ended: report.background_ended,
            output_open: report.output_open,
            background_pids: report.background_pids.clone(),
            survivors: report.survivors,
            hint: report.hint.clone(),
            hint_adds: report.hint_adds,
            denials: report.denials.clone(),
            audit: report.audit.clone(),
            user_ms: report.user_ms,
            system_ms: report.system_ms,
            max_rss_kb: report.max_rss_kb,
            duration_ms,
            ..Self::default()
        }
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// `abort` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbortData {
    /// The session whose calls were cancelled.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Number of calls that were cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<usize>,
    /// Whether the agent was at work, or a prompt waited for it. Its process may run without a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<bool>,
    /// The calls that were cancelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<CallInfo>,
    /// Background jobs, which go on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<RunningJob>,
}
