//! `quack ps`: the process tree, from the supervisor to the calls in flight and the background jobs.

use crate::age::{local, span};
use crate::connect::{REPLY_TIMEOUT, connect_only};
use crate::display;
use crate::exit::Exit;
use crate::output::{BOLD, DIM, Output, RED};
use jiff::tz::TimeZone;
use quackd_client::{Client, ClientError};
use quackd_protocol::client::{CallInfo, PsData, RunningJob, SupervisorInfo, WorkerInfo};
use serde_json::json;
use std::time::Duration;

/// Runs the verb. Starts no daemon: what is not running has no processes.
pub(crate) async fn run(output: Output) -> anyhow::Result<Exit> {
    let daemon = connect_only(output).await?;
    let mut data = ask(&daemon.client).await?;
    if output.is_json() {
        let zone = TimeZone::system();
        data.supervisor.started_at = local(&data.supervisor.started_at, &zone);
        for started_at in data.workers.iter_mut().filter_map(|worker| worker.started_at.as_mut()) {
            *started_at = local(started_at, &zone);
        }
        output.document(&data)?;
    } else {
        let home_dir = std::env::var("HOME").ok();
        output.text(&tree(&data, home_dir.as_deref()))?;
    }
    Ok(Exit::Ok)
}

/// Asks for the process tree.
///
/// # Errors
/// As [`Client::request`].
pub(crate) async fn ask(client: &Client) -> Result<PsData, ClientError> {
    client.request("quack.ps", json!({}), REPLY_TIMEOUT).await
}

/// The process tree as text, every line ended.
pub(crate) fn tree(data: &PsData, home_dir: Option<&str>) -> String {
    let mut text = supervisor_line(&data.supervisor);
    let last = data.workers.len().saturating_sub(1);
    for (i, worker) in data.workers.iter().enumerate() {
        let (branch, rail) = if i == last { ("└─", "  ") } else { ("├─", "│ ") };
        text.push_str(&format!("{branch} {}\n", session_line(worker, home_dir)));
        text.push_str(&format!("{rail} {DIM}{}{DIM:#}\n", process_line(worker)));
        if let Some(death) = &worker.last_death {
            let death = display::first_line(death, 100);
            text.push_str(&format!("{rail} {RED}last worker: {death}{RED:#}\n"));
        }
        for call in &worker.calls {
            text.push_str(&format!("{rail} └─ {}\n", call_line(call)));
        }
        for job in &worker.jobs {
            text.push_str(&format!("{rail} └─ {}\n", job_line(job)));
        }
    }
    text
}

fn supervisor_line(supervisor: &SupervisorInfo) -> String {
    let uptime = span(Duration::from_millis(supervisor.uptime));
    let memory = supervisor
        .rss_kb
        .map(|kb| format!("  {}", display::bytes(kb.saturating_mul(1024))))
        .unwrap_or_default();
    let clients = display::count(supervisor.clients, "client");
    let sessions = display::count(supervisor.sessions, "session");
    format!(
        "{BOLD}supervisor{BOLD:#} {}  up {uptime}{memory}  {clients}  {sessions}\n",
        supervisor.pid
    )
}

fn session_line(worker: &WorkerInfo, home_dir: Option<&str>) -> String {
    let name = display::plain(&worker.session_name);
    let path = display::path(&worker.workspace_path, home_dir);
    let mut line = format!("{BOLD}{name}{BOLD:#}  {path}  {}", display::plain(&worker.state));
    for word in [&worker.tier, &worker.policy].into_iter().flatten() {
        line.push_str("  ");
        line.push_str(&display::plain(word));
    }
    line
}

fn process_line(worker: &WorkerInfo) -> String {
    let mut line = match (worker.monitor_pid, worker.pid) {
        (Some(monitor), Some(pid)) => format!("monitor {monitor} → worker {pid}"),
        (None, Some(pid)) => format!("worker {pid}"),
        (Some(monitor), None) => format!("monitor {monitor}"),
        (None, None) => "no process".to_owned(),
    };
    if worker.restarts != 0 {
        let crashes = usize::try_from(worker.restarts).unwrap_or(usize::MAX);
        line.push_str("  ");
        line.push_str(&match crashes {
            1 => "1 crash".to_owned(),
            n => format!("{n} crashes"),
        });
    }
    line
}

fn call_line(call: &CallInfo) -> String {
    let tool = display::plain(&call.tool);
    let elapsed = span(Duration::from_millis(call.elapsed_ms));
    let deadline = span(Duration::from_millis(call.deadline_ms));
    format!("{tool}  {elapsed} of {deadline}")
}

fn job_line(job: &RunningJob) -> String {
    let id = display::plain(&job.job_id);
    let elapsed = span(Duration::from_millis(job.elapsed_ms));
    format!("{id}  {elapsed}  {}", display::first_line(&job.command, 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> PsData {
        serde_json::from_value(json!({
            "supervisor": {
                "pid": 100, "version": "0.1.0", "startedAt": "2026-03-10T12:00:00Z",
                "uptime": 125_000, "socket": "/s", "stateDir": "/d", "clients": 2, "sessions": 3,
                "rssKb": 12_600, "slowClients": 0, "straysKilled": 0
            },
            "workers": [
                {
                    "sessionId": "a", "sessionName": "duck-1", "workspacePath": "/home/ada/app",
                    "state": "busy", "pid": 102, "monitorPid": 101, "restarts": 1,
                    "tier": "unconfined", "policy": "full-access", "lastDeath": "signal 9",
                    "calls": [{"callId": "c1", "tool": "bash", "elapsedMs": 1_250, "deadlineMs": 30_000}],
                    "jobs": [{"jobId": "job-2", "command": "npm run\u{1b} dev", "elapsedMs": 125_000}]
                },
                {
                    "sessionId": "b", "sessionName": "duck\n2", "workspacePath": "/srv/x",
                    "state": "absent", "restarts": 0, "calls": []
                }
            ]
        }))
        .unwrap()
    }

    #[test]
    fn the_tree_goes_from_the_supervisor_to_the_calls_in_flight_and_the_jobs() {
        let text = tree(&data(), Some("/home/ada"));
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string(),
            "supervisor 100  up 2m 5s  12.3 MB  2 clients  3 sessions\n\
             ├─ duck-1  ~/app  busy  unconfined  full-access\n\
             │  monitor 101 → worker 102  1 crash\n\
             │  last worker: signal 9\n\
             │  └─ bash  1.2 s of 30.0 s\n\
             │  └─ job-2  2m 5s  npm run\u{fffd} dev\n\
             └─ duck\u{fffd}2  /srv/x  absent\n   no process\n"
        );
    }

    #[test]
    fn a_supervisor_without_workers_is_one_line() {
        let alone = PsData { workers: Vec::new(), ..data() };
        assert_eq!(tree(&alone, None).lines().count(), 1);
    }
}
