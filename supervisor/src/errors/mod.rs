//! Errors of methods and calls, with all their texts for clients.
//!
//! The protocol specification fixes the texts that clients depend on. The other texts may change.

mod agent;
mod call;
mod forward;
mod gc;
pub(crate) mod start;
mod terminal;

pub(crate) use agent::AgentError;
pub(crate) use call::{CallError, CopyExcess, SlotUsage};
pub(crate) use forward::ForwardRefusal;
pub(crate) use gc::GcError;
pub(crate) use terminal::{RefusedTerminal, TerminalRefusal};

use crate::engines::{CreateError, NoEngine};
use crate::workspaces::NoPlace;
use quackd_home::WorkspaceError;
use quackd_policy::PolicyError;
use quackd_protocol::agent_options::AgentOptionsError;
use quackd_protocol::approval::{Decision, RecentApproval};
use quackd_protocol::client::{ErrorCode, SayData, VoiceState};
use quackd_protocol::credentials::NoCredentialUse;
use quackd_protocol::far::FarError;
use quackd_protocol::foreign_text::NameError;
use quackd_protocol::limits::{MAX_CLIENT_CLAIMS, MIN_REMOTE_TOKEN_BYTES};
use quackd_protocol::mcp::{MAX_MCP_SERVERS, McpServerError};
use quackd_remote::gate::MAX_TOKEN_BYTES;
use quackd_store::StoreError;
use std::net::SocketAddr;

/// The reason why the reply to a request has `ok:false`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MethodError {
    #[error("Session not found: {0}")]
    SessionNotFound(String),
    #[error("{}", ambiguous(reference, labels, *has_more))]
    Ambiguous { reference: String, labels: Vec<String>, has_more: bool },
    #[error("No active voice session for tool execution")]
    NoSessionForTool,
    #[error("No active session. Run `duck` first.")]
    NoSessionToFollow,
    #[error("Streaming client is not connected")]
    NoStream,
    #[error("Voice client is not connected")]
    NoVoiceClient,
    #[error("Voice client disconnected")]
    VoiceGone,
    #[error("Voice session is already owned by another client")]
    VoiceTaken,
    #[error("Voice session is owned by another client")]
    VoiceToolRefused,
    #[error("No active session for voice start")]
    NoSessionForVoiceStart,
    #[error("No active session for voice state update")]
    NoSessionForVoiceState,
    #[error("Unknown voice state: {0}; known are {states}", states = voice_states())]
    UnknownVoiceState(String),
    #[error("No active session")]
    NoSession,
    #[error("No active session for UI response")]
    NoSessionForAnswer,
    #[error("UI response is missing request id")]
    NoDialogId,
    #[error("Message is required")]
    NoMessage,
    #[error("Message must be a string")]
    MessageNotText,
    #[error("{0}")]
    Agent(#[from] AgentError),
    #[error("Session reference is required")]
    NoReference,
    #[error("The path is empty")]
    EmptyPath,
    #[error("Workspace for session \"{0}\" was not found")]
    WorkspaceOfSay(String),
    #[error("Workspace not found for session: {0}")]
    WorkspaceNotFound(String),
    #[error("Session is busy: {}; end with force", running(*.0))]
    SessionHasWork(RunningWork),
    #[error("Session is busy: {}; wait or end that{}", self::running(*.running), if *.can_force { ", or use --force" } else { ": quack jobs lists the jobs, quack jobs kill ends one" })]
    FilesInUse { running: RunningWork, can_force: bool },
    #[error("Session name must be {0}")]
    BadName(#[from] NameError),
    #[error("A session of this name exists already in the workspace: {0}")]
    NameTaken(String),
    #[error("No active session to abort")]
    NoSessionToAbort,
    #[error("No running operation to abort")]
    NothingToAbort,
    #[error("No worker to kill")]
    NothingToKill,
    #[error("Active workspace not found for voice session")]
    WorkspaceUnknown,
    #[error("Voice tool call workspace does not match the active session")]
    WorkspaceMismatch,
    #[error("{}", sentence(.0))]
    Workspace(#[from] WorkspaceError),
    #[error("Not a workspace: {0}")]
    NoPlace(#[from] NoPlace),
    #[error("Not a workspace on another machine: {0}")]
    Far(#[from] FarError),
    #[error(transparent)]
    NoEngine(#[from] NoEngine),
    #[error("{}", sentence_of(&.0.to_string()))]
    NotCreated(#[from] CreateError),
    #[error("Only local clients may work on other machines")]
    LocalFar,
    #[error(
        "A session on another machine cannot be isolated: private copies are made on this machine"
    )]
    FarIsolated,
    #[error("A session on another machine cannot use Pi, which works on this one")]
    FarPi,
    #[error("Hosts cannot be reached one by one on another machine: use --network on or off")]
    FarHosts,
    #[error(
        "On another machine, a session can write its workspace only: --writable and --hide name paths of this one"
    )]
    FarPaths,
    #[error("A session on another machine has no private copy and no recorded states of files")]
    FarStates,
    #[error("The states of this session's files are not recorded: it works on another machine")]
    SentStates,
    #[error(
        "The copy of the session is being moved between this machine and another one by another command: try again"
    )]
    CopyMoves,
    #[error(
        "{place}: files do not outlive one start of the engine {engine}, so no copy can be sent; if they do, set \
         `keeps_files = true` in [engines.{engine}]"
    )]
    KeepsNoFiles { engine: String, place: String },
    #[error("The workspace is on another machine already: --send copies a directory of this one")]
    FarSend,
    #[error("The copy was not sent, and nothing was made: {0}")]
    NotSent(String),
    #[error("The copy was not brought back, and nothing was changed here: {0}")]
    NotFetched(String),
    #[error(
        "The copy here is newer than that on the other machine, and was not sent: {0}. quack refresh sends it"
    )]
    NotPut(String),
    #[error("Credentials of this machine cannot be used on another machine")]
    FarCredentials,
    #[error("Ports of a session on another machine cannot be forwarded")]
    FarForward,
    #[error("Not to be made writable: {0}")]
    NotWritable(NoPlace),
    #[error("Workspace did not answer within {0} s: {1}")]
    WorkspaceHangs(u64, String),
    #[error("The \"path\" argument must be of type string")]
    PathNotText,
    #[error("Invalid parameters for {method}: {why}")]
    Params { method: &'static str, why: serde_json::Error },
    #[error("Invalid parameters for quack.tool: callId must have 1 to 200 bytes")]
    CallIdLength,
    #[error("Invalid parameters for quack.tool: a call with this callId is running")]
    CallIdTaken,
    #[error("Invalid parameters for quack.tool: stream needs a callId")]
    StreamWithoutId,
    #[error("Invalid parameters for quack.tool: stdin needs a callId")]
    StdinWithoutId,
    #[error("Invalid parameters: cwd must be an absolute path in the workspace")]
    Cwd,
    #[error("Invalid parameters for quack.stdin: bytes must be base64 of at most {0} bytes")]
    InputPiece(usize),
    #[error("Invalid parameters for quack.hello: {0} must have {1}")]
    HelloText(&'static str, NameError),
    #[error("quack.hello is required before quack.claim")]
    NoHello,
    #[error("Too many claimed sessions: a client may have {MAX_CLIENT_CLAIMS}")]
    TooManyClaims,
    #[error("{}", sentence(.0))]
    Policy(PolicyError),
    #[error(
        "A policy for all sessions is set with `quack config set`; give a session or a workspace"
    )]
    PolicyOfAll,
    /// The rule of the request, and the rules about the same hosts.
    #[error("No rule and no grant: {0}; {about}quack sandbox show lists them", about = about(.1))]
    NoSuchRule(String, Vec<String>),
    #[error("Too many grants: revoke some first")]
    TooManyGrants,
    #[error("@{0} has no hosts: {1}; name the host, as in quack sandbox allow registry.example")]
    NoPresetHosts(&'static str, String),
    #[error("Name at least one rule, such as example.com or @github")]
    NoRules,
    #[error("Not a use of a credential: {0}; {why}", why = NoCredentialUse)]
    NoCredentialUse(String),
    #[error("Not a host or host:port: {0}")]
    NotAHost(String),
    #[error("Only local clients may forward ports")]
    LocalForward,
    #[error("Name the port in the session")]
    NoPort,
    #[error("Port {0} is not forwarded")]
    NotForwarded(u16),
    #[error("Session {0} has no running worker, so no server: start the server first")]
    NoWorkerToForward(String),
    #[error("{}", forward::text(*port, *local, *refusal))]
    Forward { port: u16, local: u16, refusal: ForwardRefusal },
    #[error("Invalid parameters for quack.run: {0}")]
    RunParams(&'static str),
    #[error("session {0} is in safe mode, in which no program runs on a terminal")]
    RunInSafeMode(String),
    /// Text of the call that failed.
    #[error("{0}")]
    TerminalCall(String),
    #[error(transparent)]
    Terminal(#[from] RefusedTerminal),
    #[error("Invalid parameters for quack.term_input: bytes must be base64 of at most {0} bytes")]
    TerminalInput(usize),
    #[error("Invalid parameters for quack.term_resize: cols and rows must be at least 1")]
    TerminalSize,
    #[error(
        "Session not found: {}; these methods take the id in the reply of quack.term_attach",
        beginning(.0)
    )]
    NoSessionWithId(String),
    #[error(
        "Remote clients may look at terminals only; the setting remote.terminals allows them to use terminals"
    )]
    RemoteTerminal,
    #[error("Links are off: forward.listen is \"off\" in the configuration")]
    LinksOff,
    #[error(
        "Cannot listen on {address} for links: {source}; set another address with `quack config set forward.listen \
         127.0.0.1:PORT`, then `quack restart`"
    )]
    LinksListen { address: SocketAddr, source: std::io::Error },
    #[error("Session {0} has no name for a link: its id is not a part of a host name")]
    NoLinkName(String),
    #[error("No question to the user has this id: {0}; quack approvals lists them")]
    NoSuchRequest(String),
    #[error("UI request {} was answered already ({})", .0.id, closed(.0))]
    RequestClosed(Box<RecentApproval>),
    #[error("The answer is not an option of the question: {0}")]
    NoOption(String),
    #[error("The question does not offer this scope: {0}")]
    NotOffered(&'static str),
    #[error("Remote clients may not give this answer; the setting remote.approvals allows it")]
    RemoteAnswer,
    #[error("Path is too long")]
    LongTarget,
    #[error("Unknown action of quack.sandbox: {0}")]
    SandboxAction(String),
    #[error("Too many sessions: {0} are known; delete some first")]
    TooManySessions(usize),
    #[error("{}", sentence(.0))]
    NotSaved(StoreError),
    #[error("Sessions cannot be changed: {0}")]
    ReadOnly(String),
    #[error("No random numbers: {0}")]
    NoRandom(std::io::Error),
    /// The row of a method has the text.
    #[error("{0}")]
    LocalOnly(&'static str),
    #[error(
        "{0} is no variable of a model provider, or its value is longer than {1} bytes or has a NUL"
    )]
    BadKey(String, usize),
    #[error("Another conversation is being copied; try again")]
    ForkBusy,
    #[error("engine must be native, pi or auto")]
    UnknownEngine,
    #[error("model must have at most 256 printable characters")]
    BadModel,
    #[error("model must have at most 256 printable characters, without U+{code:04X}", code = u32::from(*.0))]
    UnsafeModel(char),
    #[error("mcpServers must have at most {MAX_MCP_SERVERS} servers")]
    TooManyMcpServers,
    #[error("Server {position} of mcpServers {problem}")]
    McpServer { position: usize, problem: McpServerError },
    #[error("Server {position} of mcpServers has the name of an earlier one")]
    McpServerTwice { position: usize },
    #[error("agentOptions: {0}")]
    AgentOptions(AgentOptionsError),
    #[error(
        "conversationId must have 1 to 128 letters, digits, `.`, `_` and `-`, and begin and end with a letter or digit"
    )]
    ConversationId,
    #[error("Cannot create the conversation: {0}")]
    Conversation(std::io::Error),
    #[error("Cannot fork the conversation: {0}")]
    Fork(std::io::Error),
    #[error("command must be an object with the text type")]
    NoCommand,
    #[error("{text}")]
    Refused { text: String, code: Option<ErrorCode> },
    /// The agent refused a prompt. Unlike other error replies, that of `say` contains the session.
    #[error("{}", error.as_deref().unwrap_or_default())]
    Say { error: Option<String>, code: Option<ErrorCode>, data: Box<SayData> },
    #[error("Only local clients may delete files")]
    LocalGc,
    #[error(
        "Only local clients may make isolated sessions, apply, refresh or discard their changes, and restore files"
    )]
    LocalIsolated,
    #[error(
        "Session {0} is not isolated: it works in the workspace itself. `quack new --isolated` makes one that is"
    )]
    NotIsolated(String),
    #[error(
        "Invalid parameters for quack.isolated: action is required: diff, apply, undo, refresh, discard, checkpoints or restore"
    )]
    NoIsolatedAction,
    #[error(
        "Invalid parameters for quack.isolated: commits is for diff and apply, without paths, merge and expect"
    )]
    CommitsAction,
    #[error("Invalid parameters for quack.isolated: number is required to restore")]
    NoCheckpointNumber,
    #[error(
        "States of this session's files are not recorded (`keep.checkpoints`): `quack config set keep.checkpoints all` records \
         them for every session from the daemon's next start on, `quack new --isolated` makes a session that has them"
    )]
    NoCheckpoints,
    #[error("An isolated session cannot be forked: the new session would not have its files")]
    IsolatedFork,
    #[error("Invalid parameters for quack.isolated: paths must be in the workspace, at most 10000")]
    IsolatedPath,
    #[error(
        "Too many isolated sessions: at most 64; apply or discard their changes and delete some"
    )]
    TooManyCopies,
    #[error(
        "The copies of isolated sessions take {size} MiB, more than isolated.total_mb ({max}): apply or discard their changes \
         and delete some (`quack sessions`, `quack discard`), or raise the limit"
    )]
    CopiesFull { size: u64, max: u64 },
    #[error("{}", sentence_of(.0))]
    Isolated(String),
    #[error("Session {label} has {}: apply or discard them, or use force", unapplied(*n))]
    Unapplied { label: String, n: u64 },
    #[error("The configuration is not valid, the daemon was not restarted: {0}")]
    BadConfig(String),
    #[error("Only local clients may restart a daemon that no service manager starts again")]
    LocalRestart,
    #[error(transparent)]
    Clean(#[from] GcError),
    #[error("Remote authToken must be at most {MAX_TOKEN_BYTES} printable ASCII characters")]
    BadToken,
    #[error(
        "Remote authToken must have at least {MIN_REMOTE_TOKEN_BYTES} characters; rotateToken makes a random one"
    )]
    ShortToken,
    #[error("Remote control was not changed: {0}")]
    RemoteNotOpened(String),
    #[error("Remote control cannot be changed: {0}")]
    RemoteLocked(String),
    #[error("Remote control was not changed, config.json cannot be saved: {0}")]
    RemoteNotSaved(std::io::Error),
    #[error(
        "This page does not have the right `{0}`: `quack open --{0}` on the daemon's machine opens a page that has it"
    )]
    PageRight(&'static str),
    #[error(
        "A page may answer for once or for the session only; `quack approvals` on the daemon's machine offers more"
    )]
    PageScope,
    #[error(
        "The host of a page must be a name of ASCII letters, digits, dots, hyphens and underscores"
    )]
    PageHost,
    #[error("No page token has this id: {0}; `quack remote tokens` lists them")]
    NoPageToken(String),
    #[error("The page tokens are still valid, because page-tokens.json cannot be saved: {0}")]
    PagesNotSaved(std::io::Error),
    #[error("Daemon is shutting down")]
    ShuttingDown,
    #[error("Daemon or its disk is overloaded, try again")]
    Overloaded,
}

impl MethodError {
    /// Code of the reply, if a client can act on the error.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } | Self::Say { code, .. } => *code,
            Self::SessionNotFound(_) | Self::NoSessionWithId(_) => Some(ErrorCode::SessionNotFound),
            Self::Agent(AgentError::TooMany | AgentError::TooManyAgents { .. })
            | Self::SessionHasWork(_)
            | Self::FilesInUse { .. }
            | Self::Overloaded => Some(ErrorCode::Busy),
            Self::NoPlace(_) | Self::Far(_) | Self::NoEngine(_) => Some(ErrorCode::NotAWorkspace),
            Self::ShuttingDown | Self::Agent(AgentError::ShuttingDown) => {
                Some(ErrorCode::ShuttingDown)
            }
            _ => None,
        }
    }
}

/// Maximum length of a reference in an error text, in characters.
const MAX_SHOWN_REFERENCE: usize = 100;

fn beginning(reference: &str) -> String {
    reference.chars().take(MAX_SHOWN_REFERENCE).collect()
}

fn ambiguous(reference: &str, labels: &[String], has_more: bool) -> String {
    let start = beginning(reference);
    let more = if has_more { ", and others" } else { "" };
    format!("\"{start}\" means several sessions; use one of: {}{more}", labels.join(", "))
}

/// Describes the end of a question: `allowed for this session by quack (process 4711)`.
fn closed(record: &RecentApproval) -> String {
    let by = record.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    match (record.decision, record.scope) {
        (Some(Decision::Allow), Some(scope)) => format!("allowed {}{by}", scope.in_words()),
        (Some(Decision::Deny), _) => format!("denied{by}"),
        _ => record.reason.clone(),
    }
}

fn voice_states() -> String {
    VoiceState::ALL.map(VoiceState::as_str).join(", ")
}

fn unapplied(n: u64) -> String {
    format!("{n} unapplied change{}", if n == 1 { "" } else { "s" })
}

/// Returns the number with a noun: `1 call`, `2 calls`. `None` for 0.
pub(crate) fn count(n: usize, noun: &str) -> Option<String> {
    match n {
        0 => None,
        1 => Some(format!("1 {noun}")),
        n => Some(format!("{n} {noun}s")),
    }
}

fn running(work: RunningWork) -> String {
    let parts = [count(work.calls, "call"), count(work.jobs, "background job")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let verb = if work.calls + work.jobs == 1 { "is" } else { "are" };
    format!("{} {verb} running", parts.join(" and "))
}

/// Formats a library's error for clients: with its causes, and with a capital letter.
fn sentence(error: &dyn std::error::Error) -> String {
    sentence_of(&chain(error))
}

fn sentence_of(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Joins an error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

impl From<actix::MailboxError> for MethodError {
    /// The actor has stopped because of the shutdown, or its mailbox did not accept the message in time.
    fn from(error: actix::MailboxError) -> Self {
        match error {
            actix::MailboxError::Closed => Self::ShuttingDown,
            actix::MailboxError::Timeout => Self::Overloaded,
        }
    }
}

/// Running work of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RunningWork {
    /// Calls without a reply.
    pub(crate) calls: usize,
    /// Background jobs.
    pub(crate) jobs: usize,
}

impl RunningWork {
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Names the rules about the host of an unknown rule.
fn about(rules: &[String]) -> String {
    match rules {
        [] => String::new(),
        [only] => format!("about this host there is {only}; "),
        several => format!("about this host there are {}; ", several.join(", ")),
    }
}
