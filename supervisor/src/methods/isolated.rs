//! `quack.isolated`: compares the private copy of an isolated session with its workspace, applies its changes, takes them
//! back, or makes a new copy; lists and restores states of a session's files. Also makes the copy of a new session.

use super::attach::named;
use super::copies::{MAX_REASON, change_files, copy_limits, make_copy, run, unusable};
use super::find::label;
use super::{Caller, Serve, sent};
use crate::children::errands::MovingCopy;
use crate::children::{Evict, EvictionReason};
use crate::errors::{MethodError, RunningWork};
use crate::registry::{Purpose, SessionChange};
use crate::session::FoundSession;
use crate::session::checkpoints::{self, SessionFiles, StatesError, records};
use crate::session::services::SessionServices;
use crate::session::worker::SetIsolated;
use quackd_home::Home;
use quackd_protocol::SessionId;
use quackd_protocol::client::{IsolatedAction, IsolatedData, IsolatedParams};
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::isolate::{
    ApplyOutcome, Checkpoint, CheckpointAction, CopiedTree, FromIsolate, IsolateTask,
    IsolatedChoice, IsolatedCommits, IsolatedReport,
};
use serde_json::json;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// Most paths of one request.
const MAX_PATHS: usize = 10_000;

impl Serve<IsolatedParams> for Caller {
    async fn serve(&self, params: IsolatedParams) -> Result<IsolatedData, MethodError> {
        let action = params.action.ok_or(MethodError::NoIsolatedAction)?;
        let only_reads = matches!(action, IsolatedAction::Diff | IsolatedAction::Checkpoints);
        if !only_reads && !self.is_local() {
            let page = self.client.page.get().filter(|_| action != IsolatedAction::Refresh);
            match page {
                Some(page) if page.rights.apply => {}
                Some(_) => return Err(MethodError::PageRight("apply")),
                None => return Err(MethodError::LocalIsolated),
            }
        }

        let (found, _moving) = open(&params, self).await?;
        let services = &self.services.sessions;
        let running = work_in(&found.session_id, action, self);
        let takes_commits = params.commits == Some(true);
        check_request(action, &params, &running)?;

        let session_id = found.session_id.clone();
        let mut data = IsolatedData {
            label: label(self, &session_id).await?,
            session_id: session_id.clone(),
            report: IsolatedReport::default(),
            copied: None,
            commits: None,
            checkpoints: Vec::new(),
            place: found
                .sent()
                .and_then(|sent| FarWorkspace::of(&sent.place))
                .map(|far| far.shown()),
        };

        let task = match action {
            IsolatedAction::Discard => {
                data.copied = Some(discard(&found, self).await?);
                return Ok(data);
            }
            IsolatedAction::Checkpoints | IsolatedAction::Restore => {
                (data.report, data.checkpoints) = states(&found, action, params, self).await?;
                return Ok(data);
            }
            IsolatedAction::Refresh if found.sent().is_some() => {
                sent::check_idle(running)?;
                let choice = choice(params.clone(), Path::new(&found.workspace_path))?;
                data.report = sent::refresh(choice, &params, &found, self).await?;
                return Ok(data);
            }
            IsolatedAction::Diff | IsolatedAction::Apply if takes_commits => {
                sent::fetch(&found, self).await?;
                let writes = action == IsolatedAction::Apply && params.dry_run != Some(true);
                let reference = writes.then(|| reference_of(&data.label, &session_id));
                data.commits = Some(commits(&found, reference, services).await?);
                return Ok(data);
            }
            IsolatedAction::Refresh => refresh(params, &found, running.is_none(), self).await?,
            IsolatedAction::Undo => task(action, params, Path::new(&found.workspace_path))?,
            IsolatedAction::Diff | IsolatedAction::Apply => {
                sent::fetch(&found, self).await?;
                task(action, params, Path::new(&found.workspace_path))?
            }
        };

        let answer = run(services, &session_id, &found.workspace_path, task).await?;
        let FromIsolate::Compared(report) = answer else { return Err(unusable()) };
        if report.written {
            note_written(action, &report, &found, services).await?;
        }
        data.report = report;
        Ok(data)
    }
}

/// Reports what was written.
async fn note_written(
    action: IsolatedAction,
    report: &IsolatedReport,
    found: &FoundSession,
    services: &SessionServices,
) -> Result<(), MethodError> {
    const NAME: &str = "isolated_applied";
    if action == IsolatedAction::Refresh {
        services.pool.copies.notify_write(&found.session_id);
        // A call during the refresh may have started a worker, which knows the earlier repository.
        evict(found).await?;
    } else {
        let (files, is_undo) = (report.files.len(), action == IsolatedAction::Undo);
        let event = move || json!({ "type": NAME, "files": files, "undone": is_undo });
        services.events.publish(&found.session_id, NAME, event);
    }
    Ok(())
}

/// Checks that the parameters fit to the action, and that it disturbs no running work.
fn check_request(
    action: IsolatedAction,
    params: &IsolatedParams,
    running: &RunningWork,
) -> Result<(), MethodError> {
    let takes_commits = params.commits == Some(true);
    let has_other = params.merge.is_some() || params.expect.is_some() || !params.paths.is_empty();
    let may_have = matches!(action, IsolatedAction::Diff | IsolatedAction::Apply) && !has_other;
    if takes_commits && !may_have {
        return Err(MethodError::CommitsAction);
    }

    let only_reads = matches!(action, IsolatedAction::Diff | IsolatedAction::Checkpoints);
    let is_forced = params.force == Some(true) && action != IsolatedAction::Discard;
    // Commits never change again, so other work may go on.
    let may_run = only_reads || is_forced || takes_commits;
    if !may_run && !running.is_none() {
        let (running, can_force) = (*running, action != IsolatedAction::Discard);
        return Err(MethodError::FilesInUse { running, can_force });
    }
    Ok(())
}

/// Finds the session, with the permit to move its copy if that was sent.
async fn open(
    params: &IsolatedParams,
    caller: &Caller,
) -> Result<(FoundSession, Option<MovingCopy>), MethodError> {
    let found = find(params, caller).await?;
    if found.sent().is_none() {
        return Ok((found, None));
    }
    let moving = sent::begin(&found.session_id, caller)?;
    // Read again: an earlier command may have changed the record until now.
    let found = caller.session(Some(found.session_id.0.clone()), Purpose::Look).await?;
    Ok((found, Some(moving)))
}

/// Evicts the session's worker before or after a refresh. Returns false if there is none, or if it is busy.
async fn evict(found: &FoundSession) -> Result<bool, MethodError> {
    Ok(found.actors.worker.send(Evict(EvictionReason::Refreshed)).await?)
}

/// Prepares to bring the changes of the workspace into the copy.
async fn refresh(
    params: IsolatedParams,
    found: &FoundSession,
    is_idle: bool,
    caller: &Caller,
) -> Result<IsolateTask, MethodError> {
    let (merge, dry_run) = (params.merge, params.dry_run == Some(true));
    let choice = choice(params, Path::new(&found.workspace_path))?;
    let hidden = hidden_of(caller, &found.session_id).await?;
    let mut keeps_git = !is_idle;
    if is_idle && !dry_run {
        // The worker protects names of the present repository of the copy, which may be made again.
        keeps_git = !evict(found).await?
            && caller.services.sessions.table.snapshot(&found.session_id).worker.is_up();
    }

    let (max_files, max_bytes) = copy_limits(&caller.services.sessions);
    Ok(IsolateTask::Refresh { choice, merge, dry_run, hidden, keeps_git, max_files, max_bytes })
}

/// Lists the session's commits, and takes them into the workspace's repository if `reference` names where.
async fn commits(
    found: &FoundSession,
    reference: Option<String>,
    services: &Rc<SessionServices>,
) -> Result<IsolatedCommits, MethodError> {
    let (session, workspace) = (&found.session_id, found.workspace_path.as_str());
    let export = IsolateTask::ExportCommits { writes: reference.is_some() };
    let exported = run(services, session, workspace, export).await?;
    let FromIsolate::Commits(commits) = exported else { return Err(unusable()) };

    let Some(reference) = reference.filter(|_| !commits.commits.is_empty()) else {
        return Ok(commits);
    };

    let task = IsolateTask::ImportCommits { reference, commits };
    let imported = run(services, session, workspace, task).await?;
    let FromIsolate::Commits(commits) = imported else { return Err(unusable()) };
    Ok(commits)
}

/// Returns the reference for the commits of a session. Git forbids some characters and beginnings of names.
fn reference_of(label: &str, session: &SessionId) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(is_plain)
    };
    if label.split('/').all(is_part) {
        format!("refs/quack/{label}")
    } else {
        format!("refs/quack/{session}")
    }
}

/// Lists the states of the session's files, or restores one.
async fn states(
    found: &FoundSession,
    action: IsolatedAction,
    params: IsolatedParams,
    caller: &Caller,
) -> Result<(IsolatedReport, Vec<Checkpoint>), MethodError> {
    let services = &caller.services.sessions;
    let is_isolated = found.isolated.is_some();
    if found.sent().is_some() {
        return Err(MethodError::SentStates);
    }
    if found.is_far() || !records(services, is_isolated) {
        return Err(MethodError::NoCheckpoints);
    }

    let (number, dry_run) = (params.number, params.dry_run == Some(true));
    let action = match action {
        IsolatedAction::Restore => CheckpointAction::Restore {
            number: number.ok_or(MethodError::NoCheckpointNumber)?,
            choice: choice(params, Path::new(&found.workspace_path))?,
            dry_run,
        },
        _ => CheckpointAction::List {},
    };
    let files = SessionFiles {
        session: found.session_id.clone(),
        workspace: found.workspace_path.clone(),
        is_isolated,
        hidden: hidden_of(caller, &found.session_id).await?,
    };

    match checkpoints::run(services, files, action).await {
        Ok(FromIsolate::Compared(report)) => {
            if is_isolated && report.written {
                services.pool.copies.notify_write(&found.session_id);
            }
            Ok((report, Vec::new()))
        }
        Ok(FromIsolate::Listed(listed)) => Ok((IsolatedReport::default(), listed)),
        Ok(_) => Err(unusable()),
        Err(StatesError::Failed(text)) => {
            Err(MethodError::Isolated(message_line(&text, MAX_REASON)))
        }
        Err(StatesError::Overloaded) => Err(MethodError::Overloaded),
    }
}

/// Finds the session. It must be isolated, unless the action is about states of its files.
async fn find(params: &IsolatedParams, caller: &Caller) -> Result<FoundSession, MethodError> {
    let reference = named(params.session_id.as_deref(), None, caller).await?;
    let found = caller.session(reference, Purpose::Look).await?;

    if found.is_far() && found.sent().is_none() {
        return Err(MethodError::FarStates);
    }
    let is_of_any =
        matches!(params.action, Some(IsolatedAction::Checkpoints | IsolatedAction::Restore));
    if found.isolated.is_none() && !is_of_any {
        return Err(MethodError::NotIsolated(label(caller, &found.session_id).await?));
    }
    Ok(found)
}

/// Converts the parameters of an action that does not discard.
fn task(
    action: IsolatedAction,
    params: IsolatedParams,
    workspace: &Path,
) -> Result<IsolateTask, MethodError> {
    let (merge, expect) = (params.merge, params.expect.clone());
    let (dry_run, text) = (params.dry_run == Some(true), params.text == Some(true));
    let choice = choice(params, workspace)?;
    Ok(match action {
        IsolatedAction::Apply => IsolateTask::Apply { choice, merge, dry_run, expect },
        IsolatedAction::Undo => IsolateTask::Undo {},
        _ => IsolateTask::Diff { choice, text },
    })
}

/// Returns the chosen paths, relative to the workspace.
pub(super) fn choice(
    params: IsolatedParams,
    workspace: &Path,
) -> Result<IsolatedChoice, MethodError> {
    let paths = |paths: Vec<String>| -> Result<Vec<PathBuf>, MethodError> {
        if MAX_PATHS < paths.len() {
            return Err(MethodError::IsolatedPath);
        }
        paths.iter().map(|path| relative(path, workspace)).collect()
    };
    Ok(IsolatedChoice { paths: paths(params.paths)?, protected: paths(params.protected)? })
}

/// Returns a path relative to the workspace without dots. The workspace itself is empty, and means everything.
fn relative(path: &str, workspace: &Path) -> Result<PathBuf, MethodError> {
    let path = Path::new(path);
    let path = path.strip_prefix(workspace).unwrap_or(path);

    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(MethodError::IsolatedPath);
            }
        }
    }
    Ok(clean)
}

/// Refuses to delete an isolated session with changes that are not applied, unless `force` is true.
pub(super) async fn check_applied(
    caller: &Caller,
    session: &str,
    label: &str,
    force: bool,
) -> Result<(), MethodError> {
    let found = caller.find(Some(session.to_owned()), Purpose::Describe).await?;
    let Some(found) = found.filter(|found| found.isolated.is_some()) else { return Ok(()) };
    let moving = found.sent().map(|_| sent::begin(&found.session_id, caller)).transpose()?;
    if moving.is_some() && !force {
        let found = caller.session(Some(found.session_id.0.clone()), Purpose::Describe).await?;
        sent::fetch(&found, caller).await?;
    }
    // Also with `force`, because the comparison takes back what an interrupted command wrote.
    match n_changes(&found, caller).await {
        n if n == 0 || force => Ok(()),
        n => Err(MethodError::Unapplied { label: label.to_owned(), n }),
    }
}

/// Returns the number of changes that are not applied, and takes back what an interrupted command wrote: its record goes
/// with the copy. 0 for a copy that cannot be compared, such as one without its workspace.
async fn n_changes(found: &FoundSession, caller: &Caller) -> u64 {
    let services = &caller.services.sessions;
    let task = IsolateTask::Diff { choice: IsolatedChoice::default(), text: false };
    let compared = run(services, &found.session_id, &found.workspace_path, task).await;
    let Ok(FromIsolate::Compared(report)) = compared else { return 0 };

    let n = report.files.iter().filter(|file| file.outcome != ApplyOutcome::Same).count();
    let n = u64::try_from(n).unwrap_or(u64::MAX).saturating_add(report.more);
    // Commits go with the copy too.
    n.saturating_add(u64::from(report.own_references))
}

/// Returns the running work that an action could disturb.
fn work_in(session: &SessionId, action: IsolatedAction, caller: &Caller) -> RunningWork {
    let snapshot = caller.services.sessions.table.snapshot(session);
    // The user applies the work of an agent on a terminal while it waits for its next prompt.
    if action == IsolatedAction::Apply {
        snapshot.worker.running_without_terminals()
    } else {
        snapshot.worker.running()
    }
}

/// Throws the copy of an idle session away and makes a new one.
async fn discard(found: &FoundSession, caller: &Caller) -> Result<CopiedTree, MethodError> {
    // Takes back what an interrupted command wrote. The number does not matter: the copy goes in any case.
    n_changes(found, caller).await;
    if sent::hold(found, caller).await? {
        forget_read_files(&caller.services.sessions, &found.session_id).await;
        return sent::discard(found, caller).await;
    }

    // An idle worker still shows the old copy. Calls from now on wait for the next worker.
    found.actors.worker.send(Evict(EvictionReason::Discarded)).await?;

    forget_read_files(&caller.services.sessions, &found.session_id).await;
    renew_copy(caller, &found.session_id, &found.workspace_path).await
}

/// Deletes the list of the files that the session's tools have read: the new copy may not have them, and a tool would ask
/// to read them again.
pub(super) async fn forget_read_files(services: &SessionServices, session: &SessionId) {
    let forget = Home::forget_read_files_blocking;
    change_files(services, session, forget, "the list of read files is not removed").await;
}

/// Makes the copy of an isolated session again if it has no changes and nothing runs in it: the workspace may have changed
/// since.
pub(super) async fn refresh_copy(caller: &Caller, session: &SessionId) -> Result<(), MethodError> {
    let found = caller.session(Some(session.0.clone()), Purpose::Look).await?;
    if found.sent().is_some() {
        return Ok(());
    }
    let running = caller.services.sessions.table.snapshot(session).worker.running();
    if running.is_none() && n_changes(&found, caller).await == 0 {
        discard(&found, caller).await?;
    }
    Ok(())
}

/// Makes the copy of an isolated session again, and records it.
pub(super) async fn renew_copy(
    caller: &Caller,
    session: &SessionId,
    workspace: &str,
) -> Result<CopiedTree, MethodError> {
    let services = &caller.services.sessions;
    let hidden = hidden_of(caller, session).await?;
    let copied = make_copy(services, session, workspace, hidden).await?;

    caller.change(session, SessionChange::Isolated(copied.clone())).await?;
    let found = caller.session(Some(session.0.clone()), Purpose::Look).await?;
    found.actors.worker.send(SetIsolated(copied.clone())).await?;
    Ok(copied)
}

/// Returns the paths that the session must not see.
async fn hidden_of(caller: &Caller, session: &SessionId) -> Result<Vec<PathBuf>, MethodError> {
    let settings = &caller.services.sessions.daemon.config.sandbox;
    Ok(caller.snapshot().await?.policy(settings, session)?.policy.hidden)
}
