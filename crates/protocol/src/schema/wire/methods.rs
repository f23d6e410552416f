//! The table of the client wire's methods: what each takes and gives, as the types of [`crate::client`].
//!
//! Whoever adds a method adds a row here; tests compare the rows with what the daemon answers and with
//! docs/protocol.md.

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

/// One method.
#[derive(Debug)]
pub(super) struct Method {
    /// Its name on the wire.
    pub(super) name: &'static str,
    /// What it does, one sentence.
    pub(super) about: &'static str,
    /// Its parameters; none if it takes none.
    pub(super) params: Option<fn(&mut SchemaGenerator) -> Value>,
    /// Parameters without which it is refused.
    pub(super) required: &'static [&'static str],
    /// What a successful reply carries; none if it carries nothing.
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

/// What `voice_tool_call` gives is written by hand, because its text is forwarded unread.
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
    Method::new("ping", "Tells which daemon this is.").gives::<PingData>(),
    Method::new("attach", "Finds or makes the session of a directory.")
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
    Method::new("quack.session_new", "Makes one more session for a directory.")
        .takes::<SessionNewParams>()
        .gives::<AttachData>(),
    Method::new("quack.session_delete", "Forgets a session.")
        .takes::<SessionDeleteParams>()
        .needs(&["sessionId"])
        .gives::<SessionDeleteData>(),
    Method::new("get_state", "Tells how a session and its processes are.")
        .takes::<SessionParams>()
        .gives::<StateData>(),
    Method::new("quack.sandbox", "Shows and sets what a session's worker may do.")
        .takes::<SandboxParams>()
        .gives_one_of(sandbox_data),
    Method::new("voice_tool_call", "Runs a tool and gives its text.")
        .takes::<VoiceToolCallParams>()
        .needs(&["toolName", "arguments"])
        .gives_one_of(voice_tool_call_data),
    Method::new("quack.tool", "Runs a tool and gives its text with what else is known.")
        .takes::<ToolParams>()
        .needs(&["tool"])
        .gives::<ToolResult>(),
    Method::new("quack.cancel", "Ends one call of this client.")
        .takes::<CancelParams>()
        .needs(&["callId"])
        .gives::<CancelData>(),
    Method::new("abort", "Ends the calls of a session and the turn of its Pi.")
        .takes::<SessionParams>()
        .gives::<AbortData>(),
    Method::new("say", "Says something to a session's voice client or Pi.")
        .takes::<SayParams>()
        .needs(&["message"])
        .gives::<SayData>(),
    Method::new("extension_ui_response", "Answers a question of Pi.")
        .takes::<UiResponseParams>()
        .needs(&["id"])
        .gives::<UiResponseData>(),
    Method::new("follow", "Has the events of a session sent to this client.")
        .takes::<FollowParams>()
        .gives::<FollowData>(),
    Method::new("unfollow", "Ends following, and being a voice client."),
    Method::new("doctor", "Looks the daemon over.").takes::<DoctorParams>().gives::<DoctorData>(),
    Method::new("quack.config", "Tells the configuration in force.").gives::<ConfigData>(),
    Method::new("quack.ps", "Tells which processes there are.").gives::<PsData>(),
    Method::new("quack.metrics", "Tells the daemon's counters, as Prometheus reads them.")
        .gives::<MetricsData>(),
    Method::new("quack.gc", "Deletes what nobody needs any more.")
        .takes::<GcParams>()
        .gives::<GcData>(),
    Method::new("quack.daemon", "Tells which program the daemon is, and what is at work.")
        .gives::<DaemonData>(),
    Method::new("quack.restart", "Ends the daemon for the next one, unless something is at work.")
        .takes::<RestartParams>()
        .gives::<RestartData>(),
    Method::new("quack.tree", "Tells who started which process, and by which rules it lives.")
        .gives::<TreeData>(),
    Method::new(
        "quack.pin",
        "Keeps a session's processes however long nobody uses them, or lets them go.",
    )
    .takes::<PinParams>()
    .gives::<PinData>(),
    Method::new("quack.kill", "Kills a session's worker; its calls end as when it dies.")
        .takes::<SessionParams>()
        .needs(&["sessionId"])
        .gives::<KillData>(),
    Method::new("quack.shutdown", "Ends the daemon."),
    Method::new("voice_connect", "Makes this client a voice client.")
        .takes::<VoiceConnectParams>()
        .gives::<VoiceConnectData>(),
    Method::new("voice_start", "Asks a voice client to begin in a session.")
        .takes::<VoiceStartParams>()
        .gives::<VoiceStartData>(),
    Method::new("voice_state", "Tells what this voice client does now.")
        .takes::<VoiceStateParams>()
        .needs(&["state"]),
    Method::new("remote_status", "Tells how remote control is.")
        .takes::<RemoteStatusParams>()
        .gives::<RemoteData>(),
    Method::new("remote_configure", "Changes remote control.")
        .takes::<RemoteConfigureParams>()
        .gives::<RemoteData>(),
];
