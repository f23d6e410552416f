//! `quack ps`: prints the process tree from the supervisor to running calls and background jobs, once or periodically.

use crate::args::daemon::PsArgs;
use crate::connect::connect_only;
use crate::display;
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM, RED, StdoutState, YELLOW};
use crate::time_format::{ago, local, span};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_client::{Client, ClientError};
use quackd_protocol::client::{
    CallInfo, ClientInfo, ClientName, PiInfo, ProcessState, PsData, PsParams, RunningJob,
    SupervisorInfo, WorkerInfo,
};
use quackd_protocol::limits::MAX_JOB_TIME;
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Tier;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Maximum width of the sessions of a client, in columns.
const MAX_SESSIONS_WIDTH: usize = 60;

/// Clears the terminal and moves the cursor to its upper left corner.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Runs the subcommand. Starts no daemon: a new one would have no workers.
pub(crate) async fn run(args: PsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let daemon = connect_only(output).await?;
    if let Some(seconds) = args.watch {
        return tokio::select! {
            // An interrupt is the normal end of `--watch`.
            interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| ExitCode::Ok).map_err(Into::into),
            ended = watch(&daemon.client, Duration::from_secs(seconds), output) => ended,
        };
    }

    let data = ask(&daemon.client).await?;
    if output.is_json() {
        output.document(&with_local_times(data))?;
    } else {
        let home_dir = std::env::var("HOME").ok();
        output.text(&tree(&data, home_dir.as_deref()))?;
    }
    Ok(ExitCode::Ok)
}

/// Prints the process tree periodically until the reader closes stdout. A terminal shows only the latest tree.
/// Elsewhere the trees follow each other, with `--json` one per line.
///
/// # Errors
/// If the daemon has exited, or stdout cannot be written.
async fn watch(client: &Client, every: Duration, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home_dir = std::env::var("HOME").ok();
    let audience = output.audience();
    // Without escape sequences, printed text cannot be cleared.
    let is_redrawn = audience.is_terminal && audience.is_colored;
    let mut ticks = interval(every);
    // A slow daemon must not cause a burst of requests.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;

        let data = ask(client).await?;
        let text = match (output.is_json(), is_redrawn) {
            (true, _) => serde_json::to_string(&with_local_times(data))? + "\n",
            (false, true) => format!("{CLEAR}{}", tree(&data, home_dir.as_deref())),
            (false, false) => format!("{}\n", tree(&data, home_dir.as_deref())),
        };

        if output.piece(text).await? == StdoutState::Gone {
            return Ok(ExitCode::Ok);
        }
    }
}

fn with_local_times(mut data: PsData) -> PsData {
    let zone = TimeZone::system();
    data.supervisor.started_at = local(&data.supervisor.started_at, &zone);
    for client in &mut data.clients {
        client.connected_at = local(&client.connected_at, &zone);
    }
    for worker in &mut data.workers {
        let pi = worker.pi.as_mut().and_then(|pi| pi.started_at.as_mut());
        for started_at in [worker.started_at.as_mut(), pi].into_iter().flatten() {
            *started_at = local(started_at, &zone);
        }
    }
    data
}

/// Requests the process tree.
///
/// # Errors
/// Those of [`Client::call`].
pub(crate) async fn ask(client: &Client) -> Result<PsData, ClientError> {
    client.call(PsParams {}).await
}

/// Formats the process tree as complete lines.
pub(crate) fn tree(data: &PsData, home_dir: Option<&str>) -> String {
    let mut text = supervisor_line(&data.supervisor);

    let last = data.workers.len().saturating_sub(1);
    for (i, worker) in data.workers.iter().enumerate() {
        let (branch, rail) = if i == last { ("└─", "  ") } else { ("├─", "│ ") };
        text.push_str(&format!("{branch} {}\n", session_line(worker, home_dir)));
        text.push_str(&format!("{rail} {DIM}{}{DIM:#}\n", process_line(worker)));
        if let Some(pending) = &worker.pending {
            let pending = display::pending(pending);
            text.push_str(&format!("{rail} {YELLOW}waits: {pending}{YELLOW:#}\n"));
        }
        if let Some(death) = &worker.last_death {
            let death = display::first_line(death, 100);
            text.push_str(&format!("{rail} {RED}last worker: {death}{RED:#}\n"));
        }
        if let Some(pi) = &worker.pi {
            text.push_str(&format!("{rail} └─ {}\n", pi_line(pi)));
            if let Some(death) = &pi.last_death {
                let death = display::first_line(death, 100);
                let name = agent_name(pi);
                text.push_str(&format!("{rail}    {RED}last {name}: {death}{RED:#}\n"));
            }
        }
        for call in &worker.calls {
            text.push_str(&format!("{rail} └─ {}\n", call_line(call)));
        }
        for job in &worker.jobs {
            text.push_str(&format!("{rail} └─ {}\n", job_line(job)));
        }
        for server in &worker.servers {
            let server =
                display::server(server, display::label(&worker.label, &worker.session_name));
            text.push_str(&format!("{rail} └─ {server}\n"));
        }
    }
    text.push_str(&clients(data, Timestamp::now(), &TimeZone::system()));
    text
}

/// Formats the clients that named themselves as a table. Empty without clients.
fn clients(data: &PsData, now: Timestamp, zone: &TimeZone) -> String {
    if data.clients.is_empty() {
        return String::new();
    }

    let row = |info: &ClientInfo| {
        let ClientName { name, version } = &info.client;
        let name = [Some(name), version.as_ref()].into_iter().flatten().map(String::as_str);
        [
            display::name_cell(&name.collect::<Vec<_>>().join(" ")),
            display::cut(&info.sessions.join(", "), MAX_SESSIONS_WIDTH),
            info.calls_running.to_string(),
            info.calls.to_string(),
            ago(&info.connected_at, now, zone),
        ]
    };

    let rows: Vec<_> = data.clients.iter().map(row).collect();
    let header = ["CLIENT", "SESSIONS", "RUNNING", "CALLS", "CONNECTED"];
    let more = match data.named_clients.saturating_sub(data.clients.len()) {
        0 => String::new(),
        n => format!("and {n} more\n"),
    };
    format!("\n{}{more}", display::table(header, [12, 12, 0, 0, 0], &rows))
}

fn supervisor_line(supervisor: &SupervisorInfo) -> String {
    let uptime = span(Duration::from_millis(supervisor.uptime));
    let memory = display::memory(supervisor.rss_kb);

    let clients = display::count(supervisor.clients, "client");
    let sessions = display::count(supervisor.sessions, "session");
    let low = supervisor.disk.filter(|disk| disk.low).map(|disk| {
        let free = display::bytes(disk.free_bytes);
        format!("{RED}the disk is almost full: {free} free; long outputs and the journal of calls are not written{RED:#}\n")
    });

    format!(
        "{BOLD}supervisor{BOLD:#} {}  up {uptime}{memory}  {clients}  {sessions}\n{}",
        supervisor.pid,
        low.unwrap_or_default()
    )
}

fn session_line(worker: &WorkerInfo, home_dir: Option<&str>) -> String {
    let name = display::name_cell(display::label(&worker.label, &worker.session_name));
    let path = display::path_cell(&worker.workspace_path, home_dir);
    let mut line = format!("{BOLD}{name}{BOLD:#}  {path}  {}", status(worker));

    let confinement = worker.tier.map(Tier::in_words);
    for word in [confinement, worker.policy.map(Profile::name)].into_iter().flatten() {
        line.push_str("  ");
        line.push_str(word);
    }

    if worker.network == Some(true) || worker.hosts {
        let network = display::network(worker.network == Some(true), worker.hosts);
        line.push_str(&format!("  network {network}"));
    }
    line
}

/// Returns the session's status, and the worker's state unless that is the usual one.
fn status(worker: &WorkerInfo) -> String {
    let status = &worker.status;
    // An older daemon sends no status.
    if status.status_why.is_empty() {
        return worker.state.name().to_owned();
    }

    let mut words = status.status.name().to_owned();
    use ProcessState::{Absent, Busy, Failed, Ready};
    if !matches!(worker.state, Absent | Ready | Busy | Failed) {
        words.push_str(&format!(" ({})", worker.state.name()));
    }

    if status.pinned {
        words.push_str("  pinned");
    }
    words
}

fn process_line(worker: &WorkerInfo) -> String {
    let mut line = match (monitor(worker.monitor_pid, worker.pid), worker.pid) {
        (Some(monitor), Some(pid)) => format!("monitor {monitor} → worker {pid}"),
        (None, Some(pid)) => format!("worker {pid}"),
        (Some(monitor), None) => format!("monitor {monitor}"),
        (None, None) => "no process".to_owned(),
    };

    if let Some(place) = &worker.place {
        let link = if worker.monitor_pid.is_some() { "link to" } else { "on" };
        line.push_str(&format!("  {link} {}", display::name_cell(place)));
    }
    if let Some(ms) = worker.latency_ms {
        line.push_str(&format!("  latency {}", span(Duration::from_millis(ms))));
    }
    line.push_str(&display::memory(worker.rss_kb));
    line.push_str(&crashes(worker.restarts));
    if !worker.why.is_empty() {
        line.push_str(&format!("  {}", display::first_line(&worker.why, 100)));
    }
    line
}

/// Returns the process id of the monitor. `None` if the supervisor's direct child is the worker itself, as in tier M.
fn monitor(child: Option<u32>, worker: Option<u32>) -> Option<u32> {
    child.filter(|_| child != worker)
}

fn crashes(n: impl Into<u64>) -> String {
    match n.into() {
        0 => String::new(),
        1 => "  1 crash".to_owned(),
        n => format!("  {n} crashes"),
    }
}

fn agent_name(pi: &PiInfo) -> &'static str {
    if pi.native { "agent" } else { "Pi" }
}

/// Formats the processes of a session's agent: of Pi, from the supervisor's child to Pi itself.
fn pi_line(pi: &PiInfo) -> String {
    let name = agent_name(pi);
    let mut line = format!("{name} {}", pi.state.name());
    if pi.busy {
        line.push_str(", at work");
    }

    // quackd's own agent is one process.
    let named = if pi.native {
        [("process", pi.pid), ("", None), ("", None)]
    } else {
        let monitor = monitor(pi.monitor_pid, pi.worker_pid);
        [("monitor", monitor), ("worker", pi.worker_pid), ("Pi", pi.pid)]
    };
    let chain: Vec<String> =
        named.iter().filter_map(|(name, pid)| pid.map(|pid| format!("{name} {pid}"))).collect();

    if !chain.is_empty() {
        line.push_str(&format!("  {}", chain.join(" → ")));
    }

    line + &display::memory(pi.rss_kb) + &crashes(pi.restarts)
}

fn call_line(call: &CallInfo) -> String {
    let tool = display::plain(&call.tool);
    let elapsed = span(Duration::from_millis(call.elapsed_ms));
    match Duration::from_millis(call.deadline_ms) {
        // A command that a user watches at a terminal.
        deadline if MAX_JOB_TIME <= deadline => format!("{tool}  {elapsed}"),
        deadline => format!("{tool}  {elapsed} of {}", span(deadline)),
    }
}

fn job_line(job: &RunningJob) -> String {
    let id = display::plain(&job.job_id);
    let elapsed = span(Duration::from_millis(job.elapsed_ms));
    format!("{id}  {elapsed}  {}", display::first_line(&job.command, 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use serde_json::json;

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
                    "pi": {"state": "ready", "busy": true, "pid": 105, "workerPid": 104, "monitorPid": 103,
                           "restarts": 2, "lastDeath": "exit code 3", "rssKb": 2048},
                    "jobs": [{"jobId": "job-2", "command": "npm run\u{1b} dev", "elapsedMs": 125_000}],
                    "pending": {"why": "its sandbox policy was changed", "calls": 1, "jobs": ["job-2"],
                        "remedy": "quack abort --session app; quack jobs kill job-2 --session app"}
                },
                {
                    "sessionId": "c", "sessionName": "duck-3", "workspacePath": "/srv/y",
                    "state": "ready", "pid": 105, "monitorPid": 104, "restarts": 0, "calls": [],
                    "status": "idle", "statusWhy": "idle for 3 s; pinned", "pinned": true,
                    "why": "idle for 3 s; pinned", "rssKb": 3000
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
             ├─ duck-1  ~/app  busy  not confined  full-access\n\
             │  monitor 101 → worker 102  1 crash\n\
             │  waits: its sandbox policy was changed; a new worker starts when this has ended: 1 call, job-2. To end it: quack abort --session app; quack jobs kill job-2 --session app\n\
             │  last worker: signal 9\n\
             │  └─ Pi ready, at work  monitor 103 → worker 104 → Pi 105  2.0 MB  2 crashes\n\
             │     last Pi: exit code 3\n\
             │  └─ bash  1.2 s of 30.0 s\n\
             │  └─ job-2  2m 5s  npm run\u{fffd} dev\n\
             ├─ duck-3  /srv/y  idle  pinned\n\
             │  monitor 104 → worker 105  2.9 MB  idle for 3 s; pinned\n\
             └─ duck\u{fffd}2  /srv/x  absent\n   no process\n"
        );
    }

    #[test]
    fn a_worker_on_another_machine_is_shown_with_its_place_and_latency() {
        let mut data = data();
        let worker = &mut data.workers[0];
        worker.workspace_path = "ssh:build1:/home/ada/app".to_owned();
        (worker.pid, worker.place, worker.latency_ms) = (None, Some("build1".to_owned()), Some(12));
        let text = anstream::adapter::strip_str(&tree(&data, Some("/home/ada"))).to_string();
        assert!(text.contains("build1:/home/ada/app"), "{text}");
        assert!(text.contains("monitor 101  link to build1  latency 12"), "{text}");
    }

    #[test]
    fn a_worker_without_a_monitor_is_shown_without_one() {
        let mut data = data();
        for worker in &mut data.workers {
            worker.tier = Some(Tier::M);
            worker.monitor_pid = worker.pid;
            worker.pi.iter_mut().for_each(|pi| pi.monitor_pid = pi.worker_pid);
        }

        let text = anstream::adapter::strip_str(&tree(&data, None)).to_string();
        assert!(!text.contains("monitor"), "{text}");
        assert!(text.contains("│  worker 102  1 crash\n"), "{text}");
        assert!(text.contains("Pi ready, at work  worker 104 → Pi 105  2.0 MB"), "{text}");
    }

    #[test]
    fn the_last_death_names_the_agent() {
        let mut data = data();
        data.workers.iter_mut().filter_map(|it| it.pi.as_mut()).for_each(|it| it.native = true);
        let text = anstream::adapter::strip_str(&tree(&data, None)).to_string();
        assert!(text.contains("last agent: exit code 3") && !text.contains("Pi"), "{text}");
    }

    #[test]
    fn clients_that_named_themselves_are_a_table_in_which_nothing_steers_the_terminal() {
        let client = |name: &str, more: Value| {
            let mut client = json!({"name": name, "connectedAt": "2026-03-10T11:57:00Z", "sessions": [],
                "callsRunning": 0, "calls": 0});
            client.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<ClientInfo>(client).unwrap()
        };
        let one = json!({"version": "2.0.1", "door": "mcp", "sessions": ["app/claude", "web/claude"],
            "callsRunning": 1, "calls": 12});
        let named = vec![client("Claude Code", one), client("a\u{1b}[2J\u{202e}", json!({}))];
        let data = PsData { clients: named, named_clients: 300, ..data() };
        let text = clients(&data, "2026-03-10T12:00:00Z".parse().unwrap(), &TimeZone::UTC);
        assert_eq!(
            text,
            "\nCLIENT             SESSIONS                RUNNING  CALLS  CONNECTED\n\
             Claude Code 2.0.1  app/claude, web/claude  1        12     3m ago\n\
             a\u{fffd}[2J\u{fffd}                                     0        0      3m ago\n\
             and 298 more\n"
        );
        assert!(tree(&data, None).contains("CLIENT"));
    }

    #[test]
    fn a_supervisor_without_workers_is_one_line() {
        let alone = PsData { workers: Vec::new(), ..data() };
        assert_eq!(tree(&alone, None).lines().count(), 1);
    }
}
