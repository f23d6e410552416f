//! The actor that owns the agent of one session, with the commands and prompts without an answer. The other files of this
//! folder handle its messages.
//!
//! Receives: [`SendCommand`](super::SendCommand), and the messages of `requests.rs` and of [`native`] (from clients,
//! through the methods and the registry, and from the tasks of model requests); `ChannelEvent` of the agent (from its
//! link); the requests of `children/manage.rs` (from [`crate::pool::sessions`] and the registry).
//! Publishes: the agent's half of the session's snapshot after each change, in the session's entry of the table.
//! Blocks on: nothing. The main thread starts and reaps processes.
//! Mailbox: [`MAILBOX`] messages; a sender waits until there is space.
//! Ends: with the daemon, or with its session. Dropping their senders then answers the remaining commands.

use super::choice::{AgentChoice, StartFacts};
use super::commands::PendingCommands;
use super::dialogs::Dialogs;
use super::native::{self, open_work::NativeWork};
use super::turns::Turns;
use super::{ExitReason, pi};
use crate::children::{Child, KillReason};
use crate::errors::AgentError;
use crate::pool::sessions::SessionEntry;
use crate::session::identity::SessionIdentity;
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_protocol::agent::{AgentCommand, AgentExit, Engine};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::client::ErrorCode;
use quackd_protocol::mcp::McpServer;
use quackd_protocol::policy::NetworkMode;
use quackd_supervision::{AGENT, Exit};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Instant;
use tokio::sync::oneshot;

/// Size of the mailbox: messages of many clients of one session, and one frame of the agent at a time.
const MAILBOX: usize = 256;

/// The caller that waits for the response to a command.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A client's `say` or `quack.agent`.
    Client(oneshot::Sender<Result<CommandReply, AgentError>>),
    /// An `abort`, which only waits for the acknowledgment.
    Abort(oneshot::Sender<()>),
    /// The callers in [`AgentActor::state_waiters`].
    State,
}

/// The agent's response to a command.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandReply {
    /// Whether it was accepted.
    pub(crate) success: bool,
    /// Data of a command other than a prompt.
    pub(crate) data: Option<Box<RawValue>>,
    /// Error if it was refused.
    pub(crate) error: Option<String>,
    /// Cause of the refusal, if a client can act on it.
    pub(crate) code: Option<ErrorCode>,
    /// Number of the session's last event before the prompt, if it was accepted.
    pub(crate) seq: Option<u64>,
    /// Id of its turn, unless the agent handled it without one.
    pub(crate) turn: Option<u64>,
    /// Whether it waits for the running turn.
    pub(crate) is_queued: bool,
}

/// A command for an agent that has not started yet.
#[derive(Debug)]
pub(super) struct QueuedCommand {
    pub(super) number: u64,
    pub(super) command: AgentCommand,
    pub(super) waiter: Waiter,
}

/// Facts of a session that the actor gets when it starts.
pub(in crate::session) struct AgentStart {
    pub(in crate::session) session: Rc<SessionIdentity>,
    pub(in crate::session) services: Rc<SessionServices>,
    pub(in crate::session) owner: Owner,
    pub(in crate::session) entry: Weak<SessionEntry>,
    pub(in crate::session) session_file: String,
    pub(in crate::session) network: NetworkMode,
    pub(in crate::session) is_safe: bool,
    pub(in crate::session) choice: AgentChoice,
}

/// Owner of one session's agent. Runs as an actor.
pub(crate) struct AgentActor {
    pub(super) session: Rc<SessionIdentity>,
    pub(super) services: Rc<SessionServices>,
    pub(super) owner: Owner,
    /// Entry in the table, which has the published state.
    pub(super) entry: Weak<SessionEntry>,
    pub(super) child: Child,
    /// Path of the agent's session file. Empty if the agent has never reported one.
    pub(super) session_file: String,
    /// The registry's session file when a client last sent a command or attached. Another one in the next look-up
    /// replaces `session_file`.
    pub(super) registry_file: String,
    /// Kind of agent of the process. Without a process, the kind of the last agent.
    pub(super) engine: Engine,
    /// Whether the agent summarizes the conversation, in a turn or after it.
    pub(super) is_compacting: bool,
    /// Whether the session is in safe mode.
    pub(super) is_safe: bool,
    /// Network of the session's commands.
    pub(super) network: NetworkMode,
    /// The user's choice of the agent for this session.
    pub(super) chosen: AgentChoice,
    /// MCP servers that a client has given.
    pub(super) mcp_servers: Vec<McpServer>,
    /// Options that a client has set.
    pub(super) options: AgentOptions,
    /// Facts that the process got at its start.
    pub(super) started: StartFacts,
    /// Time of the last activity.
    pub(super) active: Instant,
    /// The agent's last reported state. `None` without a process.
    pub(super) state: Option<Rc<RawValue>>,
    pub(super) dialogs: Dialogs,
    /// Process ids of the worker and of the agent, as the worker reported them. For display only.
    pub(super) pids: Option<(u32, u32)>,
    pub(super) commands: PendingCommands<Waiter>,
    pub(super) unsent: VecDeque<QueuedCommand>,
    /// Callers that wait for the agent's state.
    pub(super) state_waiters: Vec<oneshot::Sender<()>>,
    pub(super) turns: Turns,
    /// The newest turn when the agent's state was requested.
    pub(super) turn_at_request: u64,
    /// Time of the last frame from the agent.
    pub(super) heard: Instant,
    /// The agent's exit status, reported by the worker before the process is reaped.
    pub(super) end: Option<AgentExit>,
    /// Exit status of the process, while its last frames are still being read.
    pub(super) exited: Option<Option<Exit>>,
    /// The reason why the supervisor killed the process.
    pub(super) kill_reason: Option<KillReason>,
    pub(super) dialog_timer: Option<SpawnHandle>,
    /// Requests to models and tool calls of quackd's own agent.
    pub(super) work: NativeWork,
}

impl AgentActor {
    /// Creates the actor without a process.
    pub(in crate::session) fn new(start: AgentStart) -> Self {
        let AgentStart { session, services, owner, entry, session_file, network, is_safe, choice } =
            start;

        Self {
            child: Child::new(AGENT, session.id.0.clone()),
            session,
            services,
            owner,
            entry,
            registry_file: session_file.clone(),
            session_file,
            engine: Engine::Pi,
            is_compacting: false,
            is_safe,
            network,
            chosen: choice,
            mcp_servers: Vec::new(),
            options: AgentOptions::default(),
            started: StartFacts::default(),
            active: Instant::now(),
            state: None,
            dialogs: Dialogs::default(),
            pids: None,
            commands: PendingCommands::default(),
            unsent: VecDeque::new(),
            state_waiters: Vec::new(),
            turns: Turns::default(),
            turn_at_request: 0,
            heard: Instant::now(),
            end: None,
            exited: None,
            kill_reason: None,
            dialog_timer: None,
            work: NativeWork::default(),
        }
    }

    /// Error of the callers that wait for a process that exits or cannot be reached.
    pub(super) fn exit_error(&self, reason: ExitReason) -> AgentError {
        match self.engine {
            Engine::Native => native::exit_error(reason),
            Engine::Pi => pi::exit_error(reason),
        }
    }

    /// Name of the kind of the agent, for the log.
    pub(super) fn kind(&self) -> &'static str {
        match self.engine {
            Engine::Native => "agent",
            Engine::Pi => "Pi",
        }
    }

    /// Whether a turn runs.
    pub(super) fn in_turn(&self) -> bool {
        self.turns.running().is_some()
    }

    /// Whether a turn or a summary runs, or a caller or a dialog waits.
    pub(super) fn is_busy(&self) -> bool {
        let works = ["prompt", "bash"].into_iter().any(|name| self.commands.count(name) != 0);
        let waits = works || !self.unsent.is_empty();
        // An extension of Pi may accept a prompt without a turn.
        let is_awaited = self.engine == Engine::Native && self.turns.is_awaited();
        self.in_turn() || waits || is_awaited || self.is_compacting || self.dialogs.any()
    }
}

impl Actor for AgentActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}
