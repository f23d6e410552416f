//! `quack.metrics`: the daemon's metrics in Prometheus' text format. Contains neither session names nor paths.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::metrics::Metrics;
use crate::metrics::call_latency::{BOUNDS, Histogram};
use crate::metrics::prometheus_text::{CONTENT_TYPE, MetricType, PrometheusText};
use crate::registry::Registry;
use crate::services::Services;
use actix::Addr;
use quackd_protocol::client::{MetricsData, MetricsParams, ProcessState, PsData, SessionStatus};
use std::time::Duration;

/// The statuses of a session.
const STATUSES: [SessionStatus; 5] = [
    SessionStatus::Waiting,
    SessionStatus::Working,
    SessionStatus::Idle,
    SessionStatus::Stopped,
    SessionStatus::Failed,
];

impl Serve<MetricsParams> for Caller {
    async fn serve(&self, _: MetricsParams) -> Result<MetricsData, MethodError> {
        let text = metrics_text(&self.services, &self.registry).await?;
        Ok(MetricsData { content_type: CONTENT_TYPE.to_owned(), text })
    }
}

/// Returns the metrics as text. Also used by the HTTP endpoint.
pub(crate) async fn metrics_text(
    services: &Services,
    registry: &Addr<Registry>,
) -> Result<String, MethodError> {
    let data = super::ps::processes(services, registry).await?;
    let counted = &services.sessions.metrics;

    let mut text = PrometheusText::default();
    daemon(&mut text, &data);
    sessions(&mut text, &data);
    queues(&mut text, services);
    totals(&mut text, &data, counted);
    deaths(&mut text, &services.sessions.children.deaths.by_cause());
    network(&mut text, counted);
    calls(&mut text, &counted.calls.histograms());
    Ok(text.finish())
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

fn bytes(kb: u64) -> u64 {
    kb.saturating_mul(1024)
}

fn daemon(text: &mut PrometheusText, data: &PsData) {
    let supervisor = &data.supervisor;
    let (name, help) = ("quackd_build_info", "Always 1; the label is the daemon's version.");
    text.family(name, MetricType::Gauge, help);
    text.sample(name, &[("version", &supervisor.version)], 1);

    let up = Some(seconds(supervisor.uptime));
    text.one("quackd_uptime_seconds", MetricType::Gauge, "Since the daemon started.", up);
    let rss = supervisor.rss_kb.map(bytes);
    text.one("quackd_resident_memory_bytes", MetricType::Gauge, "Of the daemon itself.", rss);
    let cpu = supervisor.cpu_ms.map(seconds);
    text.one("quackd_cpu_seconds_total", MetricType::Counter, "Of the daemon itself.", cpu);
    let files = supervisor.open_files;
    text.one("quackd_open_fds", MetricType::Gauge, "Descriptors that the daemon has open.", files);

    let lag = supervisor.loop_lag;
    let name = "quackd_loop_lag_seconds";
    let help = "How late timers of the daemon were in the last minute.";
    text.family(name, MetricType::Gauge, help);
    for (quantile, us) in [("0.99", lag.p99_us), ("1", lag.max_us)] {
        let late = Duration::from_micros(us).as_secs_f64();
        text.sample(name, &[("quantile", quantile)], late);
    }

    let free = supervisor.disk.map(|disk| disk.free_bytes);
    let help = "Of the state directory's disk.";
    text.one("quackd_disk_free_bytes", MetricType::Gauge, help, free);
}

fn sessions(text: &mut PrometheusText, data: &PsData) {
    let (supervisor, workers) = (&data.supervisor, &data.workers);
    let gauge = |text: &mut PrometheusText, name: &str, help: &str, n: usize| {
        text.one(name, MetricType::Gauge, help, Some(n));
    };
    gauge(text, "quackd_clients", "Clients connected.", supervisor.clients);
    gauge(text, "quackd_sessions", "Sessions known.", supervisor.sessions);

    let name = "quackd_sessions_status";
    let help = "Sessions used since the daemon started, by what they do.";
    text.family(name, MetricType::Gauge, help);
    for status in STATUSES {
        let n = workers.iter().filter(|worker| worker.status.status == status).count();
        text.sample(name, &[("status", status.name())], n);
    }

    text.family("quackd_workers", MetricType::Gauge, "Workers of these sessions, by state.");
    for state in ProcessState::ALL {
        let n = workers.iter().filter(|worker| worker.state == state).count();
        text.sample("quackd_workers", &[("state", state.name())], n);
    }

    let in_flight = workers.iter().map(|worker| worker.calls.len()).sum();
    gauge(text, "quackd_tool_calls_in_flight", "Calls without a reply.", in_flight);
    let places = supervisor.places;
    gauge(text, "quackd_commands_running", "Commands that hold a command slot.", places.running);
    gauge(text, "quackd_commands_waiting", "Calls that wait for a command slot.", places.waiting);
    gauge(text, "quackd_commands_max", "Number of command slots.", places.max);
    gauge(text, "quackd_background_jobs", "Background jobs that run.", places.jobs);

    let used = || workers.iter().filter_map(|worker| worker.usage);
    let processes: u64 = used().map(|usage| u64::from(usage.processes)).sum();
    let memory: u64 = used().map(|usage| bytes(usage.rss_kb)).sum();
    let far = || workers.iter().filter(|worker| worker.place.is_some());
    let running = far().filter(|worker| worker.monitor_pid.is_some()).count();
    gauge(text, "quackd_far_workers", "Links to workers on other machines.", running);
    let longest = far().filter_map(|worker| worker.latency_ms).max().map(seconds);
    let help = "Longest of the last round trips to these workers.";
    text.one("quackd_far_latency_seconds", MetricType::Gauge, help, longest);

    let help = "Workers, Pis and everything below them.";
    text.one("quackd_session_processes", MetricType::Gauge, help, Some(processes));
    let help = "Resident memory of workers, Pis and everything below them; shared memory counts for each process.";
    text.one("quackd_session_memory_bytes", MetricType::Gauge, help, Some(memory));
}

/// Metrics of data that waits for clients to read it.
fn queues(text: &mut PrometheusText, services: &Services) {
    let bytes = Some(services.sessions.metrics.queued_bytes.get());
    let help = "Replies and events that clients have not read yet.";
    text.one("quackd_client_queue_bytes", MetricType::Gauge, help, bytes);

    let bytes = Some(services.sessions.events.buffered_bytes());
    let help = "Events that are kept for followers.";
    text.one("quackd_event_ring_bytes", MetricType::Gauge, help, bytes);
}

/// One series for each kind of child and of cause that has occurred.
fn deaths(text: &mut PrometheusText, counts: &[(&str, &str, u64)]) {
    const NAME: &str = "quackd_child_deaths_by_cause_total";
    text.family(NAME, MetricType::Counter, "The same deaths, by kind of child and by cause.");
    for (child, cause, n) in counts {
        text.sample(NAME, &[("child", child), ("cause", cause)], n);
    }
}

/// Requests of commands for hosts. Never names a host: names can be secret, and their number is unbounded.
fn network(text: &mut PrometheusText, counted: &Metrics) {
    const NAME: &str = "quackd_network_requests_total";
    text.family(NAME, MetricType::Counter, "Requests of commands for hosts, by outcome.");
    for (outcome, n) in [
        ("allowed", counted.network_allowed.get()),
        ("denied", counted.network_denied.get()),
        ("failed", counted.network_failed.get()),
    ] {
        text.sample(NAME, &[("outcome", outcome)], n);
    }

    const ASKED: &str = "quackd_approvals_total";
    text.family(ASKED, MetricType::Counter, "Questions to the user, by event.");
    for (event, n) in [
        ("asked", counted.approvals_asked.get()),
        ("allowed", counted.approvals_allowed.get()),
        ("denied", counted.approvals_denied.get()),
        ("expired", counted.approvals_expired.get()),
    ] {
        text.sample(ASKED, &[("event", event)], n);
    }

    let (sent, received) = (counted.network_sent.get(), counted.network_received.get());
    for (name, help, n) in [
        ("quackd_network_sent_bytes_total", "Bytes from commands to hosts.", sent),
        ("quackd_network_received_bytes_total", "Bytes from hosts to commands.", received),
    ] {
        text.one(name, MetricType::Counter, help, Some(n));
    }
}

fn totals(text: &mut PrometheusText, data: &PsData, counted: &Metrics) {
    let supervisor = &data.supervisor;
    let Metrics { refused_clients: refused, bad_lines: bad, unread_answers: unread, .. } = counted;
    let (killed, survivors) = (supervisor.strays_killed, supervisor.survivors);
    let (deleted, dropped) = (supervisor.spills_deleted, supervisor.log_lines_dropped);

    for (name, help, n) in [
        ("quackd_events_total", "Events of all sessions.", supervisor.events),
        ("quackd_child_deaths_total", "Workers and Pis that died.", supervisor.deaths_total),
        ("quackd_evictions_total", "Idle processes that were evicted.", supervisor.evictions),
        ("quackd_clients_refused_total", "Clients that were refused.", refused.get()),
        (
            "quackd_clients_slow_total",
            "Clients disconnected because they did not read.",
            supervisor.slow_clients,
        ),
        ("quackd_bad_lines_total", "Lines that were too long or not JSON.", bad.get()),
        ("quackd_answers_unread_total", "Replies to clients that had disconnected.", unread.get()),
        ("quackd_strays_killed_total", "Processes killed after their monitor was gone.", killed),
        ("quackd_survivors_total", "Processes of commands that could not be killed.", survivors),
        (
            "quackd_outputs_deleted_total",
            "Spill files that were deleted because of limits.spill_mb or their age.",
            deleted,
        ),
        ("quackd_log_lines_dropped_total", "Lines that are missing in the log.", dropped),
    ] {
        text.one(name, MetricType::Counter, help, Some(n));
    }
}

fn calls(text: &mut PrometheusText, histograms: &[Histogram]) {
    const NAME: &str = "quackd_tool_call_duration_seconds";
    const HELP: &str = "From a call's arrival to its answer, by tool and outcome.";
    text.family(NAME, MetricType::Histogram, HELP);
    for Histogram { tool, outcome, cumulative, count, sum } in histograms {
        let bucket = format!("{NAME}_bucket");
        let of = [("tool", *tool), ("outcome", *outcome)];
        let [tool, outcome] = of;
        for (le, n) in BOUNDS.iter().zip(cumulative) {
            text.sample(&bucket, &[tool, outcome, ("le", le.to_string().as_str())], n);
        }
        text.sample(&bucket, &[tool, outcome, ("le", "+Inf")], count);
        text.sample(&format!("{NAME}_sum"), &of, sum.as_secs_f64());
        text.sample(&format!("{NAME}_count"), &of, count);
    }
}
