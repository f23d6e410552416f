//! Chooses the agent of a session: quackd's own, or the user's Pi.
//!
//! The first that says something decides: the session, `agent.engine`, a named Pi (`pi.binary`), a configured model.

use crate::errors::AgentError;
use crate::session::services::SessionServices;
use quackd_config::EngineChoice;
pub(crate) use quackd_protocol::agent::Engine;
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::mcp::McpServer;
use quackd_protocol::policy::NetworkMode;

/// The user's choice for one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentChoice {
    /// `native` or `pi`. `None` for the default.
    pub(crate) engine: Option<String>,
    /// `provider/model` of quackd's own agent. `None` for the default.
    pub(crate) model: Option<String>,
    /// Whether the session works in a private copy, which the user's Pi would not see: it is not confined.
    pub(crate) is_isolated: bool,
}

/// Facts that an agent gets once, at its start. Another process replaces it when they change.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct StartFacts {
    pub(super) choice: AgentChoice,
    /// MCP servers that a client has given.
    pub(super) servers: Vec<McpServer>,
    /// Options that a client has set.
    pub(super) options: AgentOptions,
    pub(super) is_safe: bool,
    pub(super) network: NetworkMode,
    /// The models that it knows, by [`crate::session::models::Models::version`].
    pub(super) models: u64,
}

/// A choice and its reason, for `doctor` and `quack models`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) engine: Engine,
    pub(crate) why: &'static str,
    /// Text for the user if there is no Pi either.
    pub(crate) missing: Option<String>,
}

/// Chooses the agent.
pub(crate) async fn choose(
    services: &SessionServices,
    session: &AgentChoice,
) -> Result<Chosen, AgentError> {
    let found = |engine, why| match engine {
        Engine::Pi if session.is_isolated => Err(AgentError::IsolatedPi),
        engine => Ok(Chosen { engine, why, missing: None }),
    };
    let of_session = session.engine.as_deref().and_then(EngineChoice::named);
    match of_session {
        Some(EngineChoice::Native) => return found(Engine::Native, "this session uses it"),
        Some(EngineChoice::Pi) => return found(Engine::Pi, "this session uses it"),
        Some(EngineChoice::Auto) | None => {}
    }
    let config = &services.daemon.config;
    match config.agent.engine.value {
        EngineChoice::Native => return found(Engine::Native, "`agent.engine` is native"),
        EngineChoice::Pi => return found(Engine::Pi, "`agent.engine` is pi"),
        EngineChoice::Auto => {}
    }
    if session.model.is_some() {
        return found(Engine::Native, "this session has a model");
    }
    if !config.pi.binary.value.trim().is_empty() {
        return found(Engine::Pi, "`pi.binary` names a Pi");
    }
    let catalog = services.models.catalog().await;
    match catalog.chosen() {
        Some(_) => found(Engine::Native, "a model is configured"),
        None if session.is_isolated => Err(AgentError::IsolatedPi),
        None => Ok(Chosen {
            engine: Engine::Pi,
            why: "no model is configured",
            missing: Some(catalog.missing()),
        }),
    }
}
