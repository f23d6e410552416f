//! The handlers of the methods: one row each. Read by `dispatch.rs` alone.
//!
//! A row begins with the type that clients call, whose row in `quackd_protocol` has everything else. The types of the
//! handler are the parameters and the reply.

use super::row::{self, Method, methods};
use super::{
    abort, agent, approvals, attach, claim, config, daemon, doctor, extension_ui, find, follow,
    forward, gc, isolated, keys, kill, metrics, models, pin, ping, ps, remote, sandbox, say,
    session_admin, sessions, state, streaming, tool, tree, voice,
};
use quackd_protocol::client::{
    AbortParams, ActivateParams, AgentParams, AnswerParams, ApprovalsParams, AttachParams,
    ClaimParams, ConfigParams, DaemonParams, DoctorParams, FindParams, FollowParams, ForkParams,
    ForwardParams, GcParams, HelloParams, IsolatedParams, KeysParams, KillParams, MetricsParams,
    ModelsParams, PinParams, PingParams, PsParams, RemoteConfigureParams, RemoteStatusParams,
    RestartParams, SandboxParams, SayParams, SessionDeleteParams, SessionNewParams,
    SessionSetParams, SessionsParams, ShutdownParams, StateParams, ToolParams, TreeParams,
    UiResponseParams, UnfollowParams, VoiceConnectParams, VoiceStartParams, VoiceStateParams,
    VoiceToolCallParams, WorkspacesParams,
};
use quackd_protocol::output::{CancelParams, StdinParams};

// Every method, in the order of docs/protocol.md.
methods! {
    PingParams: ping::ping;
    AttachParams: attach::attach;
    SessionsParams: sessions::sessions;
    WorkspacesParams: session_admin::workspaces;
    ActivateParams: session_admin::activate_session;
    FindParams: find::find;
    SessionNewParams: session_admin::session_new;
    SessionSetParams: session_admin::session_set;
    ForkParams: session_admin::fork;
    SessionDeleteParams: session_admin::session_delete;
    HelloParams: claim::hello;
    ClaimParams: claim::claim;
    StateParams: state::get_state;
    SandboxParams: sandbox::sandbox;
    IsolatedParams: isolated::isolated;
    VoiceToolCallParams: tool::voice_tool_call;
    ToolParams: tool::quack_tool;
    CancelParams: streaming::cancel;
    StdinParams: streaming::stdin;
    AbortParams: abort::abort;
    SayParams: say::say;
    AgentParams: agent::agent;
    UiResponseParams: extension_ui::extension_ui_response;
    ApprovalsParams: approvals::approvals;
    AnswerParams: approvals::answer;
    FollowParams: follow::follow;
    UnfollowParams: follow::unfollow;
    DoctorParams: doctor::doctor;
    ConfigParams: config::config;
    ModelsParams: models::models;
    KeysParams: keys::keys;
    PsParams: ps::ps;
    MetricsParams: metrics::metrics;
    GcParams: gc::gc;
    DaemonParams: daemon::daemon;
    RestartParams: daemon::restart;
    TreeParams: tree::tree;
    PinParams: pin::pin;
    ForwardParams: forward::forward;
    KillParams: kill::kill;
    ShutdownParams: daemon::shutdown;
    VoiceConnectParams: voice::voice_connect;
    VoiceStartParams: voice::voice_start;
    VoiceStateParams: voice::voice_state;
    RemoteStatusParams: remote::remote_status;
    RemoteConfigureParams: remote::remote_configure;
}
