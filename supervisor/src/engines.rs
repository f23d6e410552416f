//! Engines that start workers elsewhere: finds the engine of a far workspace in the configuration.

use crate::daemon_info::DaemonInfo;
use quackd_engines::EngineArgv;
use quackd_protocol::far::FarWorkspace;

/// The reason why no engine can be used for a far workspace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoEngine {
    #[error("there is no engine {0:?}; quack engines lists them")]
    Unknown(String),
    /// The engine, and the reason in words.
    #[error("the engine {0} cannot be used: {1}; quack engines describes it")]
    Unusable(String, String),
    #[error("the file of quackd's program is unknown: {0}")]
    Program(std::io::Error),
}

/// Returns the argument lists that reach a far workspace, for a session with this id.
///
/// # Errors
/// See [`NoEngine`].
pub(crate) fn engine_argv(
    daemon: &DaemonInfo,
    far: &FarWorkspace,
    session: &str,
) -> Result<EngineArgv, NoEngine> {
    let engine = daemon.config.engines().into_iter().find(|engine| engine.name == far.engine);
    let engine = engine.ok_or_else(|| NoEngine::Unknown(far.engine.clone()))?;

    let program = match daemon.config.far.program.value.as_str() {
        "" => std::env::current_exe().map_err(NoEngine::Program)?.display().to_string(),
        program => program.to_owned(),
    };
    let argv = engine.argv(&far.target, session, &program);
    argv.map_err(|why| NoEngine::Unusable(far.engine.clone(), why.to_string()))
}
