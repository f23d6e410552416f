//! The table of methods: one row each. Read by `dispatch.rs` alone.
//!
//! A row begins with the type that clients call, which has the name of the method. It has the description, the order of
//! the reply, the access of remote clients and the handler. The types of the handler are the parameters and the reply.
//! Dispatch, the schemas, the TypeScript declarations and the checks of docs/protocol.md come from the row.
//!
//! A holder of the remote-control token works in the sessions as they are configured. Changing how this machine is
//! configured, and stopping the daemon, requires a local client.

use super::row::{self, Method, methods};
use super::{
    abort, agent, approvals, attach, claim, config, daemon, doctor, extension_ui, find, follow,
    forward, gc, isolated, keys, kill, metrics, models, pin, ping, ps, remote, sandbox, say,
    session_admin, sessions, state, streaming, tool, tree, voice,
};
use crate::errors::MethodError;
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

// Every method, in the order of docs/protocol.md. Each row states the reason for the access of remote clients.
methods! {
    /// Returns the version, process id and uptime of the daemon.
    // Remote: reads.
    PingParams: InOrder, All, ping::ping;

    /// Finds or creates the session of a directory.
    // Remote: opening sessions is its purpose; it cannot end safe mode.
    AttachParams: Concurrent, Part, attach::attach;

    /// Lists sessions.
    // Remote: reads.
    SessionsParams: InOrder, All, sessions::sessions;

    /// Lists workspaces with their sessions.
    // Remote: reads.
    WorkspacesParams: InOrder, All, session_admin::workspaces;

    /// Makes a session the active one.
    // Remote: the phone app offers a list of sessions.
    ActivateParams: Concurrent, All, session_admin::activate_session, needs ["sessionId"];

    /// Returns the session that a reference or a directory means.
    // Remote: reads.
    FindParams: Concurrent, All, find::find;

    /// Creates another session for a directory.
    // Remote: the token grants access to sessions.
    SessionNewParams: Concurrent, Part, session_admin::session_new;

    /// Sets the agent of a session.
    // Remote: a model costs money, and an engine runs with other rights.
    SessionSetParams: Concurrent, Nothing(|| MethodError::LocalAgentChoice), session_admin::session_set;

    /// Creates a session that continues the conversation of another one.
    // Remote: like quack.session_new.
    ForkParams: Concurrent, All, session_admin::fork;

    /// Deletes a session.
    // Remote: removes what attach creates, and no file of a workspace. Not a session with restrictions: the next one
    // would have none.
    SessionDeleteParams: Concurrent, Part, session_admin::session_delete, needs ["sessionId"];

    /// Tells the daemon the name of this client.
    // Remote: its name appears in logs and events of this machine.
    HelloParams: InOrder, Nothing(|| MethodError::LocalClaim), claim::hello, needs ["name"];

    /// Gives this client a separate session for a directory.
    // Remote: like quack.hello.
    ClaimParams: Concurrent, Nothing(|| MethodError::LocalClaim), claim::claim, needs ["path"];

    /// Returns the state of a session and its processes.
    // Remote: reads.
    StateParams: Concurrent, All, state::get_state;

    /// Shows and sets the permissions of a session's worker.
    // Remote: `set` would let the token extend its own rights.
    SandboxParams: Concurrent, Part, sandbox::sandbox;

    /// Compares the private copy of an isolated session with its workspace, applies its changes, refreshes or discards it.
    // Remote: a comparison reads; applying writes files outside of the session.
    IsolatedParams: Concurrent, Part, isolated::isolated, needs ["action"];

    /// Runs a tool and returns its text.
    // Remote: runs within the session's policy.
    VoiceToolCallParams: Concurrent, All, tool::voice_tool_call, needs ["toolName", "arguments"];

    /// Runs a tool and returns its text with additional facts.
    // Remote: like voice_tool_call.
    ToolParams: Concurrent, All, tool::quack_tool, needs ["tool"];

    /// Cancels one call of this client.
    // Remote: ends a call of the same client.
    CancelParams: InOrder, All, streaming::cancel, needs ["callId"];

    /// Sends the next input to the command of one call of this client.
    // Remote: input of a call of the same client.
    StdinParams: Concurrent, All, streaming::stdin, needs ["callId", "bytes"];

    /// Cancels the calls of a session and the turn of its Pi.
    // Remote: ends work of a session.
    AbortParams: Concurrent, All, abort::abort;

    /// Sends a prompt to a session's voice client or Pi.
    // Remote: sends a prompt to a session.
    SayParams: Concurrent, All, say::say, needs ["message"];

    /// Passes a command of Pi's protocol to the session's agent.
    // Remote: like say, but some commands spend money or read the whole conversation.
    AgentParams: Concurrent, Nothing(|| MethodError::LocalAgent), agent::agent, needs ["command"];

    /// Answers a question of Pi, or one about a permission.
    // Remote: like say: Pi asks all followers. Permissions only as far as `remote.approvals` allows.
    UiResponseParams: Concurrent, Part, extension_ui::extension_ui_response, needs ["id"];

    /// Lists the questions to the user about denied operations.
    // Remote: reads; watching needs `remote.approvals`.
    ApprovalsParams: Concurrent, Part, approvals::approvals;

    /// Answers a question about a denied operation.
    // Remote: would let the token widen its own rights, so only as far as `remote.approvals` allows.
    AnswerParams: Concurrent, Part, approvals::answer, needs ["id", "decision"];

    /// Sends the events of a session to this client.
    // Remote: reads.
    FollowParams: Concurrent, All, follow::follow;

    /// Stops sending events. The client is no longer a voice client.
    // Remote: affects only the client itself.
    UnfollowParams: InOrder, All, follow::unfollow;

    /// Checks the daemon and its configuration.
    // Remote: reads; runs only the user's own login shell.
    DoctorParams: Concurrent, All, doctor::doctor;

    /// Returns the configuration in force.
    // Remote: values may be secret.
    ConfigParams: InOrder, Nothing(|| MethodError::LocalConfig), config::config;

    /// Lists the models of quackd's own agent, and tests the chosen one.
    // Remote: reads; a test costs no more than a say.
    ModelsParams: Concurrent, All, models::models;

    /// Gives the daemon variables with keys of model providers.
    // Remote: the person at this machine decides which account pays.
    KeysParams: InOrder, Nothing(|| MethodError::LocalKeys), keys::keys, needs ["variables"];

    /// Lists the daemon and its processes.
    // Remote: reads.
    PsParams: Concurrent, All, ps::ps;

    /// Returns the daemon's counters in the text format of Prometheus.
    // Remote: reads.
    MetricsParams: Concurrent, All, metrics::metrics;

    /// Deletes expired and orphaned files.
    // Remote: a dry run reads; a real run deletes files of this machine.
    GcParams: Concurrent, Part, gc::gc;

    /// Describes the daemon's program and lists the work in progress.
    // Remote: reads.
    DaemonParams: Concurrent, All, daemon::daemon;

    /// Stops the daemon so that the next one can start, unless work is in progress.
    // Remote: without a service manager, a remote client could not start the daemon again.
    RestartParams: Concurrent, Part, daemon::restart;

    /// Returns the tree of processes and their restart rules.
    // Remote: reads.
    TreeParams: Concurrent, All, tree::tree;

    /// Exempts a session's processes from idle eviction, or ends the exemption.
    // Remote: affects one session, and is reversible.
    PinParams: Concurrent, All, pin::pin;

    /// Makes a port of a session reachable on this machine, closes it, or lists such ports.
    // Remote: a list reads; a forward lets programs of this machine into a session.
    ForwardParams: Concurrent, Part, forward::forward;

    /// Kills a session's worker. Its calls fail as after a crash.
    // Remote: ends work of a session that abort cannot end.
    KillParams: Concurrent, All, kill::kill, needs ["sessionId"];

    /// Stops the daemon.
    // Remote: a remote client could not start the daemon again.
    ShutdownParams: InOrder, Nothing(|| MethodError::LocalStop), daemon::shutdown;

    /// Makes this client a voice client.
    // Remote: affects only the client itself.
    VoiceConnectParams: InOrder, All, voice::voice_connect;

    /// Asks a voice client to start in a session.
    // Remote: phones are voice clients.
    VoiceStartParams: InOrder, All, voice::voice_start;

    /// Reports the state of this voice client.
    // Remote: affects only the client itself.
    VoiceStateParams: InOrder, All, voice::voice_state, needs ["state"];

    /// Returns the state of remote control.
    // Remote: a client that used the token does not get it back.
    RemoteStatusParams: Concurrent, Part, remote::remote_status;

    /// Changes remote control.
    // Remote: only local clients change remote control.
    RemoteConfigureParams: Concurrent, Nothing(|| MethodError::LocalOnly), remote::remote_configure;
}
