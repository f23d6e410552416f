//! The private copies of isolated sessions: makes, replaces and removes them, and starts the process that works on them.

use super::caller::SAVE_LIMIT;
use crate::errors::{CopyExcess, MethodError};
use crate::session::services::SessionServices;
use quackd_home::{Home, HomeError};
use quackd_protocol::SessionId;
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::isolate::{CopiedTree, FromIsolate, IsolateRequest, IsolateTask, MAX_OUTPUTS};
use std::path::PathBuf;
use std::rc::Rc;

/// Longest reason of the process, in characters.
pub(super) const MAX_REASON: usize = 600;

/// Most isolated sessions. Each copy takes space on the disk.
const MAX_COPIES: usize = 64;

/// Returns the most files and the largest size in bytes of a new copy.
pub(super) fn copy_limits(services: &SessionServices) -> (u64, u64) {
    let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let limits = &services.daemon.config.isolated;
    // A copy that exceeds its disk space at once would be of no use.
    let max_mb = limits.copy_mb.value.min(limits.max_mb.value);
    (number(limits.copy_files.value), number(max_mb).saturating_mul(1024 * 1024))
}

/// Refuses another copy if all copies together exceed their disk space.
pub(super) async fn check_room(
    services: &SessionServices,
    session: &SessionId,
) -> Result<(), MethodError> {
    let excesses = services.pool.copies.excesses(session).await;
    let of_all = excesses.into_iter().find_map(|excess| match excess {
        CopyExcess::All { size, max } => Some(MethodError::CopiesFull { size, max }),
        CopyExcess::Own { .. } | CopyExcess::Unmeasured => None,
    });
    of_all.map_or(Ok(()), Err)
}

/// Makes the private copy of a session, in place of an earlier one. That one stays if the new one cannot be made, for
/// example because the workspace is too large.
pub(super) async fn make_copy(
    services: &Rc<SessionServices>,
    session: &SessionId,
    workspace: &str,
    hidden: Vec<PathBuf>,
) -> Result<CopiedTree, MethodError> {
    let (home, id) = (services.daemon.home.clone(), session.clone());
    let renew = move || {
        if MAX_COPIES <= home.n_other_isolated_blocking(id.as_str()) {
            return Err(MethodError::TooManyCopies);
        }
        home.renew_session_isolated_dir_blocking(id.as_str())
            .map_err(|error| MethodError::Isolated(error.to_string()))
    };
    // A process that records states would write into the directory that goes.
    let paused = services.children.isolation.pause_states().await;
    let paused = paused.ok_or(MethodError::Overloaded)?;
    let renewed = services.look(SAVE_LIMIT, renew).await;
    drop(paused);
    drop(renewed.map_err(|_late| MethodError::Overloaded)??);

    let (max_files, max_bytes) = copy_limits(services);
    let task = IsolateTask::Copy { hidden, max_files, max_bytes };
    let failure = match run(services, session, workspace, task).await {
        Ok(FromIsolate::Copied(mut copied)) => {
            let remove = Home::remove_replaced_isolated_dir_blocking;
            let failure = "replaced copy of a session not removed";
            change_files(services, session, remove, failure).await;
            services.pool.copies.notify_write(session);
            // The process is not trusted with the paths of mounts.
            copied.outputs.truncate(MAX_OUTPUTS);
            copied.sent = None;
            return Ok(copied);
        }
        Ok(_) => unusable(),
        Err(error) => error,
    };
    restore_copy(services, session).await;
    Err(failure)
}

/// Changes files of a session's copy on the blocking pool. A failure is only logged.
pub(super) async fn change_files(
    services: &SessionServices,
    session: &SessionId,
    change: fn(&Home, &str) -> Result<(), HomeError>,
    failure: &str,
) {
    let (home, id) = (services.daemon.home.clone(), session.clone());
    let changed = services.look(SAVE_LIMIT, move || change(&home, id.as_str())).await;
    if let Ok(Err(error)) = changed {
        tracing::warn!(%session, %error, "{failure}");
    }
}

/// Removes a copy that could not be made, and puts back the one that it replaced.
async fn restore_copy(services: &SessionServices, session: &SessionId) {
    // A process that records states would write into the directory that goes.
    let _paused = services.children.isolation.pause_states().await;
    let restore = Home::restore_session_isolated_dir_blocking;
    change_files(services, session, restore, "earlier copy of a session not restored").await;
}

/// Runs one piece of work on the copy of a session.
pub(crate) async fn run(
    services: &Rc<SessionServices>,
    session: &SessionId,
    workspace: &str,
    task: IsolateTask,
) -> Result<FromIsolate, MethodError> {
    let home = &services.daemon.home;
    let directory = home.session_isolated_dir(session.as_str());
    let request = IsolateRequest {
        workspace: PathBuf::from(workspace),
        directory: directory.map_err(|error| MethodError::Isolated(error.to_string()))?,
        home: services.daemon.user_home.clone(),
        task,
    };

    let answer = Rc::clone(&services.children.isolation).run(request).await;
    match answer.map_err(|error| MethodError::Isolated(error.to_string()))? {
        FromIsolate::Failed { text } => Err(MethodError::Isolated(message_line(&text, MAX_REASON))),
        answer => Ok(answer),
    }
}

/// Removes the copy of a session that was not created.
pub(super) async fn remove_copy(services: &SessionServices, session: &SessionId) {
    let remove = Home::remove_session_isolated_dir_blocking;
    change_files(services, session, remove, "copy of a session not removed").await;
}

/// Error of a frame that answers something else.
pub(super) fn unusable() -> MethodError {
    MethodError::Isolated(
        "the process that works on copies gave an answer that cannot be used".to_owned(),
    )
}
