//! The methods of the client wire as types: the parameters of a method are the method, and name the type of its reply.
//! Used by all clients. The supervisor has the handlers: without one for each row, it does not compile.
//!
//! A row has everything about a method that is not code: its description, name, reply, the order of its replies, the
//! access of remote clients, required parameters and the patience of clients.
//!
//! A holder of the remote-control token works in the sessions as they are configured. Changing how this machine is
//! configured, and stopping the daemon, requires a local client.

use super::{
    AbortData, AbortParams, ActivateData, ActivateParams, AgentData, AgentParams, AnswerData,
    AnswerParams, AnySession, ApprovalsData, ApprovalsParams, AttachData, AttachParams,
    AuditReport, ClaimParams, ConfigData, ConfigParams, DaemonData, DaemonParams, DenialsData,
    DoctorData, DoctorParams, ExplainReport, FindData, FindParams, FollowData, FollowDataOf,
    FollowParams, ForkData, ForkParams, ForwardData, ForwardParams, GcData, GcParams, HelloParams,
    HostExplained, IsolatedData, IsolatedParams, KeysData, KeysParams, KillData, KillParams,
    MetricsData, MetricsParams, ModelsData, ModelsParams, NetworkData, NoData, PageCodeData,
    PageCodeParams, PageTokensData, PageTokensParams, PinData, PinParams, PingData, PingParams,
    PresetsData, PsData, PsParams, RemoteConfigureParams, RemoteData, RemoteStatusParams,
    RestartData, RestartParams, RunData, RunParams, SandboxAllow, SandboxAudit, SandboxData,
    SandboxDenials, SandboxExplain, SandboxExplainHost, SandboxNetwork, SandboxParams,
    SandboxPresets, SandboxRevoke, SandboxSet, SandboxShow, SayData, SayParams, SessionDeleteData,
    SessionDeleteParams, SessionNewParams, SessionRowsData, SessionRowsParams, SessionSetData,
    SessionSetParams, SessionsData, SessionsParams, ShutdownParams, StateData, StateDataOf,
    StateParams, TermAttachData, TermAttachParams, TermDetachData, TermDetachParams, TermInputData,
    TermInputParams, TermKillData, TermKillParams, TermResizeData, TermResizeParams, ToolData,
    ToolParams, ToolResult, TreeData, TreeParams, UiResponseData, UiResponseParams, UnfollowParams,
    VoiceConnectData, VoiceConnectParams, VoiceStartData, VoiceStartParams, VoiceStateParams,
    VoiceToolCallParams, VoiceToolData, WorkerSaid, WorkerSays, WorkspacesData, WorkspacesParams,
};
use crate::limits::{DOCTOR_TIMEOUT, GC_TIMEOUT, REPLY_TIMEOUT};
use crate::output::{CancelData, CancelParams, StdinData, StdinParams};
use RemoteAccess::{All, Never, Part};
use ReplyOrder::{Concurrent, InOrder};
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
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

/// Order of the replies to one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOrder {
    /// The next request waits for this reply.
    InOrder,
    /// The handler may wait for a disk or a worker, and other requests run at the same time.
    Concurrent,
}

/// Access of remote clients to a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteAccess {
    /// Like local clients.
    All,
    /// The handler refuses some requests.
    Part,
    /// None. The text is the error of the reply.
    Never(&'static str),
}

/// Error for a remote client that would change the policy of a session.
pub const LOCAL_POLICY: &str = "Only local clients may change what a session may do";

/// Error for a remote client that would choose the agent or the model of a session.
pub const LOCAL_AGENT_CHOICE: &str = "Only local clients may choose the agent and its model";

/// Error for a remote client that would manage the tokens of pages.
const LOCAL_PAGES: &str = "Only local clients may manage the tokens of pages";

/// Error for a remote client that would send a command to the agent.
pub const LOCAL_AGENT_COMMAND: &str = "Only local clients may send commands to the agent";

/// Error for a remote client that names itself.
const LOCAL_CLAIM: &str = "Only local clients may name themselves and claim sessions";

/// A row of the table. Several rows have the name `quack.sandbox`.
#[derive(Debug, Clone, Copy)]
pub struct MethodRow {
    /// Name on the wire.
    pub name: &'static str,
    /// Value of the parameter `action` that selects this row among those of its name. The first row of a name also gets
    /// the requests that no row takes.
    pub action: Option<&'static str>,
    /// Parameter that must be a text to select this row.
    pub with: Option<&'static str>,
    /// Description, one or two sentences.
    pub about: &'static str,
    /// Schema of the parameters.
    pub params: fn(&mut SchemaGenerator) -> Schema,
    /// Parameters that the schema requires, although their type accepts their absence.
    pub required: &'static [&'static str],
    /// Schema of the reply's data.
    pub reply: fn(&mut SchemaGenerator) -> Schema,
    /// Order of the replies.
    pub order: ReplyOrder,
    /// Access of remote clients.
    pub remote: RemoteAccess,
}

/// A method of the table [`METHODS`], with what the daemon needs to serve it.
pub trait ListedMethod: Method + 'static {
    /// Type into which the daemon reads the parameters: the method itself, or a type that accepts more.
    type Params: DeserializeOwned;
    /// Data of a successful reply as the daemon writes it: `Reply`, or a type whose JSON is the same.
    type Answer: Answer;
    /// The row of the method.
    const ROW: MethodRow;
}

/// Data of a successful reply as the daemon writes it: any type that can be written, or [`NoData`].
pub trait Answer {
    /// Type of the data.
    type Data: Serialize;
    /// Returns the data, or `None` if the reply has none.
    fn data(self) -> Option<Self::Data>;
}

impl<T: Serialize> Answer for T {
    type Data = T;

    fn data(self) -> Option<T> {
        Some(self)
    }
}

impl Answer for NoData {
    type Data = ();

    fn data(self) -> Option<()> {
        None
    }
}

/// A program that serves all methods. [`served_by`] returns its handlers.
pub trait MethodServer {
    /// A method with its handler.
    type Entry: Copy;
}

/// A program that serves the method `M`.
pub trait ServesMethod<M: ListedMethod>: MethodServer {
    /// The method with its handler.
    const ENTRY: Self::Entry;
}

/// Expands to the type or expression in brackets, or to the usual one if the brackets are empty.
macro_rules! given_or {
    ([] $($usual:tt)+) => { $($usual)+ };
    ([$($given:tt)+] $($usual:tt)+) => { $($given)+ };
}

/// Builds the table. The documentation of a row is the description of the method. A row has the parameters, the name,
/// the reply, the order of replies and the access of remote clients. Then come, if the method has them:
///
/// - `reads`: the type into which the daemon reads the parameters
/// - `answers`: the type of the reply's data that the daemon writes
/// - `action`: the value of `action` that selects this row, `with` a parameter that must be a text
/// - `needs`: the required parameters
/// - `within`: a longer patience
macro_rules! methods {
    ($(
        $(#[doc = $about:literal])+
        $params:ty = $name:literal => $reply:ty, $order:ident, $remote:expr
            $(, reads $read:ty)? $(, answers $answer:ty)?
            $(, action $action:literal $(with $with:literal)?)?
            $(, needs [$($required:literal),+])? $(, within $patience:expr)?;
    )+) => {
        $(impl Method for $params {
            const NAME: &'static str = $name;
            type Reply = $reply;
            $(const PATIENCE: Duration = $patience;)?
        }

        impl ListedMethod for $params {
            type Params = given_or!([$($read)?] $params);
            type Answer = given_or!([$($answer)?] $reply);
            const ROW: MethodRow = MethodRow {
                name: $name,
                action: given_or!([$(Some($action))?] None),
                with: given_or!([$($(Some($with))?)?] None),
                about: concat!($($about),+).trim_ascii_start(),
                params: SchemaGenerator::subschema_for::<$params>,
                required: &[$($($required),+)?],
                reply: SchemaGenerator::subschema_for::<$reply>,
                order: $order,
                remote: $remote,
            };
        })+

        /// Every method, in the order of docs/protocol.md. Rows of one name follow each other.
        pub const METHODS: &[MethodRow] = &[$(<$params as ListedMethod>::ROW),+];

        /// Returns the handlers of all methods, in the order of [`METHODS`].
        #[must_use]
        pub const fn served_by<S>() -> [<S as MethodServer>::Entry; METHODS.len()]
        where
            S: MethodServer $(+ ServesMethod<$params>)+,
        {
            [$(<S as ServesMethod<$params>>::ENTRY),+]
        }
    };
}

// Each row states the reason for the access of remote clients.
methods! {
    /// Returns the version, process id and uptime of the daemon.
    // Remote: reads.
    PingParams = "ping" => PingData, InOrder, All;

    /// Finds or creates the session of a directory.
    // Remote: opening sessions is its purpose; it cannot end safe mode.
    AttachParams = "attach" => AttachData, Concurrent, Part;

    /// Lists sessions.
    // Remote: reads.
    SessionsParams = "sessions" => SessionsData, InOrder, All;

    /// Lists the sessions with their processes, or waits for a change of the list.
    // Remote: reads.
    SessionRowsParams = "quack.session_rows" => SessionRowsData, Concurrent, All;

    /// Lists workspaces with their sessions.
    // Remote: reads.
    WorkspacesParams = "workspaces" => WorkspacesData, InOrder, All;

    /// Makes a session the active one.
    // Remote: the phone app offers a list of sessions.
    ActivateParams = "activate_session" => ActivateData,
        Concurrent, All, reads AnySession, needs ["sessionId"];

    /// Returns the session that a reference or a directory means.
    // Remote: reads.
    FindParams = "quack.find" => FindData, Concurrent, All;

    /// Creates another session for a directory.
    // Remote: the token grants access to sessions.
    SessionNewParams = "quack.session_new" => AttachData, Concurrent, Part;

    /// Sets the agent of a session.
    // Remote: a model costs money, and an engine runs with other rights.
    SessionSetParams = "quack.session_set" => SessionSetData, Concurrent, Never(LOCAL_AGENT_CHOICE);

    /// Creates a session that continues the conversation of another one.
    // Remote: like quack.session_new.
    ForkParams = "quack.fork" => ForkData, Concurrent, All;

    /// Deletes a session.
    // Remote: removes what attach creates, and no file of a workspace. Not a session with restrictions: the next one
    // would have none.
    SessionDeleteParams = "quack.session_delete" => SessionDeleteData,
        Concurrent, Part, needs ["sessionId"];

    /// Tells the daemon the name of this client.
    // Remote: its name appears in logs and events of this machine.
    HelloParams = "quack.hello" => NoData, InOrder, Never(LOCAL_CLAIM), needs ["name"];

    /// Gives this client a separate session for a directory.
    // Remote: like quack.hello.
    ClaimParams = "quack.claim" => AttachData, Concurrent, Never(LOCAL_CLAIM), needs ["path"];

    /// Returns the state of a session and its processes.
    // Remote: reads.
    StateParams = "get_state" => StateData,
        Concurrent, All, reads AnySession, answers StateDataOf<Box<RawValue>>;

    /// Shows and sets the permissions of a session's worker.
    // Remote: reads. The description is that of all actions.
    SandboxShow = "quack.sandbox" => SandboxData,
        Concurrent, All, reads SandboxParams, action "show";

    /// Changes the policy of a session or of its workspace.
    // Remote: would let the token extend its own rights.
    SandboxSet = "quack.sandbox" => SandboxData, Concurrent, Never(LOCAL_POLICY), action "set";

    /// Allows hosts.
    // Remote: like `set`.
    SandboxAllow = "quack.sandbox" => SandboxData, Concurrent, Never(LOCAL_POLICY), action "allow";

    /// Takes back rules and grants.
    // Remote: like `set`, but a page that may answer takes back grants that allow something.
    SandboxRevoke = "quack.sandbox" => SandboxData, Concurrent, Part, action "revoke";

    /// Lists the denied operations of a session.
    // Remote: reads.
    SandboxDenials = "quack.sandbox" => DenialsData, Concurrent, All, action "denials";

    /// Lists the requests of commands for hosts.
    // Remote: reads.
    SandboxNetwork = "quack.sandbox" => NetworkData, Concurrent, All, action "network";

    /// Lists the presets of hosts.
    // Remote: reads; the tools of this machine are not asked.
    SandboxPresets = "quack.sandbox" => PresetsData, Concurrent, All, action "presets";

    /// Explains the access of a session to a host.
    // Remote: reads.
    SandboxExplainHost = "quack.sandbox" => HostExplained,
        Concurrent, All, action "explain" with "host";

    /// Returns the worker's report on files that other programs run or obey.
    // Remote: reads.
    SandboxAudit = "quack.sandbox" => WorkerSaid<AuditReport>,
        Concurrent, All, answers WorkerSays, action "audit";

    /// Returns the worker's report on the confinement of a session, or on one path.
    // Remote: reads.
    SandboxExplain = "quack.sandbox" => WorkerSaid<ExplainReport>,
        Concurrent, All, answers WorkerSays, action "explain";

    /// Compares the private copy of an isolated session with its workspace, applies its changes, refreshes or discards it.
    // Remote: a comparison reads; applying writes files outside of the session.
    IsolatedParams = "quack.isolated" => IsolatedData, Concurrent, Part, needs ["action"];

    /// Runs a tool and returns its text.
    // Remote: runs within the session's policy.
    VoiceToolCallParams = "voice_tool_call" => VoiceToolData,
        Concurrent, All, needs ["toolName", "arguments"];

    /// Runs a tool and returns its text with additional facts.
    // Remote: like voice_tool_call.
    ToolParams = "quack.tool" => ToolResult,
        Concurrent, All, answers ToolData, needs ["tool"];

    /// Cancels one call of this client.
    // Remote: ends a call of the same client.
    CancelParams = "quack.cancel" => CancelData, InOrder, All, needs ["callId"];

    /// Sends the next input to the command of one call of this client.
    // Remote: input of a call of the same client.
    StdinParams = "quack.stdin" => StdinData, Concurrent, All, needs ["callId", "bytes"];

    /// Starts a program on a terminal of a session.
    // Remote: like quack.tool, if `remote.terminals` allows it.
    RunParams = "quack.run" => RunData, Concurrent, Part;

    /// Sends the screen of a terminal and its changes to this client.
    // Remote: reads, unless `remote.terminals` allows more.
    TermAttachParams = "quack.term_attach" => TermAttachData, Concurrent, Part;

    /// Types bytes into a terminal that this client is attached to.
    // Remote: an attached client that may only read is refused.
    TermInputParams = "quack.term_input" => TermInputData,
        InOrder, All, needs ["sessionId", "terminalId", "bytes"];

    /// Tells the size of this client's window. The terminal gets it while this client is the one that typed last.
    // Remote: like quack.term_input.
    TermResizeParams = "quack.term_resize" => TermResizeData,
        InOrder, All, needs ["sessionId", "terminalId", "cols", "rows"];

    /// Detaches this client, or every client, from a terminal. The program continues.
    // Remote: every client only if `remote.terminals` allows it.
    TermDetachParams = "quack.term_detach" => TermDetachData, InOrder, Part;

    /// Ends a terminal, or signals its program.
    // Remote: if `remote.terminals` allows it.
    TermKillParams = "quack.term_kill" => TermKillData, Concurrent, Part;

    /// Cancels the calls of a session and the turn of its Pi.
    // Remote: ends work of a session.
    AbortParams = "abort" => AbortData, Concurrent, All, reads AnySession;

    /// Sends a prompt to a session's voice client or Pi.
    // Remote: sends a prompt to a session.
    SayParams = "say" => SayData, Concurrent, All, needs ["message"];

    /// Passes a command of Pi's protocol to the session's agent.
    // Remote: like say, but some commands spend money or read the whole conversation. A page may send three of them.
    AgentParams = "quack.agent" => AgentData, Concurrent, Part, needs ["command"];

    /// Answers a question of Pi, or one about a permission.
    // Remote: like say: Pi asks all followers. Permissions only as far as `remote.approvals` allows.
    UiResponseParams = "extension_ui_response" => UiResponseData, Concurrent, Part, needs ["id"];

    /// Lists the questions to the user about denied operations.
    // Remote: reads; watching needs `remote.approvals`.
    ApprovalsParams = "quack.approvals" => ApprovalsData, Concurrent, Part;

    /// Answers a question about a denied operation.
    // Remote: would let the token widen its own rights, so only as far as `remote.approvals` allows.
    AnswerParams = "quack.answer" => AnswerData, Concurrent, Part, needs ["id", "decision"];

    /// Sends the events of a session to this client.
    // Remote: reads.
    FollowParams = "follow" => FollowData,
        Concurrent, All, answers FollowDataOf<Box<RawValue>>;

    /// Stops sending events. The client is no longer a voice client.
    // Remote: affects only the client itself.
    UnfollowParams = "unfollow" => NoData, InOrder, All;

    /// Checks the daemon and its configuration.
    // Remote: reads; runs only the user's own login shell.
    DoctorParams = "doctor" => DoctorData, Concurrent, All, within DOCTOR_TIMEOUT;

    /// Returns the configuration in force.
    // Remote: values may be secret.
    ConfigParams = "quack.config" => ConfigData, InOrder,
        Never("Only local clients are shown the configuration");

    /// Lists the models of quackd's own agent, and tests the chosen one.
    // Remote: reads; a test costs no more than a say.
    ModelsParams = "quack.models" => ModelsData, Concurrent, All;

    /// Gives the daemon variables with keys of model providers.
    // Remote: the person at this machine decides which account pays.
    KeysParams = "quack.keys" => KeysData, InOrder,
        Never("Only local clients may give keys to the daemon"), needs ["variables"];

    /// Lists the daemon and its processes.
    // Remote: reads.
    PsParams = "quack.ps" => PsData, Concurrent, All;

    /// Returns the daemon's counters in the text format of Prometheus.
    // Remote: reads.
    MetricsParams = "quack.metrics" => MetricsData, Concurrent, All;

    /// Deletes expired and orphaned files.
    // Remote: a dry run reads; a real run deletes files of this machine.
    GcParams = "quack.gc" => GcData, Concurrent, Part, within GC_TIMEOUT;

    /// Describes the daemon's program and lists the work in progress.
    // Remote: reads.
    DaemonParams = "quack.daemon" => DaemonData, Concurrent, All;

    /// Stops the daemon so that the next one can start, unless work is in progress.
    // Remote: without a service manager, a remote client could not start the daemon again.
    RestartParams = "quack.restart" => RestartData, Concurrent, Part;

    /// Returns the tree of processes and their restart rules.
    // Remote: reads.
    TreeParams = "quack.tree" => TreeData, Concurrent, All;

    /// Exempts a session's processes from idle eviction, or ends the exemption.
    // Remote: affects one session, and is reversible.
    PinParams = "quack.pin" => PinData, Concurrent, All;

    /// Makes a port of a session reachable on this machine, closes it, or lists such ports.
    // Remote: a list reads; a forward lets programs of this machine into a session.
    ForwardParams = "quack.forward" => ForwardData, Concurrent, Part;

    /// Kills a session's worker. Its calls fail as after a crash.
    // Remote: ends work of a session that abort cannot end.
    KillParams = "quack.kill" => KillData, Concurrent, All, needs ["sessionId"];

    /// Stops the daemon.
    // Remote: a remote client could not start the daemon again.
    ShutdownParams = "quack.shutdown" => NoData, InOrder,
        Never("Only local clients may stop the daemon");

    /// Makes this client a voice client.
    // Remote: affects only the client itself.
    VoiceConnectParams = "voice_connect" => VoiceConnectData, InOrder, All;

    /// Asks a voice client to start in a session.
    // Remote: phones are voice clients.
    VoiceStartParams = "voice_start" => VoiceStartData, InOrder, All;

    /// Reports the state of this voice client.
    // Remote: affects only the client itself.
    VoiceStateParams = "voice_state" => NoData, InOrder, All, needs ["state"];

    /// Returns the state of remote control.
    // Remote: a client that used the token does not get it back.
    RemoteStatusParams = "remote_status" => RemoteData,
        Concurrent, Part, reads Map<String, Value>;

    /// Changes remote control.
    // Remote: only local clients change remote control.
    RemoteConfigureParams = "remote_configure" => RemoteData,
        Concurrent, Never("Remote configuration is only available to local clients"),
        reads Map<String, Value>;

    /// Creates a code for which the page in a browser gets a token, once.
    // Remote: would let a token make others, with more rights.
    PageCodeParams = "quack.page_code" => PageCodeData, Concurrent, Never(LOCAL_PAGES);

    /// Lists and revokes the tokens of pages.
    // Remote: only local clients change remote control.
    PageTokensParams = "quack.page_tokens" => PageTokensData, Concurrent, Never(LOCAL_PAGES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionId;
    use crate::client::SandboxSession;
    use serde_json::value::to_raw_value;

    fn check<M: ListedMethod + From<SandboxParams>>() {
        let written = serde_json::to_value(M::from(SandboxParams::default())).unwrap();
        assert_eq!(written["action"].as_str(), M::ROW.action);
    }

    fn answers<M: ListedMethod<Answer = WorkerSays>>(report: &impl Serialize) {
        let says = WorkerSays {
            session_id: SessionId("s".to_owned()),
            session_name: "n".to_owned(),
            workspace_path: "/w".to_owned(),
            text: to_raw_value("text").unwrap(),
            report: Some(to_raw_value(report).unwrap()),
        };
        let data = serde_json::to_value(says.data()).unwrap();
        assert!(serde_json::from_value::<M::Reply>(data).is_ok(), "{:?}", M::ROW.action);
    }

    #[test]
    fn the_types_of_the_actions_write_the_action_that_selects_their_row() {
        check::<SandboxShow>();
        check::<SandboxSet>();
        check::<SandboxAllow>();
        check::<SandboxRevoke>();
        check::<SandboxDenials>();
        check::<SandboxNetwork>();
        check::<SandboxPresets>();
        check::<SandboxExplainHost>();
        check::<SandboxAudit>();
        check::<SandboxExplain>();
    }

    /// The other rows with `reads` accept any object, and those with `answers` have one generic type in both directions.
    #[test]
    fn the_two_types_of_a_row_have_the_same_json() {
        for params in [
            serde_json::to_value(ActivateParams::of("s")),
            serde_json::to_value(StateParams::of("s")),
            serde_json::to_value(AbortParams::of("s")),
        ] {
            let read: AnySession = serde_json::from_value(params.unwrap()).unwrap();
            assert_eq!(read.session_id, "s");
        }
        let shown = SandboxShow { session: SandboxSession::of("s") };
        let read: SandboxParams =
            serde_json::from_value(serde_json::to_value(shown).unwrap()).unwrap();
        assert_eq!(read.session_id.as_deref(), Some("s"));

        answers::<SandboxAudit>(&AuditReport::default());
        answers::<SandboxExplain>(&ExplainReport::default());
    }

    #[test]
    fn rows_of_one_name_follow_each_other_and_differ_in_their_actions_only() {
        let mut names: Vec<_> = METHODS.chunk_by(|a, b| a.name == b.name).collect();
        names.sort_unstable_by_key(|rows| rows[0].name);
        assert!(names.windows(2).all(|pair| pair[0][0].name != pair[1][0].name));

        for rows in names.into_iter().filter(|rows| 1 < rows.len()) {
            let mut generator = SchemaGenerator::default();
            let params: Vec<_> = rows.iter().map(|row| (row.params)(&mut generator)).collect();
            for (row, params_of_row) in rows.iter().zip(&params) {
                assert!(row.action.is_some(), "{}", row.name);
                assert_eq!(row.order, rows[0].order, "{}", row.name);
                assert_eq!(*params_of_row, params[0], "{}", row.name);
            }
        }
    }
}
