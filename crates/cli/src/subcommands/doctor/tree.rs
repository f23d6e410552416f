//! `quack doctor --tree`: prints the limits of each kind of child of the supervisor, and the running children.

use crate::connect::connect_only;
use crate::display::{self, plain};
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM, RED};
use crate::time_format::{local, span};
use jiff::tz::TimeZone;
use quackd_protocol::client::{
    DeathInfo, ErrandInfo, PauseInfo, PauseKind, SpecInfo, TreeChild, TreeData, TreeParams,
    TreeWorker,
};
use std::time::Duration;

/// Maximum number of listed exits. `--json` prints all that the daemon kept.
const SHOWN_DEATHS: usize = 5;

/// Maximum length of a cause, in characters.
const MAX_CAUSE: usize = 120;

/// Runs `doctor --tree`. Starts no daemon: a new one would have no children.
pub(crate) async fn run(output: CliOutput) -> anyhow::Result<ExitCode> {
    let daemon = connect_only(output).await?;
    let data = daemon.client.call(TreeParams {}).await?;
    output.show(&data, || render(&data, &TimeZone::system()))?;
    Ok(ExitCode::Ok)
}

fn render(data: &TreeData, zone: &TimeZone) -> String {
    let lag = data.loop_lag;
    let mut text = format!(
        "{BOLD}supervisor{BOLD:#} {}  up {}{}  timers late: 99 % within {}, at most {}\n",
        data.pid,
        time(data.uptime),
        display::memory(data.rss_kb),
        span(Duration::from_micros(lag.p99_us)),
        span(Duration::from_micros(lag.max_us)),
    );

    let last = data.children.len().saturating_sub(1);
    for (i, child) in data.children.iter().enumerate() {
        let (branch, rail) = if i == last { ("└─", "   ") } else { ("├─", "│  ") };
        text.push_str(&format!("{branch} {}\n", headline(child)));
        let promise = promise(&child.spec);
        if !promise.is_empty() {
            text.push_str(&format!("{rail}{DIM}{promise}{DIM:#}\n"));
        }
        for worker in &child.workers {
            text.push_str(&format!("{rail}└─ {}\n", worker_line(worker, &child.spec)));
            if let Some(cause) = &worker.life.last_cause {
                let cause = display::first_line(cause, MAX_CAUSE);
                text.push_str(&format!("{rail}   {RED}last death: {cause}{RED:#}\n"));
            }
        }
    }

    for pause in &data.pauses {
        text.push_str(&format!("{}\n", pause_line(pause, zone)));
    }

    let skipped = data.deaths.len().saturating_sub(SHOWN_DEATHS);
    if data.deaths_total != 0 {
        text.push_str(&format!("{BOLD}deaths{BOLD:#} {}\n", data.deaths_total));
    }
    for death in data.deaths.iter().skip(skipped) {
        text.push_str(&format!("  {}\n", death_line(death, zone)));
    }
    text
}

fn headline(child: &TreeChild) -> String {
    let spec = &child.spec;
    let now = match (child.running, &child.errand) {
        (Some(true), _) => "running".to_owned(),
        (Some(false), _) => "not started".to_owned(),
        (None, Some(errand)) => errand_words(errand),
        (None, None) => {
            let alive = child.workers.iter().filter(|worker| worker.monitor_pid.is_some()).count();
            format!("{alive} running")
        }
    };

    let (name, about) = (display::process_kind(&spec.name), plain(&spec.about));
    format!("{BOLD}{name}{BOLD:#}  {}, {}: {about}  {now}", plain(&spec.form), plain(&spec.restart))
}

fn errand_words(errand: &ErrandInfo) -> String {
    let mut words = match errand.pid {
        Some(pid) => format!("running ({pid})"),
        None if errand.runs == 0 => "has not run yet".to_owned(),
        None if errand.runs == 1 => "ran once".to_owned(),
        None => format!("ran {} times", errand.runs),
    };

    let cause = errand.last_cause.as_ref().map(|cause| display::first_line(cause, MAX_CAUSE));
    words.extend(errand.took_ms.map(|ms| format!(", the last took {}", time(ms))));
    words.extend(cause.map(|cause| format!(", {cause}")));
    words
}

/// Formats the limits of a kind of child on one line.
fn promise(spec: &SpecInfo) -> String {
    let mut words = Vec::new();
    if spec.intensity != 0 {
        let (n, period) = (spec.intensity, time(spec.period_ms));
        words.push(format!("at most {n} restarts in {period}"));
        let (min, max) = (time(spec.backoff_min_ms), time(spec.backoff_max_ms));
        words.push(format!("after {min} to {max} ± {} %", spec.jitter_percent));
        words.push(format!("forgiven after {}", time(spec.forgiveness_ms)));
    }

    if spec.start_ms != 0 {
        words.push(format!("start within {}", time(spec.start_ms)));
    }

    if let Some(beat) = spec.heartbeat {
        words.push(format!(
            "asked every {}, idle {}; {} missed: no new work; killed after {}",
            time(beat.busy_ms),
            time(beat.idle_ms),
            beat.missed,
            time(beat.kill_ms)
        ));
    }

    if spec.form != "thread" {
        words.push(format!("{} to end", time(spec.shutdown_ms)));
    }

    if !spec.terminal.is_empty() {
        words.push(format!("final: {}", plain(&spec.terminal.join(", "))));
    }
    words.join("; ")
}

fn worker_line(worker: &TreeWorker, spec: &SpecInfo) -> String {
    let life = &worker.life;
    let mut line = format!(
        "{BOLD}{}{BOLD:#}  {}",
        display::name_cell(display::label(&worker.label, &worker.session_name)),
        life.state.name()
    );

    let (restarts, reason) = (life.restarts_in_window, &worker.why);
    let facts = [
        life.state_ms.map(|ms| format!(" for {}", time(ms))),
        worker.pid.or(worker.monitor_pid).map(|pid| format!("  pid {pid}")),
        Some(display::memory(worker.rss_kb)),
        life.heartbeat_age_ms.map(|ms| format!("  heard {} ago", time(ms))),
        (restarts != 0).then(|| format!("  {restarts} of {} restarts", spec.intensity)),
        life.backoff_ms.map(|ms| format!("  next start in {}", time(ms))),
        life.forgiven_ms.map(|ms| format!("  forgiven in {}", time(ms))),
        (!reason.is_empty()).then(|| format!("  {}", display::first_line(reason, MAX_CAUSE))),
    ];
    line.extend(facts.into_iter().flatten());
    line
}

fn pause_line(pause: &PauseInfo, zone: &TimeZone) -> String {
    let length = time(pause.ms.unsigned_abs());
    let description = match pause.kind {
        PauseKind::Suspended => format!("the machine slept for {length}"),
        PauseKind::Stopped => format!("the daemon was stopped for {length}"),
        PauseKind::Clock => {
            let way = if pause.ms < 0 { "back" } else { "forward" };
            format!("the clock was set {way} by {length}")
        }
    };

    format!("{BOLD}pause{BOLD:#} {description}  {}", local(&pause.at, zone))
}

fn death_line(death: &DeathInfo, zone: &TimeZone) -> String {
    let name = death.session_name.as_deref().unwrap_or_default();
    let name = display::name_cell(display::label(&death.label, name));
    let cause = display::first_line(&death.cause, MAX_CAUSE);
    let lived = death.lived_ms.map(|ms| format!(" after {}", time(ms))).unwrap_or_default();
    format!(
        "{}  {} {name}  {cause}{lived}",
        local(&death.at, zone),
        display::process_kind(&death.child)
    )
}

fn time(ms: u64) -> String {
    span(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_tree_has_every_promise_and_every_process() {
        let data: TreeData = serde_json::from_value(json!({
            "pid": 100, "uptime": 125_000, "rssKb": 12_600,
            "loopLag": {"maxUs": 1200, "p99Us": 300, "samples": 120},
            "pauses": [{"at": "2026-03-10T12:00:00Z", "kind": "suspended", "ms": 3_600_000}],
            "deathsTotal": 7,
            "deaths": [{
                "at": "2026-03-10T12:00:00Z", "child": "session-worker",
                "sessionName": "duck-1", "cause": "signal 9", "livedMs": 1500
            }],
            "children": [
                {
                    "spec": {"name": "store", "about": "writes", "form": "thread", "restart": "escalate"},
                    "workers": [], "running": true
                },
                {
                    "spec": {
                        "name": "login-environment", "about": "asks", "form": "errand",
                        "restart": "temporary", "startMs": 12_000, "shutdownMs": 3000
                    },
                    "workers": [], "errand": {"runs": 2, "tookMs": 40, "failures": 0}
                },
                {
                    "spec": {
                        "name": "session-worker", "about": "runs tools", "form": "process",
                        "restart": "transient", "intensity": 5, "periodMs": 60_000,
                        "forgivenessMs": 60_000, "backoffMinMs": 200, "backoffMaxMs": 30_000,
                        "jitterPercent": 10, "startMs": 10_000, "shutdownMs": 5000,
                        "heartbeat": {"busyMs": 2000, "idleMs": 30_000, "missed": 3, "killMs": 15_000},
                        "terminal": ["exit-100", "refused"]
                    },
                    "workers": [
                        {
                            "sessionId": "a", "sessionName": "duck-1", "monitorPid": 7, "pid": 8,
                            "rssKb": 3000, "why": "idle for 3 s; pinned",
                            "life": {"state": "ready", "stateMs": 4000, "heartbeatAgeMs": 3000}
                        },
                        {
                            "sessionId": "b", "sessionName": "duck\u{1b}2",
                            "life": {
                                "state": "backoff", "stateMs": 100, "restartsInWindow": 2,
                                "backoffMs": 700, "lastCause": "signal 9"
                            }
                        }
                    ]
                }
            ]
        }))
        .unwrap();
        let text = anstream::adapter::strip_str(&render(&data, &TimeZone::UTC)).to_string();
        assert_eq!(
            text,
            "supervisor 100  up 2m 5s  12.3 MB  timers late: 99 % within 0.3 ms, at most 1.2 ms\n\
             ├─ store  thread, escalate: writes  running\n\
             ├─ login-environment  errand, temporary: asks  ran 2 times, the last took 40.0 ms\n\
             │  start within 12.0 s; 3.0 s to end\n\
             └─ session-worker  process, transient: runs tools  1 running\n   \
             at most 5 restarts in 1m 0s; after 200.0 ms to 30.0 s ± 10 %; forgiven after 1m 0s; \
             start within 10.0 s; asked every 2.0 s, idle 30.0 s; 3 missed: no new work; killed after 15.0 s; \
             5.0 s to end; final: exit-100, refused\n   \
             └─ duck-1  ready for 4.0 s  pid 8  2.9 MB  heard 3.0 s ago  idle for 3 s; pinned\n   \
             └─ duck\u{fffd}2  backoff for 100.0 ms  2 of 5 restarts  next start in 700.0 ms\n      \
             last death: signal 9\n\
             pause the machine slept for 1h 0m  2026-03-10T12:00:00+00:00\n\
             deaths 7\n  2026-03-10T12:00:00+00:00  session-worker duck-1  signal 9 after 1.5 s\n"
        );
    }
}
