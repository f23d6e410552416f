//! The state of a session's agent. The session's actor owns it, and the other files of this folder change it.

use super::choice::{AgentChoice, StartFacts};
use super::commands::PendingCommands;
use super::dialogs::Dialogs;
use super::native::{self, open_work::NativeWork};
use super::turns::Turns;
use super::{ExitReason, pi};
use crate::children::{Child, KillReason};
use crate::errors::AgentError;
use actix::SpawnHandle;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::SessionId;
use quackd_protocol::agent::{AgentCommand, AgentExit, Engine};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::client::ErrorCode;
use quackd_protocol::mcp::McpServer;
use quackd_supervision::AGENT;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::oneshot;

/// The caller that waits for the response to a command.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A client's `say` or `quack.agent`.
    Client(oneshot::Sender<Result<CommandReply, AgentError>>),
    /// An `abort`, which only waits for the acknowledgment.
    Abort(oneshot::Sender<()>),
    /// The callers in [`AgentPart::state_waiters`].
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

/// The agent of one session.
pub(crate) struct AgentPart {
    pub(in crate::session) child: Child,
    /// Path of the agent's session file. Empty if the agent has never reported one.
    pub(super) session_file: String,
    /// The agent of the process, or of the last one.
    pub(super) engine: Engine,
    /// Whether a summary runs, also after the turn.
    pub(super) is_compacting: bool,
    /// Whether the session is in safe mode.
    pub(in crate::session) is_safe: bool,
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
    pub(super) exited: Option<Option<ProcessExit>>,
    /// The reason why the supervisor killed it.
    pub(super) kill_reason: Option<KillReason>,
    pub(super) dialog_timer: Option<SpawnHandle>,
    /// Requests to models and tool calls of quackd's own agent.
    pub(super) work: NativeWork,
}

impl AgentPart {
    /// Creates the part without a process.
    pub(in crate::session) fn new(session: &SessionId, session_file: String) -> Self {
        Self {
            child: Child::new(AGENT, session.0.clone()),
            session_file,
            engine: Engine::Pi,
            is_compacting: false,
            is_safe: false,
            chosen: AgentChoice::default(),
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

    /// Takes what the registry knows about the session's agent. An empty path of the session file means no news.
    pub(in crate::session) fn learn(
        &mut self,
        session_file: &str,
        chosen: &AgentChoice,
        is_safe: bool,
    ) {
        if !session_file.is_empty() {
            session_file.clone_into(&mut self.session_file);
        }
        self.chosen.clone_from(chosen);
        self.is_safe = is_safe;
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

    /// Id of the running turn.
    pub(in crate::session) fn running_turn(&self) -> Option<u64> {
        self.turns.running()
    }

    /// Whether a turn runs.
    pub(super) fn in_turn(&self) -> bool {
        self.turns.running().is_some()
    }

    /// Whether a turn or a summary runs, or a caller or a dialog waits.
    pub(in crate::session) fn is_busy(&self) -> bool {
        let works = ["prompt", "bash"].into_iter().any(|name| self.commands.count(name) != 0);
        let waits = works || !self.unsent.is_empty();
        // An extension of Pi may accept a prompt without a turn.
        let is_awaited = self.engine == Engine::Native && self.turns.is_awaited();
        self.in_turn() || waits || is_awaited || self.is_compacting || self.dialogs.any()
    }
}
