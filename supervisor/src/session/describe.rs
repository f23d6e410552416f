//! Converts the published state of a session to the types of the protocol.

use crate::clock::ms;
use crate::pool::snapshot::{AgentSnapshot, CallSnapshot, JobSnapshot, SessionSnapshot};
use crate::session::pending_calls::call_id;
use quackd_protocol::agent::Engine;
use quackd_protocol::client::{CallInfo, PiInfo, RunningJob, WorkerInfo};
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::metadata::Session;
use std::time::{Duration, Instant};

/// The session's row in `ps`, without its label and its usage.
pub(crate) fn worker_info(
    session: &Session,
    workspace: &str,
    isolated: Option<&CopiedTree>,
    snapshot: &SessionSnapshot,
    pinned: bool,
) -> WorkerInfo {
    let now = Instant::now();
    let worker = &snapshot.worker;
    let (hello, process) = (worker.hello.as_ref(), &worker.process);
    let life = process.child.life(now);
    let idle_since = process.free_since.filter(|_| !pinned);
    let far = FarWorkspace::of_session(workspace, isolated);
    let latency = process.child.latency.filter(|_| far.is_some());

    WorkerInfo {
        session_id: session.id.clone(),
        session_name: session.name.clone(),
        label: String::new(),
        workspace_path: workspace.to_owned(),
        state: worker.state(),
        // That of a far worker means another process here.
        pid: hello.filter(|_| far.is_none()).map(|hello| hello.pid),
        monitor_pid: process.child.monitor_pid,
        started_at: process.child.started_at.as_ref().map(ToString::to_string),
        restarts: life.crashes,
        tier: hello.and_then(|hello| hello.sandbox.tier),
        policy: hello.and_then(|hello| hello.sandbox.policy),
        network: hello.map(|hello| hello.sandbox.network),
        hosts: worker.has_hosts(),
        last_death: life.last_cause.clone(),
        calls: worker.calls.iter().map(|call| call_info(call, now)).collect(),
        jobs: jobs(&worker.jobs, now),
        servers: Vec::new(),
        pi: snapshot.agent.has_run.then(|| pi_info(&snapshot.agent, pinned, now)),
        status: snapshot.status(pinned, now),
        why: match &worker.link {
            Some(notice) => notice.to_string(),
            None => process.activity.why(pinned, now),
        },
        place: far.map(|far| far.place().to_owned()),
        latency_ms: latency.map(shown_latency),
        rss_kb: None,
        usage: None,
        pending: worker.pending.as_deref().cloned(),
        idle_ms: idle_since.map(|since| ms(now.saturating_duration_since(since))),
        life,
    }
}

/// Milliseconds, at least 1.
fn shown_latency(time: Duration) -> u64 {
    ms(time).max(1)
}

fn pi_info(pi: &AgentSnapshot, pinned: bool, now: Instant) -> PiInfo {
    let child = &pi.process.child;
    let life = child.life(now);
    PiInfo {
        native: pi.engine == Engine::Native,
        state: child.state(),
        busy: pi.is_busy,
        pid: pi.pids.map(|(_, pi)| pi),
        worker_pid: pi.pids.map(|(worker, _)| worker),
        monitor_pid: child.monitor_pid,
        started_at: child.started_at.as_ref().map(ToString::to_string),
        restarts: life.crashes,
        last_death: life.last_cause.clone(),
        rss_kb: None,
        why: pi.process.activity.why(pinned, now),
        life,
    }
}

pub(crate) fn call_info(call: &CallSnapshot, now: Instant) -> CallInfo {
    CallInfo {
        call_id: call_id(call.number).0,
        tool: call.tool.to_string(),
        elapsed_ms: ms(now.saturating_duration_since(call.since)),
        deadline_ms: ms(call.deadline),
        tool_call_id: call.event_id.as_deref().map(str::to_owned),
    }
}

/// Background jobs with their age.
pub(crate) fn jobs(jobs: &[JobSnapshot], now: Instant) -> Vec<RunningJob> {
    let row = |JobSnapshot { info, since }: &JobSnapshot| RunningJob {
        job_id: info.id.clone(),
        command: info.command.clone(),
        elapsed_ms: ms(now.saturating_duration_since(*since)),
        terminal: info.terminal.is_some(),
    };
    jobs.iter().map(row).collect()
}
