//! `quack.tree`: every kind of child process and thread, with its limits and running instances.

use super::ps::processes;
use super::{Caller, Serve};
use crate::children::OneShot;
use crate::clock::ms;
use crate::errors::MethodError;
use crate::services::Services;
use quackd_protocol::client::{
    ErrandInfo, HeartbeatInfo, PsData, SpecInfo, TreeChild, TreeData, TreeParams, TreeWorker,
    WorkerInfo,
};
use quackd_supervision::{
    AGENT, CauseKind, ChildSpec, EGRESS_THREAD, Form, METRICS_THREAD, REMOTE_THREAD, Restart,
    SESSION_WORKER, TREE,
};

impl Serve<TreeParams> for Caller {
    async fn serve(&self, _: TreeParams) -> Result<TreeData, MethodError> {
        let services = &self.services;
        let PsData { supervisor, workers, deaths, .. } =
            processes(services, &self.registry).await?;

        let remote_runs = services.remote.status().await.enabled;
        let child = |spec: &&ChildSpec| TreeChild {
            spec: describe(spec),
            workers: of(spec, &workers),
            errand: one_shot(spec, services),
            running: (spec.form == Form::Thread).then(|| match spec.name {
                name if name == EGRESS_THREAD.name => services.sessions.egress.is_running(),
                name if name == REMOTE_THREAD.name => remote_runs,
                name if name == METRICS_THREAD.name => services.metrics_endpoint.is_running(),
                // The daemon could not reply without the other threads.
                _ => true,
            }),
        };

        Ok(TreeData {
            pid: supervisor.pid,
            uptime: supervisor.uptime,
            rss_kb: supervisor.rss_kb,
            loop_lag: supervisor.loop_lag,
            pauses: services.loop_monitor.pauses(),
            children: TREE.iter().map(child).collect(),
            deaths_total: supervisor.deaths_total,
            deaths,
        })
    }
}

/// Returns the last run of a kind of short-lived process. `None` for other kinds.
fn one_shot(spec: &ChildSpec, services: &Services) -> Option<ErrandInfo> {
    let children = &services.sessions.children;
    let [copies, states] = children.isolation.one_shots();
    let one_shots = [
        children.login.one_shot(),
        children.probing.one_shot(),
        copies,
        states,
        children.tool_registries.one_shot(),
        children.credentials.one_shot(),
        children.errands.one_shot(),
        children.repo_cleanup.process(),
    ];

    let mut one_shots = one_shots.into_iter();
    one_shots.find(|process| process.spec().name == spec.name).map(OneShot::describe)
}

/// Returns the running processes of one kind.
fn of(spec: &ChildSpec, workers: &[WorkerInfo]) -> Vec<TreeWorker> {
    if spec.name == SESSION_WORKER.name {
        return workers.iter().map(session_worker).collect();
    }
    if spec.name == AGENT.name {
        return workers.iter().filter_map(pi_worker).collect();
    }
    Vec::new()
}

fn session_worker(worker: &WorkerInfo) -> TreeWorker {
    TreeWorker {
        session_id: worker.session_id.0.clone(),
        session_name: worker.session_name.clone(),
        label: worker.label.clone(),
        monitor_pid: worker.monitor_pid,
        pid: worker.pid,
        started_at: worker.started_at.clone(),
        rss_kb: worker.rss_kb,
        life: worker.life.clone(),
        why: worker.why.clone(),
    }
}

fn pi_worker(worker: &WorkerInfo) -> Option<TreeWorker> {
    let pi = worker.pi.as_ref()?;
    Some(TreeWorker {
        monitor_pid: pi.monitor_pid,
        pid: pi.worker_pid,
        started_at: pi.started_at.clone(),
        rss_kb: pi.rss_kb,
        life: pi.life.clone(),
        why: pi.why.clone(),
        ..session_worker(worker)
    })
}

fn describe(spec: &ChildSpec) -> SpecInfo {
    let restarts = matches!(spec.restart, Restart::Permanent | Restart::Transient);
    // Without restarts, their limits and delays have no effect.
    let only = |time| if restarts { ms(time) } else { 0 };

    SpecInfo {
        name: spec.name.to_owned(),
        about: spec.about.to_owned(),
        form: spec.form.name().to_owned(),
        restart: spec.restart.name().to_owned(),
        intensity: spec.intensity,
        period_ms: only(spec.period),
        forgiveness_ms: only(spec.forgiveness),
        backoff_min_ms: only(spec.backoff.min),
        backoff_max_ms: only(spec.backoff.max),
        jitter_percent: spec.backoff.jitter_percent,
        start_ms: ms(spec.start),
        shutdown_ms: ms(spec.shutdown),
        heartbeat: spec.heartbeat.map(|beat| HeartbeatInfo {
            busy_ms: ms(beat.busy),
            idle_ms: ms(beat.idle),
            missed: beat.missed,
            kill_ms: ms(beat.kill),
        }),
        terminal: spec.terminal.iter().map(|kind: &CauseKind| kind.name().to_owned()).collect(),
    }
}
