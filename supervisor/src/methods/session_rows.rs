//! `quack.session_rows`: the sessions with their processes, as far as they differ from what the client has. For the page
//! of remote control.

use super::ps::processes;
use super::servers::add_servers;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::events::sent_rows::RowChanges;
use crate::registry::catalog::Selection;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    LifeInfo, SessionInfo, SessionRow, SessionRowsData, SessionRowsParams, StatusInfo, UsageInfo,
    WorkerInfo,
};
use quackd_protocol::limits::{ROWS_INTERVAL, ROWS_TIMEOUT};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::time::{Instant, sleep};

impl Serve<SessionRowsParams> for Caller {
    async fn serve(&self, params: SessionRowsParams) -> Result<SessionRowsData, MethodError> {
        let until = Instant::now() + ROWS_TIMEOUT;
        let turn = self.client.sent_rows.begin();
        loop {
            let rows = rows(self).await?;
            let prints = rows.iter().map(|row| (row.session.id.clone(), fingerprint(row)));
            let changes = self.client.sent_rows.update(params.since, prints.collect());

            let RowChanges { revision, is_whole, differs, gone } = changes;
            let differs = rows.into_iter().zip(differs).filter(|(_, differs)| *differs);
            let rows: Vec<SessionRow> = differs.map(|(row, _)| row).collect();
            let has_changed = is_whole || !rows.is_empty() || !gone.is_empty();
            if has_changed || until <= Instant::now() {
                return Ok(SessionRowsData { revision, whole: is_whole, rows, gone });
            }
            sleep(ROWS_INTERVAL).await;
            if !self.client.sent_rows.is_newest(turn) {
                let (rows, gone) = (Vec::new(), Vec::new());
                return Ok(SessionRowsData { revision, whole: false, rows, gone });
            }
        }
    }
}

async fn rows(caller: &Caller) -> Result<Vec<SessionRow>, MethodError> {
    let mut workers = processes(&caller.services, &caller.registry).await?.workers;
    workers.retain(|it| it.pid.is_some() || it.place.is_some() || it.pi.is_some());
    add_servers(&mut workers, caller).await;
    let mut workers: HashMap<SessionId, WorkerInfo> =
        workers.into_iter().map(|worker| (worker.session_id.clone(), worker)).collect();

    let sessions = &caller.services.sessions;
    let row = |session: SessionInfo| SessionRow {
        last_line: sessions.events.last_line(&session.id),
        worker: workers.remove(&session.id),
        session,
    };
    let snapshot = caller.snapshot().await?;
    Ok(snapshot.sessions(&Selection::All, sessions).into_iter().map(row).collect())
}

/// Hashes what a client should learn about. Ages change all the time, and clients compute them.
fn fingerprint(row: &SessionRow) -> u64 {
    let mut row = row.clone();
    without_ages(&mut row.session.status);
    if let Some(worker) = &mut row.worker {
        without_ages(&mut worker.status);
        worker.why.clear();
        // State and crashes are also in other fields.
        worker.life = LifeInfo::default();
        if let Some(pi) = &mut worker.pi {
            (pi.life, pi.rss_kb) = (LifeInfo::default(), None);
            pi.why.clear();
        }
        (worker.rss_kb, worker.idle_ms, worker.latency_ms) = (None, None, None);
        worker.calls.iter_mut().for_each(|call| call.elapsed_ms = 0);
        worker.jobs.iter_mut().for_each(|job| job.elapsed_ms = 0);
        if let Some(UsageInfo { rss_kb, cpu_ms, .. }) = &mut worker.usage {
            (*rss_kb, *cpu_ms) = (*rss_kb / 1024, *cpu_ms / 100);
        }
    }
    let mut hasher = DefaultHasher::new();
    // A row that cannot be written is not sent either.
    serde_json::to_vec(&row).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

fn without_ages(status: &mut StatusInfo) {
    status.status_since = None;
    status.status_why.retain(|c| !c.is_ascii_digit());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn ages_and_memory_are_no_change_and_everything_else_is() {
        let pi =
            json!({ "state": "ready", "rssKb": 1, "why": "for 1 s", "life": { "stateMs": 1 } });
        let worker = json!({
            "sessionId": "s", "sessionName": "n", "workspacePath": "/w", "state": "ready",
            "restarts": 0, "calls": [], "rssKb": 1, "idleMs": 1, "why": "idle for 1 s",
            "life": { "state": "ready", "stateMs": 1, "heartbeatAgeMs": 1 }, "pi": pi,
        });
        let row = json!({
            "id": "s", "name": "n", "workspacePath": "/w", "isActive": false, "isRunning": true,
            "lastActiveAt": "t", "status": "idle", "statusWhy": "idle for 1 s", "lastLine": "a",
            "worker": worker,
        });
        let print = |pointer: &str, value: Value| {
            let mut row = row.clone();
            *row.pointer_mut(pointer).unwrap() = value;
            fingerprint(&serde_json::from_value(row).unwrap())
        };
        let same = print("/id", json!("s"));
        for age in [
            "rssKb",
            "idleMs",
            "life/stateMs",
            "life/heartbeatAgeMs",
            "pi/rssKb",
            "pi/life/stateMs",
        ] {
            assert_eq!(print(&format!("/worker/{age}"), json!(70_000)), same, "{age}");
        }
        for why in ["/statusWhy", "/worker/why", "/worker/pi/why"] {
            assert_eq!(print(why, json!("idle for 90 s")), same, "{why}");
        }
        assert_ne!(print("/lastLine", json!("b")), same);
        assert_ne!(print("/isActive", json!(true)), same);
        assert_ne!(print("/worker/state", json!("failed")), same);
        assert_ne!(print("/worker/restarts", json!(1)), same);
    }
}
