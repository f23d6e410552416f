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
mod envelope;
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
mod sessions;
mod small_params;
mod terminals;
mod tool_calls;
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
    DaemonData, ExecutableInfo, ExecutableState, InterruptedSession, Interruption, PingData,
    RestartData, RestartParams, UnfinishedWork, WorkKind,
};
pub use doctor::{Check, CheckStatus, ConfigData, ConfigSetting, DoctorData, DoctorParams};
pub use envelope::{CLIENT_PROTOCOL, Reply, Request, ServerLine};
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
    Answer, LOCAL_AGENT_CHOICE, LOCAL_AGENT_COMMAND, LOCAL_POLICY, ListedMethod, METHODS, Method,
    MethodRow, MethodServer, RemoteAccess, ReplyOrder, ServesMethod, served_by,
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
pub use remote::{
    PageCodeData, PageCodeParams, PageRights, PageTokenInfo, PageTokensData, PageTokensParams,
    RemoteConfigureParams, RemoteData, RemoteStatus, RemoteStatusParams,
};
pub use session_admin::{
    ActivateData, ActivatedSession, DenialsData, FindBy, FindData, FindParams, ForkData,
    ForkParams, FoundInfo, PolicyLayers, PolicyScope, SandboxData, SandboxParams, SessionNewParams,
    SessionSetData, SessionSetParams, StateData, StateDataOf, TimedDenial, WorkerState,
    WorkspaceInfo, WorkspaceSession, WorkspacesData,
};
pub use sessions::{
    AttachData, AttachParams, AttachedSession, AttachedWorkspace, SessionDeleteData,
    SessionDeleteParams, SessionInfo, SessionRow, SessionRowsData, SessionRowsParams, SessionsData,
    SessionsParams,
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
    TermKillParams, TermOpen, TermResizeData, TermResizeParams, TermRows, TermRowsOf, TermSize,
    TerminalEvent,
};
pub use tool_calls::{
    AbortData, ToolData, ToolInfo, ToolResult, ToolResultOf, VoiceToolCallParams, VoiceToolData,
};
pub use tool_params::ToolParams;
pub use voice::{
    LOCAL_APP, SaidMessage, SaidMessageStart, VoiceConnectData, VoiceConnectParams, VoiceSayEvent,
    VoiceSessionChanged, VoiceStartData, VoiceStartEvent, VoiceStartParams, VoiceState,
    VoiceStateParams, VoiceStatus, VoiceStopEvent,
};
