//! The table of the client wire's methods: parameters and data of each, as the types of [`crate::client`].
//!
//! Each new method needs a row here. Tests compare the rows with the daemon's replies and with docs/protocol.md.

use crate::client::{
    AbortData, ActivateData, AttachData, AttachParams, AuditReport, ConfigData, DaemonData,
    DenialsData, DoctorData, DoctorParams, ExplainReport, FindData, FindParams, FollowData,
    FollowParams, GcData, GcParams, KillData, MetricsData, PinData, PinParams, PingData, PsData,
    RemoteConfigureParams, RemoteData, RemoteStatusParams, RestartData, RestartParams, SandboxData,
    SandboxParams, SayData, SayParams, SessionDeleteData, SessionDeleteParams, SessionNewParams,
    SessionParams, SessionsData, SessionsParams, StateData, ToolParams, ToolResult, TreeData,
    UiResponseData, UiResponseParams, VoiceConnectData, VoiceConnectParams, VoiceStartData,
    VoiceStartParams, VoiceStateParams, VoiceToolCallParams, WorkerSaid, WorkspacesData,
};
use crate::output::{CancelData, CancelParams};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// Entry of the table.
#[derive(Debug)]
pub(super) struct Method {
    /// Name on the wire.
    pub(super) name: &'static str,
    /// Description, one sentence.
    pub(super) about: &'static str,
    /// Schema of the parameters, or `None` without parameters.
    pub(super) params: Option<fn(&mut SchemaGenerator) -> Value>,
    /// Required parameters.
    pub(super) required: &'static [&'static str],
    /// Schema of a successful reply's data, or `None` without data.
    pub(super) data: Option<fn(&mut SchemaGenerator) -> Value>,
}

impl Method {
    const fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about, params: None, required: &[], data: None }
    }

    const fn takes<T: JsonSchema>(self) -> Self {
        Self { params: Some(schema_of::<T>), ..self }
    }

    const fn needs(self, required: &'static [&'static str]) -> Self {
        Self { required, ..self }
    }

    const fn gives<T: JsonSchema>(self) -> Self {
        Self { data: Some(schema_of::<T>), ..self }
    }

    const fn gives_one_of(self, data: fn(&mut SchemaGenerator) -> Value) -> Self {
        Self { data: Some(data), ..self }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// Returns the data of `voice_tool_call`. Written by hand, because the supervisor forwards the text unread.
fn voice_tool_call_data(_generator: &mut SchemaGenerator) -> Value {
    json!({
        "type": "object",
        "properties": {
            "callId": {"description": "As in the request; absent if it was absent there."},
            "result": {"type": "string", "description": "The answer for a model. That of a tool that failed begins with `Error: `."},
            "hint": {"type": "string", "description": "Reason and advice in plain words, for a failure whose text is fixed."},
        },
        "required": ["result"],
    })
}

fn sandbox_data(generator: &mut SchemaGenerator) -> Value {
    json!({"anyOf": [
        schema_of::<SandboxData>(generator),
        schema_of::<DenialsData>(generator),
        schema_of::<WorkerSaid<AuditReport>>(generator),
        schema_of::<WorkerSaid<ExplainReport>>(generator),
    ]})
}

/// Every method, in the order of docs/protocol.md.
pub(super) const METHODS: &[Method] = &[
    Method::new("ping", "Returns the version, process id and uptime of the daemon.")
        .gives::<PingData>(),
    Method::new("attach", "Finds or creates the session of a directory.")
        .takes::<AttachParams>()
        .gives::<AttachData>(),
    Method::new("sessions", "Lists sessions.").takes::<SessionsParams>().gives::<SessionsData>(),
    Method::new("workspaces", "Lists workspaces with their sessions.").gives::<WorkspacesData>(),
    Method::new("activate_session", "Makes a session the active one.")
        .takes::<SessionParams>()
        .needs(&["sessionId"])
        .gives::<ActivateData>(),
    Method::new("quack.find", "Returns the session that a reference or a directory means.")
        .takes::<FindParams>()
        .gives::<FindData>(),
    Method::new("quack.session_new", "Creates another session for a directory.")
        .takes::<SessionNewParams>()
        .gives::<AttachData>(),
    Method::new("quack.session_delete", "Deletes a session.")
        .takes::<SessionDeleteParams>()
        .needs(&["sessionId"])
        .gives::<SessionDeleteData>(),
    Method::new("get_state", "Returns the state of a session and its processes.")
        .takes::<SessionParams>()
        .gives::<StateData>(),
    Method::new("quack.sandbox", "Shows and sets the permissions of a session's worker.")
        .takes::<SandboxParams>()
        .gives_one_of(sandbox_data),
    Method::new("voice_tool_call", "Runs a tool and returns its text.")
        .takes::<VoiceToolCallParams>()
        .needs(&["toolName", "arguments"])
        .gives_one_of(voice_tool_call_data),
    Method::new("quack.tool", "Runs a tool and returns its text with additional facts.")
        .takes::<ToolParams>()
        .needs(&["tool"])
        .gives::<ToolResult>(),
    Method::new("quack.cancel", "Cancels one call of this client.")
        .takes::<CancelParams>()
        .needs(&["callId"])
        .gives::<CancelData>(),
    Method::new("abort", "Cancels the calls of a session and the turn of its Pi.")
        .takes::<SessionParams>()
        .gives::<AbortData>(),
    Method::new("say", "Sends a prompt to a session's voice client or Pi.")
        .takes::<SayParams>()
        .needs(&["message"])
        .gives::<SayData>(),
    Method::new("extension_ui_response", "Answers a question of Pi.")
        .takes::<UiResponseParams>()
        .needs(&["id"])
        .gives::<UiResponseData>(),
    Method::new("follow", "Sends the events of a session to this client.")
        .takes::<FollowParams>()
        .gives::<FollowData>(),
    Method::new("unfollow", "Stops sending events. The client is no longer a voice client."),
    Method::new("doctor", "Checks the daemon and its configuration.")
        .takes::<DoctorParams>()
        .gives::<DoctorData>(),
    Method::new("quack.config", "Returns the configuration in force.").gives::<ConfigData>(),
    Method::new("quack.ps", "Lists the daemon and its processes.").gives::<PsData>(),
    Method::new("quack.metrics", "Returns the daemon's counters in the text format of Prometheus.")
        .gives::<MetricsData>(),
    Method::new("quack.gc", "Deletes expired and orphaned files.")
        .takes::<GcParams>()
        .gives::<GcData>(),
    Method::new("quack.daemon", "Describes the daemon's program and lists the work in progress.")
        .gives::<DaemonData>(),
    Method::new(
        "quack.restart",
        "Stops the daemon so that the next one can start, unless work is in progress.",
    )
    .takes::<RestartParams>()
    .gives::<RestartData>(),
    Method::new("quack.tree", "Returns the tree of processes and their restart rules.")
        .gives::<TreeData>(),
    Method::new(
        "quack.pin",
        "Keeps a session's processes however long nobody uses them, or lets them go.",
    )
    .takes::<PinParams>()
    .gives::<PinData>(),
    Method::new("quack.kill", "Kills a session's worker. Its calls fail as after a crash.")
        .takes::<SessionParams>()
        .needs(&["sessionId"])
        .gives::<KillData>(),
    Method::new("quack.shutdown", "Stops the daemon."),
    Method::new("voice_connect", "Makes this client a voice client.")
        .takes::<VoiceConnectParams>()
        .gives::<VoiceConnectData>(),
    Method::new("voice_start", "Asks a voice client to start in a session.")
        .takes::<VoiceStartParams>()
        .gives::<VoiceStartData>(),
    Method::new("voice_state", "Reports the state of this voice client.")
        .takes::<VoiceStateParams>()
        .needs(&["state"]),
    Method::new("remote_status", "Returns the state of remote control.")
        .takes::<RemoteStatusParams>()
        .gives::<RemoteData>(),
    Method::new("remote_configure", "Changes remote control.")
        .takes::<RemoteConfigureParams>()
        .gives::<RemoteData>(),
];
