//! `quack.metrics`: the daemon's counters as Prometheus reads them. No names of sessions and no paths stand in it.

use super::Caller;
use crate::errors::MethodError;
use crate::metrics::Metrics;
use crate::metrics::call_latency::{BOUNDS, Histogram};
use crate::metrics::prometheus_text::{CONTENT_TYPE, Exposition, Kind};
use crate::registry::Registry;
use crate::services::Services;
use actix::Addr;
use quackd_protocol::client::{MetricsData, PsData, SessionStatus};
use std::time::Duration;

/// The states of a worker, as `quack.ps` tells them.
const STATES: [&str; 8] =
    ["absent", "starting", "ready", "busy", "unresponsive", "draining", "backoff", "failed"];

/// What sessions do.
const STATUSES: [SessionStatus; 5] = [
    SessionStatus::Waiting,
    SessionStatus::Working,
    SessionStatus::Idle,
    SessionStatus::Stopped,
    SessionStatus::Failed,
];

pub(super) async fn metrics(caller: &Caller) -> Result<MetricsData, MethodError> {
    let text = metrics_text(&caller.services, &caller.registry).await?;
    Ok(MetricsData { content_type: CONTENT_TYPE.to_owned(), text })
}

/// The text alone, also for who asks over HTTP.
pub(crate) async fn metrics_text(
    services: &Services,
    registry: &Addr<Registry>,
) -> Result<String, MethodError> {
    let data = super::ps::processes(services, registry).await?;
    let counted = &services.sessions.metrics;
    let mut text = Exposition::default();
    daemon(&mut text, &data);
    sessions(&mut text, &data);
    queues(&mut text, services);
    totals(&mut text, &data, counted);
    deaths(&mut text, &services.sessions.children.deaths.by_cause());
    calls(&mut text, &counted.calls.histograms());
    Ok(text.finish())
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

fn bytes(kb: u64) -> u64 {
    kb.saturating_mul(1024)
}

fn daemon(text: &mut Exposition, data: &PsData) {
    let supervisor = &data.supervisor;
    text.family("quackd_build_info", Kind::Gauge, "Always 1; the label is the daemon's version.");
    text.sample("quackd_build_info", &[("version", &supervisor.version)], 1);
    let up = Some(seconds(supervisor.uptime));
    text.one("quackd_uptime_seconds", Kind::Gauge, "Since the daemon started.", up);
    let rss = supervisor.rss_kb.map(bytes);
    text.one("quackd_resident_memory_bytes", Kind::Gauge, "Of the daemon itself.", rss);
    let cpu = supervisor.cpu_ms.map(seconds);
    text.one("quackd_cpu_seconds_total", Kind::Counter, "Of the daemon itself.", cpu);
    let files = supervisor.open_files;
    text.one("quackd_open_fds", Kind::Gauge, "Descriptors that the daemon has open.", files);
    let lag = supervisor.loop_lag;
    text.family(
        "quackd_loop_lag_seconds",
        Kind::Gauge,
        "How late timers of the daemon were in the last minute.",
    );
    for (quantile, us) in [("0.99", lag.p99_us), ("1", lag.max_us)] {
        let late = Duration::from_micros(us).as_secs_f64();
        text.sample("quackd_loop_lag_seconds", &[("quantile", quantile)], late);
    }
    if let Some(disk) = supervisor.disk {
        let free = Some(disk.free_bytes);
        text.one("quackd_disk_free_bytes", Kind::Gauge, "Of the state directory's disk.", free);
    }
}

fn sessions(text: &mut Exposition, data: &PsData) {
    let (supervisor, workers) = (&data.supervisor, &data.workers);
    let gauge = |text: &mut Exposition, name: &str, help: &str, n: usize| {
        text.one(name, Kind::Gauge, help, Some(n));
    };
    gauge(text, "quackd_clients", "Clients connected.", supervisor.clients);
    gauge(text, "quackd_sessions", "Sessions known.", supervisor.sessions);
    let name = "quackd_sessions_status";
    text.family(name, Kind::Gauge, "Sessions used since the daemon started, by what they do.");
    for status in STATUSES {
        let n = workers.iter().filter(|worker| worker.status.status == status).count();
        text.sample(name, &[("status", status.name())], n);
    }
    text.family("quackd_workers", Kind::Gauge, "Workers of these sessions, by state.");
    for state in STATES {
        let n = workers.iter().filter(|worker| worker.state == state).count();
        text.sample("quackd_workers", &[("state", state)], n);
    }
    let in_flight = workers.iter().map(|worker| worker.calls.len()).sum();
    gauge(text, "quackd_tool_calls_in_flight", "Calls that are not answered.", in_flight);
    let places = supervisor.places;
    gauge(text, "quackd_commands_running", "Commands that have a place.", places.running);
    gauge(text, "quackd_commands_waiting", "Calls that wait for a place.", places.waiting);
    gauge(text, "quackd_commands_max", "Places for commands.", places.max);
    gauge(text, "quackd_background_jobs", "Background jobs that run.", places.jobs);
    let used = || workers.iter().filter_map(|worker| worker.usage);
    let processes: u64 = used().map(|usage| u64::from(usage.processes)).sum();
    let memory: u64 = used().map(|usage| bytes(usage.rss_kb)).sum();
    let help = "Workers, Pis and everything below them.";
    text.one("quackd_session_processes", Kind::Gauge, help, Some(processes));
    let help = "Their resident memory; what they share is counted for each.";
    text.one("quackd_session_memory_bytes", Kind::Gauge, help, Some(memory));
}

/// What waits in the daemon's memory for somebody who has not read it.
fn queues(text: &mut Exposition, services: &Services) {
    let bytes = Some(services.sessions.metrics.queued_bytes.get());
    let help = "Replies and events that clients have not taken yet.";
    text.one("quackd_client_queue_bytes", Kind::Gauge, help, bytes);
    let bytes = Some(services.sessions.events.kept_bytes());
    let help = "Events that are kept for those who follow a session.";
    text.one("quackd_event_ring_bytes", Kind::Gauge, help, bytes);
}

/// A series for each kind of child and of cause of which there was one.
fn deaths(text: &mut Exposition, counts: &[(&str, &str, u64)]) {
    const NAME: &str = "quackd_child_deaths_by_cause_total";
    text.family(NAME, Kind::Counter, "The same deaths, by kind of child and by cause.");
    for (child, cause, n) in counts {
        text.sample(NAME, &[("child", child), ("cause", cause)], n);
    }
}

fn totals(text: &mut Exposition, data: &PsData, counted: &Metrics) {
    let supervisor = &data.supervisor;
    for (name, help, n) in [
        ("quackd_events_total", "Events of all sessions.", supervisor.events),
        ("quackd_child_deaths_total", "Workers and Pis that died.", supervisor.deaths_total),
        (
            "quackd_evictions_total",
            "Processes ended because nobody used them.",
            supervisor.evictions,
        ),
        (
            "quackd_clients_refused_total",
            "Clients that were not let in.",
            counted.refused_clients.get(),
        ),
        (
            "quackd_clients_slow_total",
            "Clients disconnected because they did not read.",
            supervisor.slow_clients,
        ),
        ("quackd_bad_lines_total", "Lines too long, or no JSON.", counted.bad_lines.get()),
        (
            "quackd_answers_unread_total",
            "Answers for clients that had left.",
            counted.unread_answers.get(),
        ),
        (
            "quackd_strays_killed_total",
            "Processes killed after their monitor was gone.",
            supervisor.strays_killed,
        ),
        (
            "quackd_survivors_total",
            "Processes of commands that could not be ended.",
            supervisor.survivors,
        ),
        (
            "quackd_outputs_deleted_total",
            "Files of long outputs deleted for want of room.",
            supervisor.spills_deleted,
        ),
        (
            "quackd_log_lines_dropped_total",
            "Lines that are missing in the log.",
            supervisor.log_lines_dropped,
        ),
    ] {
        text.one(name, Kind::Counter, help, Some(n));
    }
}

fn calls(text: &mut Exposition, histograms: &[Histogram]) {
    const NAME: &str = "quackd_tool_call_duration_seconds";
    text.family(NAME, Kind::Histogram, "From a call's arrival to its answer, by tool and outcome.");
    for Histogram { tool, outcome, cumulative, count, sum } in histograms {
        let bucket = format!("{NAME}_bucket");
        let of = [("tool", *tool), ("outcome", *outcome)];
        let [tool, outcome] = of;
        for ((_, le), n) in BOUNDS.iter().zip(cumulative) {
            text.sample(&bucket, &[tool, outcome, ("le", le)], n);
        }
        text.sample(&bucket, &[tool, outcome, ("le", "+Inf")], count);
        text.sample(&format!("{NAME}_sum"), &of, sum.as_secs_f64());
        text.sample(&format!("{NAME}_count"), &of, count);
    }
}
