//! `follow` and `unfollow`: the events of a session, from now on or from a given number on.

use super::state::{agent_state, ask_agent, is_running, worker_state};
use super::{Caller, Serve, approvals as methods};
use crate::errors::MethodError;
use crate::events::FollowStarted;
use crate::registry::Purpose;
use crate::wire::reference;
use quackd_protocol::client::{FollowDataOf, FollowParams, NoData, UnfollowParams};
use serde_json::value::RawValue;
use std::time::Duration;

/// Timeout for the size of the history file, because the disk may hang. The size is for display only.
const HISTORY_LIMIT: Duration = Duration::from_secs(2);

impl Serve<FollowParams> for Caller {
    async fn serve(
        &self,
        params: FollowParams,
    ) -> Result<FollowDataOf<Box<RawValue>>, MethodError> {
        let FollowParams { session_id, since_seq, epoch, answers } = params;
        // Must come before the first await: up to here requests run in the order of their arrival.
        let turn = self.client.next_follow_generation();
        let found = self.find(reference(&session_id), Purpose::Describe).await?;
        let found = found.ok_or(MethodError::NoSessionToFollow)?;

        let home = &self.services.daemon.home;
        let history = home.app_history(found.session_id.as_str());
        let history = history.map(|path| path.display().to_string()).unwrap_or_default();
        let (size, ()) = tokio::join!(size_of(history.clone()), ask_agent(self, &found));

        // The session may have been deleted during the waits.
        self.find(Some(found.session_id.0.clone()), Purpose::Describe).await?;
        if self.client.outbox.is_none() {
            return Err(MethodError::NoStream);
        }

        let events = &self.services.sessions.events;
        // No await from here on: the reply must match the events at the start of the following.
        let FollowStarted { mut following, seq, resync, replayed } =
            events.follow(&found.session_id, since_seq, epoch.as_deref());

        let session = self.services.sessions.table.snapshot(&found.session_id);
        let approvals = &self.services.sessions.approvals;
        // The follower does not get these questions as events, and the user has to answer them.
        let mut open = session.agent.dialogs_before(following.next());
        open.extend(approvals.announced_before(&found.session_id, following.next()));
        following.first = open;
        if answers == Some(true) && methods::may_answer(self) {
            following.answerer = Some(events.answerers.add(Some(found.session_id.clone())));
        }
        self.client.set_following(turn, Some(following));

        Ok(FollowDataOf {
            session_name: found.session_name,
            workspace_path: found.workspace_path,
            is_running: is_running(&session),
            session_state: agent_state(&session.agent),
            app_history_file: history,
            app_history_exists: size.is_some(),
            app_history_size_bytes: size.unwrap_or(0),
            seq,
            epoch: events.epoch().to_owned(),
            resync,
            replayed,
            worker: worker_state(&session.worker, found.restarts),
            session_id: found.session_id,
        })
    }
}

/// Returns the size of a file in bytes. `None` without the file, or if the disk does not respond in time.
async fn size_of(path: String) -> Option<u64> {
    let reading = actix_rt::task::spawn_blocking(move || std::fs::metadata(path));
    let metadata = tokio::time::timeout(HISTORY_LIMIT, reading).await.ok()?.ok()?.ok()?;
    metadata.is_file().then_some(metadata.len())
}

impl Serve<UnfollowParams> for Caller {
    async fn serve(&self, _: UnfollowParams) -> Result<NoData, MethodError> {
        self.disconnect();
        Ok(NoData)
    }
}
