//! What exists, for who deletes what does not: sessions, their histories, and what runs in them.

use super::Registry;
use crate::session::owner::ListWritable;
use crate::session::worker::{Inspect, WorkerHandle};
use actix::prelude::*;
use quackd_home::keep::Known;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a handle may take to say what runs; one that does not say counts as busy.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(2);

impl Handler<ListWritable> for Registry {
    type Result = MessageResult<ListWritable>;

    fn handle(&mut self, _: ListWritable, _: &mut Self::Context) -> Self::Result {
        let workspaces = self.metadata.workspaces.iter().map(|one| PathBuf::from(&one.path));
        let named = self.metadata.sessions.iter();
        let named = named.flat_map(|session| self.policy_of(session).policy.writable_roots);
        let all: BTreeSet<PathBuf> = workspaces.chain(named).collect();
        MessageResult(all.into_iter().collect())
    }
}

/// What exists now.
#[derive(Debug, Message)]
#[rtype(result = "Known")]
pub(crate) struct ListKnown;

impl Handler<ListKnown> for Registry {
    type Result = ResponseFuture<Known>;

    fn handle(&mut self, _: ListKnown, _: &mut Self::Context) -> Self::Result {
        let mut known = Known::default();
        for session in &self.metadata.sessions {
            known.sessions.insert(session.id.0.clone());
            let file = Path::new(&session.pi_session_file).file_name();
            known.pi_files.extend(file.map(|name| name.to_string_lossy().into_owned()));
            let workspaces = &self.metadata.workspaces;
            let workspace = workspaces.iter().find(|one| one.id == session.workspace_id);
            known.workspaces.extend(workspace.map(|workspace| workspace.path.clone()));
        }
        let handles: Vec<(String, Addr<WorkerHandle>)> =
            self.handles.iter().map(|(id, handle)| (id.0.clone(), handle.clone())).collect();
        Box::pin(async move {
            for (id, handle) in handles {
                let described =
                    handle.send(Inspect).timeout(DESCRIBE_LIMIT).await.map(|it| it.info);
                if !described.as_ref().is_ok_and(|it| it.calls.is_empty() && it.jobs.is_empty()) {
                    known.busy.insert(id.clone());
                }
                if !described.is_ok_and(|it| it.state == "absent" && it.monitor_pid.is_none()) {
                    known.live.insert(id);
                }
            }
            known
        })
    }
}
