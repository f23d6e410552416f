//! The check `mcp_servers` of `doctor`: servers that the agents of sessions could not use. Absent without any.

use super::doctor_results::warn;
use crate::services::Services;
use quackd_protocol::client::{Check, WorkerInfo};

/// Most servers that are listed.
const MAX_LISTED: usize = 4;

pub(super) fn check(services: &Services, workers: &[WorkerInfo]) -> Option<Check> {
    let table = &services.sessions.table;
    let of_session = |worker: &WorkerInfo| {
        let problems = table.snapshot(&worker.session_id).agent.mcp_problems.clone();
        let lines: Vec<_> =
            problems.iter().map(|it| format!("{} in {}", it, worker.label)).collect();
        lines
    };
    let problems: Vec<String> = workers.iter().flat_map(of_session).collect();
    if problems.is_empty() {
        return None;
    }
    let (shown, rest) = problems.split_at(problems.len().min(MAX_LISTED));
    let more = if rest.is_empty() { String::new() } else { format!("; {} more", rest.len()) };
    Some(warn(
        "mcp_servers",
        format!("{}{more}", shown.join("; ")),
        "servers run like commands of the session: `quack tool bash` can try the command there; the next start of the agent lists them again",
    ))
}
