//! `follow` and `unfollow`: what happens in a session, from now on or from a number on.

use super::state::{is_up, worker_state};
use super::{Caller, params};
use crate::errors::MethodError;
use crate::events::Follow;
use crate::registry::{FindSession, Purpose};
use crate::session::worker::Inspect;
use crate::wire::{Request, reference};
use quackd_protocol::client::{FollowDataOf, FollowParams};
use serde_json::value::RawValue;
use std::time::Duration;

/// Our own disk may hang; the history file is information only.
const HISTORY_LIMIT: Duration = Duration::from_secs(2);

pub(super) async fn follow(
    request: &mut Request,
    caller: &Caller,
) -> Result<FollowDataOf<Box<RawValue>>, MethodError> {
    // Before anything is waited for: requests are in order until here.
    let turn = caller.client.take_turn();
    let FollowParams { session_id, since_seq, epoch } = params(request, "follow")?;
    let find = FindSession { reference: reference(&session_id), purpose: Purpose::Describe };
    let found = caller.registry.send(find).await??.ok_or(MethodError::NoSessionToFollow)?;
    let worker = found.handle.send(Inspect).await?.info;
    let home = &caller.services.daemon.home;
    let history = home.app_history(found.session_id.as_str());
    let history = history.map(|path| path.display().to_string()).unwrap_or_default();
    let (size, ()) =
        tokio::join!(size_of(history.clone()), super::state::ask_pi(caller, &found.session_id));

    // It may have been deleted meanwhile.
    let reference = Some(found.session_id.0.clone());
    caller.registry.send(FindSession { reference, purpose: Purpose::Describe }).await??;
    if caller.client.outbox.is_none() {
        return Err(MethodError::NoStream);
    }
    let events = &caller.services.sessions.events;
    // From here on nothing waits: what the answer says of the events is so when they begin to be kept.
    let Follow { mut following, seq, resync, replayed } =
        events.follow(&found.session_id, since_seq, epoch.as_deref());
    let pis = &caller.services.sessions.pis;
    following.tell_first(pis.dialogs(&found.session_id, following.next()));
    let session_state = super::state::shown(pis.state(&found.session_id));
    caller.client.set_following(turn, Some(following));
    Ok(FollowDataOf {
        session_name: found.session_name,
        workspace_path: found.workspace_path,
        is_running: is_up(&worker) || pis.is_running(&found.session_id),
        session_state,
        app_history_file: history,
        app_history_exists: size.is_some(),
        app_history_size_bytes: size.unwrap_or(0),
        seq,
        epoch: events.epoch().to_owned(),
        resync,
        replayed,
        worker: worker_state(worker, found.restarts),
        session_id: found.session_id,
    })
}

async fn size_of(path: String) -> Option<u64> {
    let looked = actix_rt::task::spawn_blocking(move || std::fs::metadata(path));
    let found = tokio::time::timeout(HISTORY_LIMIT, looked).await.ok()?.ok()?.ok()?;
    found.is_file().then_some(found.len())
}

pub(super) fn unfollow(caller: &Caller) {
    caller.leave();
}
