//! Chooses the agent of a session: quackd's own, or the user's Pi.
//!
//! The first of these that is set decides: the session's agent, `agent.engine`, the session's model, `pi.binary`, a
//! configured model. Without any of them the agent is Pi.

use super::choice::AgentChoice;
use crate::errors::AgentError;
use crate::session::services::SessionServices;
use quackd_config::EngineChoice;
pub(crate) use quackd_protocol::agent::Engine;

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
