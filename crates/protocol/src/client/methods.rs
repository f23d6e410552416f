//! The methods of the client wire as types: the parameters of a method are the method, and name the type of its reply.
//! Used by all clients. The supervisor has the handlers, and a test there compares its table with this one.

use super::{
    AbortData, AbortParams, ActivateData, ActivateParams, AgentData, AgentParams, AnswerData,
    AnswerParams, ApprovalsData, ApprovalsParams, AttachData, AttachParams, AuditReport,
    ClaimParams, ConfigData, ConfigParams, DaemonData, DaemonParams, DenialsData, DoctorData,
    DoctorParams, ExplainReport, FindData, FindParams, FollowData, FollowParams, ForkData,
    ForkParams, ForwardData, ForwardParams, GcData, GcParams, HelloParams, HostExplained,
    IsolatedData, IsolatedParams, KeysData, KeysParams, KillData, KillParams, MetricsData,
    MetricsParams, ModelsData, ModelsParams, NetworkData, NoData, PinData, PinParams, PingData,
    PingParams, PresetsData, PsData, PsParams, RemoteConfigureParams, RemoteData,
    RemoteStatusParams, RestartData, RestartParams, SandboxAudit, SandboxData, SandboxDenials,
    SandboxExplain, SandboxExplainHost, SandboxNetwork, SandboxParams, SandboxPresets, SayData,
    SayParams, SessionDeleteData, SessionDeleteParams, SessionNewParams, SessionSetData,
    SessionSetParams, SessionsData, SessionsParams, ShutdownParams, StateData, StateParams,
    ToolParams, ToolResult, TreeData, TreeParams, UiResponseData, UiResponseParams, UnfollowParams,
    VoiceConnectData, VoiceConnectParams, VoiceStartData, VoiceStartParams, VoiceStateParams,
    VoiceToolCallParams, VoiceToolData, WorkerSaid, WorkspacesData, WorkspacesParams,
};
use crate::limits::{DOCTOR_TIMEOUT, GC_TIMEOUT, REPLY_TIMEOUT};
use crate::output::{CancelData, CancelParams, StdinData, StdinParams};
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// A method of the client wire: its parameters, with what a client needs to call it.
pub trait Method: Serialize {
    /// Name on the wire.
    const NAME: &'static str;
    /// Data of a successful reply, as a client reads it.
    type Reply: DeserializeOwned;
    /// Duration for which a client usually waits for the reply.
    const PATIENCE: Duration = REPLY_TIMEOUT;
}

/// A row of the table: the name and the shapes of a method. Several rows have the name `quack.sandbox`.
#[derive(Debug, Clone, Copy)]
pub struct MethodRow {
    /// Name on the wire.
    pub name: &'static str,
    /// Schema of the parameters.
    pub params: fn(&mut SchemaGenerator) -> Schema,
    /// Schema of the reply's data.
    pub reply: fn(&mut SchemaGenerator) -> Schema,
}

/// Builds the table. A row has the parameters, the name, the reply, and a longer patience if the method needs it.
macro_rules! methods {
    ($($params:ty = $name:literal => $reply:ty $(, within $patience:expr)?;)+) => {
        $(impl Method for $params {
            const NAME: &'static str = $name;
            type Reply = $reply;
            $(const PATIENCE: Duration = $patience;)?
        })+

        /// Every method, in the order of docs/protocol.md.
        pub const METHODS: &[MethodRow] = &[$(MethodRow {
            name: $name,
            params: SchemaGenerator::subschema_for::<$params>,
            reply: SchemaGenerator::subschema_for::<$reply>,
        }),+];
    };
}

methods! {
    PingParams = "ping" => PingData;
    AttachParams = "attach" => AttachData;
    SessionsParams = "sessions" => SessionsData;
    WorkspacesParams = "workspaces" => WorkspacesData;
    ActivateParams = "activate_session" => ActivateData;
    FindParams = "quack.find" => FindData;
    SessionNewParams = "quack.session_new" => AttachData;
    SessionSetParams = "quack.session_set" => SessionSetData;
    ForkParams = "quack.fork" => ForkData;
    SessionDeleteParams = "quack.session_delete" => SessionDeleteData;
    HelloParams = "quack.hello" => NoData;
    ClaimParams = "quack.claim" => AttachData;
    StateParams = "get_state" => StateData;
    SandboxParams = "quack.sandbox" => SandboxData;
    SandboxDenials = "quack.sandbox" => DenialsData;
    SandboxNetwork = "quack.sandbox" => NetworkData;
    SandboxPresets = "quack.sandbox" => PresetsData;
    SandboxExplainHost = "quack.sandbox" => HostExplained;
    SandboxAudit = "quack.sandbox" => WorkerSaid<AuditReport>;
    SandboxExplain = "quack.sandbox" => WorkerSaid<ExplainReport>;
    IsolatedParams = "quack.isolated" => IsolatedData;
    VoiceToolCallParams = "voice_tool_call" => VoiceToolData;
    ToolParams = "quack.tool" => ToolResult;
    CancelParams = "quack.cancel" => CancelData;
    StdinParams = "quack.stdin" => StdinData;
    AbortParams = "abort" => AbortData;
    SayParams = "say" => SayData;
    AgentParams = "quack.agent" => AgentData;
    UiResponseParams = "extension_ui_response" => UiResponseData;
    ApprovalsParams = "quack.approvals" => ApprovalsData;
    AnswerParams = "quack.answer" => AnswerData;
    FollowParams = "follow" => FollowData;
    UnfollowParams = "unfollow" => NoData;
    DoctorParams = "doctor" => DoctorData, within DOCTOR_TIMEOUT;
    ConfigParams = "quack.config" => ConfigData;
    ModelsParams = "quack.models" => ModelsData;
    KeysParams = "quack.keys" => KeysData;
    PsParams = "quack.ps" => PsData;
    MetricsParams = "quack.metrics" => MetricsData;
    GcParams = "quack.gc" => GcData, within GC_TIMEOUT;
    DaemonParams = "quack.daemon" => DaemonData;
    RestartParams = "quack.restart" => RestartData;
    TreeParams = "quack.tree" => TreeData;
    PinParams = "quack.pin" => PinData;
    ForwardParams = "quack.forward" => ForwardData;
    KillParams = "quack.kill" => KillData;
    ShutdownParams = "quack.shutdown" => NoData;
    VoiceConnectParams = "voice_connect" => VoiceConnectData;
    VoiceStartParams = "voice_start" => VoiceStartData;
    VoiceStateParams = "voice_state" => NoData;
    RemoteStatusParams = "remote_status" => RemoteData;
    RemoteConfigureParams = "remote_configure" => RemoteData;
}
