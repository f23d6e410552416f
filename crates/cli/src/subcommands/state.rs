//! `quack state`: shows one session and its worker.

use crate::args::sessions::StateArgs;
use crate::display;
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM};
use crate::session_ref;
use crate::time_format::local;
use jiff::tz::TimeZone;
use quackd_protocol::client::{Interruption, StateData, StateParams};
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Tier;
use serde_json::Value;

/// Maximum number of listed items of interrupted work.
const MAX_WORK: usize = 10;

/// Prints one session: its status, its worker and its agent.
pub(crate) async fn run(args: StateArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (client, session) = session_ref::existing(&args.which.into_which(), output).await?;
    let data = client.call(StateParams::of(session.session_id.as_str())).await?;
    output.show(&data, || lines(&data, &session.label))?;
    Ok(ExitCode::Ok)
}

/// Returns the rows about the session's agent. Empty without one.
fn agent_rows(data: &StateData) -> Vec<(&'static str, String)> {
    let (Some(state), Some(engine)) = (&data.pi_state, &data.engine) else { return Vec::new() };
    let mut rows = vec![("agent", display::plain(engine))];
    let text = |value: &Value| display::plain(value.as_str().unwrap_or_default());
    let at = |path: &str| state.pointer(path).unwrap_or(&Value::Null);

    if at("/model").is_object() {
        let level = text(at("/thinkingLevel"));
        let level = if level.is_empty() { level } else { format!(", thinking {level}") };
        let (provider, id) = (text(at("/model/provider")), text(at("/model/id")));
        rows.push(("model", format!("{provider}/{id}{level}")));
    }

    if let Some(stats) = &data.stats {
        let number = |path: &str| stats.pointer(path).and_then(Value::as_f64).unwrap_or_default();
        let (tokens, cost) = (number("/tokens/total"), display::cost_of(stats));
        let percent = number("/contextUsage/percent");
        rows.push(("used", format!("{tokens:.0} tokens, {cost}, context {percent:.0} % full")));
    }

    let files = at("/instructions").as_array().into_iter().flatten().map(text);
    let files: Vec<_> = files.take(MAX_WORK).collect();
    if !files.is_empty() {
        rows.push(("reads", files.join(", ")));
    }
    rows
}

fn lines(data: &StateData, label: &str) -> String {
    let worker = &data.worker;
    let name = display::name(label);
    let id = display::plain(data.session_id.as_str());
    let mut text = format!("{BOLD}{name}{BOLD:#}  {DIM}{id}{DIM:#}\n");

    let pid = worker.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    let mut row = |name: &str, value: &str| text.push_str(&format!("{name:<12}{value}\n"));

    if !data.status.status_why.is_empty() {
        let since = data.status.status_since.as_deref();
        let since = since.map(|since| format!(" since {}", local(since, &TimeZone::system())));
        let (status, reason) = (data.status.status.name(), display::plain(&data.status.status_why));
        row("status", &format!("{status}{}: {reason}", since.unwrap_or_default()));
    }

    row("worker", &format!("{}{pid}", worker.state.name()));
    if data.isolated {
        let size = data.copy_bytes.map(|bytes| format!(", {} MiB", bytes.div_ceil(1024 * 1024)));
        let size = size.unwrap_or_default();
        row("files", &format!("a private copy of the workspace{size}; see quack diff"));
    }

    row("sandbox", worker.tier.map_or("-", Tier::in_words));
    row("policy", worker.policy.map_or("-", Profile::name));
    if let Some(network) = worker.network {
        row("network", display::network(network, worker.hosts));
    }

    if let Some(pending) = &worker.pending {
        row("waits", &display::pending(pending));
    }
    row("restarts", &worker.restarts.to_string());
    row("safe mode", if data.safe_mode { "on" } else { "off" });
    if data.status.pinned {
        row("pinned", "yes");
    }

    for (name, value) in agent_rows(data) {
        row(name, &value);
    }
    for server in &data.servers {
        row("server", &display::server(server, label));
    }
    for problem in data.mcp_problems.iter().take(MAX_WORK) {
        row("mcp server", &display::plain(problem));
    }

    if let Some(cut) = &data.interrupted {
        row("interrupted", &interrupted(cut, &TimeZone::system()));
    }
    text
}

/// Formats the work that a stop of the daemon interrupted, on one line.
fn interrupted(cut: &Interruption, zone: &TimeZone) -> String {
    let first = cut.work.iter().take(MAX_WORK).map(|work| display::name(work));
    let mut work = first.collect::<Vec<_>>().join(", ");
    if let Some(more) = cut.work.len().checked_sub(MAX_WORK).filter(|more| 0 < *more) {
        work.push_str(&format!(", and {more} more"));
    }
    let (by, at) = (display::name(&cut.by), display::plain(&local(&cut.at, zone)));
    format!("{work}  by a {by} of the daemon at {at}; it may have run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_session_is_shown_with_its_worker() {
        let data: StateData = serde_json::from_value(json!({
            "sessionId": "abc", "sessionName": "duck\u{1b}1", "isRunning": true, "safeMode": true,
            "worker": {"state": "busy", "pid": 7, "restarts": 2, "tier": "unconfined", "policy": null},
            "mcpProblems": ["db: cannot start it\n\u{1b}"]
        }))
        .unwrap();
        let text = anstream::adapter::strip_str(&lines(&data, "app/duck\u{1b}1")).to_string();
        assert_eq!(
            text,
            "app/duck\u{fffd}1  abc\nworker      busy, process 7\nsandbox     not confined\npolicy      -\n\
             restarts    2\nsafe mode   on\nmcp server  db: cannot start it\u{fffd}\u{fffd}\n"
        );
    }

    #[test]
    fn what_the_last_stop_cut_short_is_one_line() {
        let cut = |work: Vec<String>| Interruption {
            at: "2026-03-10T12:00:00Z".to_owned(),
            by: "restart".to_owned(),
            work,
        };
        let line = interrupted(
            &cut(vec!["bash".to_owned(), "job-1 a\u{1b}\nb".to_owned()]),
            &TimeZone::UTC,
        );
        assert_eq!(
            line,
            "bash, job-1 a\u{fffd}\u{fffd}b  by a restart of the daemon at 2026-03-10T12:00:00+00:00; it may have run"
        );
        let many = interrupted(&cut(vec!["x".repeat(1000); 40]), &TimeZone::UTC);
        assert!(many.contains(", and 30 more  by a ") && many.chars().count() < 1200, "{many}");
    }
}
