//! States of a session's files: which are recorded, and the process that does the work.

use super::services::SessionServices;
use quackd_config::CheckpointChoice;
use quackd_protocol::SessionId;
use quackd_protocol::isolate::{
    CheckpointAction, CheckpointRequest, FromIsolate, MAX_RECORDED_COPY, MAX_RECORDED_WORKSPACE,
};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Maximum wait for the creation of the directory.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// The reason why states of files were not recorded, listed or restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatesError {
    /// For display.
    #[error("{0}")]
    Failed(String),
    #[error("the daemon is stopping or overloaded")]
    Overloaded,
}

/// The files of one session.
#[derive(Debug, Clone)]
pub(crate) struct SessionFiles {
    pub(crate) session: SessionId,
    pub(crate) workspace: String,
    pub(crate) is_isolated: bool,
    pub(crate) hidden: Vec<PathBuf>,
}

/// Whether states of the files of such a session are recorded.
pub(crate) fn records(services: &SessionServices, is_isolated: bool) -> bool {
    match services.daemon.config.keep.checkpoints.value {
        CheckpointChoice::Isolated => is_isolated,
        CheckpointChoice::All => true,
        CheckpointChoice::Off => false,
    }
}

/// Records, lists or restores states of a session's files. The work goes on if the caller drops the future.
pub(crate) async fn run(
    services: &Rc<SessionServices>,
    files: SessionFiles,
    action: CheckpointAction,
) -> Result<FromIsolate, StatesError> {
    let SessionFiles { session, workspace, is_isolated, hidden } = files;
    let home = services.daemon.home.clone();
    if !is_isolated {
        let made = services.look(LOOK_LIMIT, move || home.make_checkpoints_dir_blocking()).await;
        made.map_err(|_late| StatesError::Overloaded)?
            .map_err(|error| StatesError::Failed(error.to_string()))?;
    }

    let home = &services.daemon.home;
    let failed = |error: quackd_home::HomeError| StatesError::Failed(error.to_string());
    let copy = home.session_isolated_dir(session.as_str()).map_err(failed)?;
    let request = CheckpointRequest {
        workspace: PathBuf::from(workspace),
        copy: is_isolated.then_some(copy),
        directory: home.session_checkpoints_dir(session.as_str(), is_isolated).map_err(failed)?,
        home: services.daemon.user_home.clone(),
        hidden,
        max_files: if is_isolated { MAX_RECORDED_COPY } else { MAX_RECORDED_WORKSPACE },
        action,
    };

    let isolation = Rc::clone(&services.children.isolation);
    match isolation.run_on_states(request).await {
        Ok(FromIsolate::Failed { text }) => Err(StatesError::Failed(text)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(StatesError::Failed(error.to_string())),
    }
}
