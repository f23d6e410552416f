//! Takes back, after the daemon's start, what commands on copies and recorded states were writing
//! when they ended. Otherwise the next such command of the session would do it, and until then half
//! of an `apply` would be in the workspace.

use crate::methods::run_on_copy;
use crate::registry::{FindSession, Purpose, Registry};
use crate::session::FoundSession;
use crate::session::checkpoints::{self, SessionFiles};
use crate::session::services::SessionServices;
use actix::Addr;
use quackd_protocol::isolate::{
    CheckpointAction, FromIsolate, IsolateTask, IsolatedChoice, UNFINISHED_COPY, UNFINISHED_RESTORE,
};
use std::rc::Rc;
use std::time::Duration;

/// Maximum duration of the look at the directories.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// Finds the sessions and works on one after the other. A failure is logged; the next command of
/// the session tries again.
pub(super) async fn take_back(services: Rc<SessionServices>, registry: Addr<Registry>) {
    let home = services.daemon.home.clone();
    let look = move || home.unfinished_sessions_blocking(&UNFINISHED_COPY, UNFINISHED_RESTORE);
    // A directory that hangs is left to the next command of its session.
    let Ok(unfinished) = services.look(LOOK_LIMIT, look).await else { return };

    for (id, is_restore) in unfinished {
        let find = FindSession { reference: Some(id), purpose: Purpose::Look };
        // The session may have been deleted since.
        let Ok(Ok(Some(session))) = registry.send(find).await else { continue };

        let session_id = &session.session_id;
        match finish(&services, &session, is_restore).await {
            Ok(()) => {
                tracing::info!(session = %session_id, "took back what an interrupted command had written")
            }
            Err(error) => {
                tracing::warn!(session = %session_id, error, "an interrupted command is not taken back yet");
            }
        }
    }
}

async fn finish(
    services: &Rc<SessionServices>,
    session: &FoundSession,
    is_restore: bool,
) -> Result<(), String> {
    let (session_id, workspace) = (&session.session_id, session.workspace_path.as_str());

    if is_restore {
        let files = SessionFiles {
            session: session_id.clone(),
            workspace: workspace.to_owned(),
            is_isolated: session.isolated.is_some(),
            hidden: Vec::new(),
        };
        // Listing the states takes back what an interrupted `restore` had written.
        let listed = checkpoints::run(services, files, CheckpointAction::List {}).await;
        return listed.map(drop).map_err(|error| error.to_string());
    }

    // Opening the copy takes back what was written.
    let task = IsolateTask::Diff { choice: IsolatedChoice::default(), text: false };
    match run_on_copy(services, session_id, workspace, task).await {
        Ok(FromIsolate::Compared(_)) => Ok(()),
        Ok(_) => Err("an unusable answer".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
