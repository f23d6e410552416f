//! Engines that start workers elsewhere: finds the engine of a far workspace in the configuration.

use crate::daemon_info::DaemonInfo;
use quackd_engines::{EngineArgv, Filling};
use quackd_protocol::far::FarWorkspace;

/// The reason why no engine can be used for a far workspace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoEngine {
    /// The name, and the known ones in words.
    #[error("{0:?} is not an engine; engines are {1}")]
    Unknown(String, String),
    /// The engine, and the reason in words.
    #[error("the engine {0} cannot be used: {1}; quack engines describes it")]
    Unusable(String, String),
    #[error("the file of quackd's program is unknown: {0}")]
    Program(std::io::Error),
    /// The engine.
    #[error(
        "the engine {0} creates something for each session, and this session has none: make one with quack new"
    )]
    NotCreated(String),
}

/// The reason why nothing was created for a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    #[error(transparent)]
    Engine(#[from] NoEngine),
    /// The engine, and the reason.
    #[error("the engine {0} could not create what the session needs: {1}")]
    Failed(String, String),
    #[error("the daemon is stopping")]
    Stopping,
}

/// Whether files in the home directory of an engine's machine outlive one start.
pub(crate) fn keeps_files(daemon: &DaemonInfo, engine: &str) -> bool {
    daemon.config.engines().iter().any(|row| row.name == engine && row.keeps_files)
}

/// Returns the argument lists that reach a far workspace, for a session with this id. `created` is the text that the
/// engine's `create` printed for it, `None` if nothing was created.
///
/// # Errors
/// `NotCreated` if the engine's `create` has not run for the session; see [`NoEngine`].
pub(crate) fn engine_argv(
    daemon: &DaemonInfo,
    far: &FarWorkspace,
    session: &str,
    created: Option<&str>,
) -> Result<EngineArgv, NoEngine> {
    let argv = any_argv(daemon, far, session, created.unwrap_or_default())?;
    let is_missing = created.is_none() && !argv.create.is_empty();
    if is_missing || argv.start.is_empty() {
        return Err(NoEngine::NotCreated(far.engine.clone()));
    }
    Ok(argv)
}

/// Like [`engine_argv`], also before `create` has run. Lists that need the text are then empty.
///
/// # Errors
/// See [`NoEngine`], except `NotCreated`.
pub(crate) fn any_argv(
    daemon: &DaemonInfo,
    far: &FarWorkspace,
    session: &str,
    created: &str,
) -> Result<EngineArgv, NoEngine> {
    let engines = daemon.config.engines();
    let engine = engines.iter().find(|engine| engine.name == far.engine).ok_or_else(|| {
        let known: Vec<_> = engines.iter().map(|engine| engine.name.as_str()).collect();
        NoEngine::Unknown(far.engine.clone(), known.join(", "))
    })?;

    let program = match daemon.config.far.program.value.as_str() {
        "" => std::env::current_exe().map_err(NoEngine::Program)?.display().to_string(),
        program => program.to_owned(),
    };
    let filling = Filling { target: &far.target, session, created, program: &program };
    let argv = engine.argv(filling);
    argv.map_err(|why| NoEngine::Unusable(far.engine.clone(), why.to_string()))
}
