//! The check `mcp_servers` of `doctor`: servers that the agents of sessions could not use. Absent without any.

use super::doctor_results::warn;
use crate::services::Services;
use quackd_protocol::client::{Check, WorkerInfo};

/// Most servers that are listed.
const MAX_LISTED: usize = 4;

/// Returns the check, or `None` without problems.
pub(super) fn check(services: &Services, workers: &[WorkerInfo]) -> Option<Check> {
    let table = &services.sessions.table;
    let of_session = |worker: &WorkerInfo| {
        let snapshot = table.snapshot(&worker.session_id);
        let line = |problem: &String| format!("{problem} in {}", worker.label);
        snapshot.agent.mcp_problems.iter().map(line).collect::<Vec<_>>()
    };
    let problems: Vec<String> = workers.iter().flat_map(of_session).collect();
    if problems.is_empty() {
        return None;
    }

    let (first, rest) = problems.split_at(problems.len().min(MAX_LISTED));
    let more = if rest.is_empty() { String::new() } else { format!("; {} more", rest.len()) };
    Some(warn(
        "mcp_servers",
        format!("{}{more}", first.join("; ")),
        "servers run like commands of the session: `quack tool bash` can try the command there; the next start of the agent lists them again",
    ))
}
