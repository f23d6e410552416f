//! The user's choice of the agent for one session, and the facts that an agent gets at its start. The agent's actor
//! keeps both, and `engine.rs` reads the choice.

use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::mcp::McpServer;
use quackd_protocol::policy::NetworkMode;
use quackd_protocol::state::SessionState;

/// The user's choice for one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentChoice {
    /// `native` or `pi`. `None` for the default.
    pub(crate) engine: Option<String>,
    /// `provider/model` of quackd's own agent. `None` for the default.
    pub(crate) model: Option<String>,
    /// Whether the session works in a private copy. Such a session has no Pi, which runs unconfined and sees only the
    /// workspace.
    pub(crate) is_isolated: bool,
    /// Directory on another machine in which the session works, if its copy was sent there.
    pub(crate) sent: Option<String>,
}

impl From<&SessionState> for AgentChoice {
    fn from(state: &SessionState) -> Self {
        let (engine, model) = (state.engine.clone(), state.model.clone());
        let sent = state.isolated.as_ref().and_then(|copied| copied.sent.as_ref());
        let sent = sent.map(|sent| sent.place.clone());
        Self { engine, model, is_isolated: state.isolated.is_some(), sent }
    }
}

/// Facts that an agent gets once, at its start. If they change, a new process replaces it when it is idle.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct StartFacts {
    pub(super) choice: AgentChoice,
    /// MCP servers that a client has given.
    pub(super) servers: Vec<McpServer>,
    /// Options that a client has set.
    pub(super) options: AgentOptions,
    pub(super) is_safe: bool,
    pub(super) network: NetworkMode,
    /// Version of its list of models; see [`crate::session::models::Models::version`].
    pub(super) models: u64,
}
