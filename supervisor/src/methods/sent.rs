//! Copies of isolated sessions that are sent to another machine: moves them there and back, and keeps the rule which one is
//! newer. `isolated.rs` does the work on the copy here.
//!
//! The session changes the copy there, so each comparison brings that one here first. A refresh changes the copy here while
//! no worker runs. Until the result has arrived there, the session's record says that the copy there is stale, and no
//! worker starts.

use super::Caller;
use super::copies::{copy_limits, make_copy, run, unusable};
use crate::children::errands::MovingCopy;
use crate::children::{Evict, EvictionReason};
use crate::clock::ms;
use crate::engines::{any_argv, engine_argv, keeps_files};
use crate::errors::{MethodError, RunningWork};
use crate::registry::SessionChange;
use crate::session::FoundSession;
use crate::session::far_client::client_variables;
use crate::session::owner::Owner;
use crate::session::worker::SetIsolated;
use quackd_protocol::SessionId;
use quackd_protocol::client::IsolatedParams;
use quackd_protocol::far::{FarStart, FarWorkspace};
use quackd_protocol::far_errand::{
    FromErrand, MAX_ERRAND_MS, SendErrand, SendLimits, SendWork, SentErrand, ToErrand,
};
use quackd_protocol::isolate::{
    CopiedTree, FromIsolate, IsolateTask, IsolatedChoice, IsolatedReport, PackedTree, SENT_FILE,
    SentCopy,
};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Maximum wait for the login environment.
const LOGIN_LIMIT: Duration = Duration::from_secs(3);

/// Time to delete the copy of a deleted session, with the start of the engine's client.
const REMOVE_LIMIT: Duration = Duration::from_secs(30);

/// Place of the copy of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentPlace<'a> {
    pub(super) session: &'a SessionId,
    pub(super) far: &'a FarWorkspace,
    /// As [`SessionIdentity::created`](crate::session::identity::SessionIdentity::created).
    pub(super) created: Option<&'a str>,
}

/// Returns the place for `sendTo`, which is `ENGINE` or `ENGINE:TARGET`. Its path is not known yet.
pub(super) fn place_of(send_to: &str, caller: &Caller) -> Result<FarWorkspace, MethodError> {
    let (engine, target) = send_to.split_once(':').unwrap_or((send_to, ""));
    let far = FarWorkspace::new(engine, target, "/")?;
    let daemon = &caller.services.daemon;
    // An unknown engine and a target that does not fit are refused before the copy is made.
    any_argv(daemon, &far, "checked", "")?;
    if !keeps_files(daemon, engine) {
        let place = far.place().to_owned();
        return Err(MethodError::KeepsNoFiles { engine: engine.to_owned(), place });
    }
    Ok(far)
}

/// Returns the permit to move the copy of a session.
pub(super) fn begin(session: &SessionId, caller: &Caller) -> Result<MovingCopy, MethodError> {
    let errands = &caller.services.sessions.children.errands;
    errands.move_copy(session).ok_or(MethodError::CopyMoves)
}

/// Sends a new copy. Notes in it where the session works. Returns the sent bytes.
///
/// # Errors
/// The copy was not sent, and the directory there is removed if it can be reached.
pub(super) async fn send_new(
    place: SentPlace<'_>,
    workspace: &str,
    copied: &mut CopiedTree,
    caller: &Caller,
) -> Result<u64, MethodError> {
    let sent = async {
        copied.notes.extend(pack(place.session, workspace, true, caller).await?.notes);
        put(place, true, caller).await
    };
    let SentErrand { path, bytes, .. } = match sent.await {
        Ok(sent) => sent,
        Err(error) => {
            remove(place, caller).await.ok();
            return Err(MethodError::NotSent(error));
        }
    };
    let far = FarWorkspace { path, ..place.far.clone() };
    copied.sent = Some(SentCopy { place: far.to_string(), is_stale: false });
    Ok(bytes)
}

/// Packs the copy here for the other machine.
async fn pack(
    session: &SessionId,
    workspace: &str,
    is_new: bool,
    caller: &Caller,
) -> Result<PackedTree, String> {
    let services = &caller.services.sessions;
    let (max_files, max_bytes) = copy_limits(services);
    let task = IsolateTask::Pack { is_far: false, is_new, max_files, max_bytes };
    match run(services, session, workspace, task).await {
        Ok(FromIsolate::Packed(packed)) => Ok(packed),
        Ok(_) => Err(unusable().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends the packed copy, and unpacks it there.
async fn put(place: SentPlace<'_>, is_new: bool, caller: &Caller) -> Result<SentErrand, String> {
    let (file, limits) = (file_of(place.session, caller)?, limits(caller));
    let work = SendWork::Put { file, is_new, limits };
    errand(place, work, MAX_ERRAND_MS, caller).await
}

/// Brings the copy of a session here, unless the one here is newer. Does nothing for a session on this machine.
///
/// # Errors
/// `NotFetched`: the copy here is as before, or has the older state of single files, which the next call changes.
pub(super) async fn fetch(found: &FoundSession, caller: &Caller) -> Result<(), MethodError> {
    let Some(sent) = found.sent().filter(|sent| !sent.is_stale) else { return Ok(()) };
    fetch_from(found, sent, caller).await.map_err(MethodError::NotFetched)
}

async fn fetch_from(found: &FoundSession, sent: &SentCopy, caller: &Caller) -> Result<(), String> {
    let session = &found.session_id;
    let far = FarWorkspace::of(&sent.place).ok_or("the record of its place is damaged")?;
    let place = SentPlace { session, far: &far, created: found.created.as_deref() };
    let (file, limits) = (file_of(session, caller)?, limits(caller));
    errand(place, SendWork::Take { file, limits }, MAX_ERRAND_MS, caller).await?;

    let SendLimits { max_files, max_bytes } = limits;
    let task = IsolateTask::Unpack { is_far: false, is_new: false, max_files, max_bytes };
    let services = &caller.services.sessions;
    match run(services, session, &found.workspace_path, task).await {
        Ok(FromIsolate::Unpacked {}) => {
            services.pool.copies.notify_write(session);
            Ok(())
        }
        Ok(_) => Err(unusable().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Prevents workers of an idle session from starting, until [`update`]. Returns false for a session on this machine.
pub(super) async fn hold(found: &FoundSession, caller: &Caller) -> Result<bool, MethodError> {
    let Some(sent) = found.sent() else { return Ok(false) };
    // Only in memory: after a restart of the daemon, the copy there is still the newer one.
    let held = SentCopy { is_stale: true, ..sent.clone() };
    tell(found, held).await?;
    found.actors.worker.send(Evict(EvictionReason::Refreshed)).await?;

    let worker = &caller.services.sessions.table.snapshot(&found.session_id).worker;
    let running = worker.running();
    if !running.is_none() {
        tell(found, sent.clone()).await?;
        return Err(MethodError::FilesInUse { running, can_force: false });
    }
    Ok(true)
}

/// Ends [`hold`] without a change.
async fn release(found: &FoundSession) -> Result<(), MethodError> {
    match found.sent() {
        Some(sent) => tell(found, sent.clone()).await,
        None => Ok(()),
    }
}

async fn tell(found: &FoundSession, sent: SentCopy) -> Result<(), MethodError> {
    let copied = found.isolated.clone().unwrap_or_default();
    Ok(found.actors.worker.send(SetIsolated(CopiedTree { sent: Some(sent), ..copied })).await?)
}

/// Records whether the copy there is stale, and tells the worker's actor.
async fn record(
    found: &FoundSession,
    copied: CopiedTree,
    is_stale: bool,
    caller: &Caller,
) -> Result<CopiedTree, MethodError> {
    let sent = found.sent().map(|sent| SentCopy { is_stale, ..sent.clone() });
    let copied = CopiedTree { sent, ..copied };
    caller.change(&found.session_id, SessionChange::Isolated(copied.clone())).await?;
    found.actors.worker.send(SetIsolated(copied.clone())).await?;
    Ok(copied)
}

/// Brings the changes of the workspace into a copy that was sent: first here, then there.
pub(super) async fn refresh(
    choice: IsolatedChoice,
    params: &IsolatedParams,
    found: &FoundSession,
    caller: &Caller,
) -> Result<IsolatedReport, MethodError> {
    let services = &caller.services.sessions;
    let (merge, dry_run) = (params.merge, params.dry_run == Some(true));
    let hidden = services.daemon.config.sandbox.hidden.value.iter().map(PathBuf::from).collect();
    let (max_files, max_bytes) = copy_limits(services);
    let keeps_git = false;
    let task =
        IsolateTask::Refresh { choice, merge, dry_run, hidden, keeps_git, max_files, max_bytes };
    let (session, workspace) = (&found.session_id, found.workspace_path.as_str());

    let refreshed = async {
        match run(services, session, workspace, task).await? {
            FromIsolate::Compared(report) => Ok(report),
            _ => Err(unusable()),
        }
    };
    if dry_run {
        fetch(found, caller).await?;
        return refreshed.await;
    }

    hold(found, caller).await?;
    if let Err(error) = fetch(found, caller).await {
        release(found).await?;
        return Err(error);
    }
    let was_stale = found.sent().is_some_and(|sent| sent.is_stale);
    let copied = found.isolated.clone().unwrap_or_default();
    // From now on the copy here has everything, and may become newer.
    record(found, copied.clone(), true, caller).await?;
    let report = match refreshed.await {
        Ok(report) => report,
        Err(error) => {
            // An interrupted refresh may have changed some files, and is taken back by the next command.
            record(found, copied, true, caller).await?;
            return Err(error);
        }
    };
    if report.written || was_stale {
        services.pool.copies.notify_write(session);
        // Only what differs: the copy there has files that are never fetched.
        send_again(found, copied, false, caller).await?;
    } else {
        record(found, copied, false, caller).await?;
    }
    Ok(report)
}

/// Makes a new copy, and sends it in place of the one there. Without a new copy, the session goes on with that one.
pub(super) async fn discard(
    found: &FoundSession,
    caller: &Caller,
) -> Result<CopiedTree, MethodError> {
    let services = &caller.services.sessions;
    let hidden = services.daemon.config.sandbox.hidden.value.iter().map(PathBuf::from).collect();
    let before = found.isolated.clone().unwrap_or_default();
    let was_stale = found.sent().is_some_and(|sent| sent.is_stale);
    // Before the first change: after a crash, the session must not go on with what was discarded.
    record(found, before.clone(), true, caller).await?;
    let made = make_copy(services, &found.session_id, &found.workspace_path, hidden).await;
    let copied = match made {
        Ok(copied) => record(found, copied, true, caller).await?,
        Err(error) => {
            record(found, before, was_stale, caller).await?;
            return Err(error);
        }
    };
    send_again(found, copied, true, caller).await
}

/// Sends the copy here to the place of the session, which is recorded as stale until then. With `is_new` the copy there is
/// made again.
///
/// # Errors
/// `NotPut`. The session runs nothing until a later call succeeds.
async fn send_again(
    found: &FoundSession,
    copied: CopiedTree,
    is_new: bool,
    caller: &Caller,
) -> Result<CopiedTree, MethodError> {
    let session = &found.session_id;
    let far = found.sent().and_then(|sent| FarWorkspace::of(&sent.place));
    let sent = async {
        let far = far.ok_or("the record of its place is damaged")?;
        let packed = pack(session, &found.workspace_path, is_new, caller).await?;
        let created = found.created.as_deref();
        put(SentPlace { session, far: &far, created }, packed.is_whole, caller).await
    };
    sent.await.map_err(MethodError::NotPut)?;
    record(found, copied, false, caller).await
}

/// Deletes the copy of a session there. A failure is logged.
///
/// # Errors
/// The reason, for the user.
pub(super) async fn remove(place: SentPlace<'_>, caller: &Caller) -> Result<(), String> {
    let removed = errand(place, SendWork::Remove {}, ms(REMOVE_LIMIT), caller).await.map(drop);
    removed.inspect_err(|error| {
        let (session, place) = (place.session, place.far.shown());
        tracing::warn!(%session, place, error, "the copy of a session was left on the other machine");
    })
}

fn limits(caller: &Caller) -> SendLimits {
    let (max_files, max_bytes) = copy_limits(&caller.services.sessions);
    SendLimits { max_files, max_bytes }
}

fn file_of(session: &SessionId, caller: &Caller) -> Result<PathBuf, String> {
    let home = &caller.services.sessions.daemon.home;
    let directory = home.session_isolated_dir(session.as_str());
    directory.map(|directory| directory.join(SENT_FILE)).map_err(|error| error.to_string())
}

/// Carries out an errand for the copy of a session.
async fn errand(
    place: SentPlace<'_>,
    work: SendWork,
    limit_ms: u64,
    caller: &Caller,
) -> Result<SentErrand, String> {
    let services = &caller.services.sessions;
    let SentPlace { session, far, created } = place;
    // Another name than that of the session, whose worker may run: the engine ends by name what was left. What it created
    // has the name of the session.
    let name = if created.is_some() { session.to_string() } else { format!("{session}-copy") };
    let argv = engine_argv(&services.daemon, far, &name, created).map_err(|why| why.to_string())?;
    let stop = if created.is_some() { Vec::new() } else { argv.stop };
    let login = services.children.login.env_for_worker(LOGIN_LIMIT).await;
    let env = client_variables(services, &Owner::new(&caller.registry), login).await;
    let far = FarStart {
        place: far.place().to_owned(),
        start: argv.start,
        resume: Vec::new(),
        stop,
        poll: Vec::new(),
        program: argv.program,
        env: env.map_err(|error| error.to_string())?,
        grace_ms: 0,
        queue_ms: ms(services.daemon.config.far.queue.value),
    };
    let errand = SendErrand { far, session: session.to_string(), work, limit_ms };
    let errands = Rc::clone(&services.children.errands);
    match errands.carry_out(ToErrand::Send(Box::new(errand))).await {
        Ok(FromErrand::Sent(sent)) => Ok(sent),
        Ok(_) => Err("the process that works with the engine gave another answer".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Refuses an action that changes the copy while the session runs something.
pub(super) fn check_idle(running: RunningWork) -> Result<(), MethodError> {
    if running.is_none() {
        Ok(())
    } else {
        Err(MethodError::FilesInUse { running, can_force: false })
    }
}
