//! Many sessions with one worker each: startup time, memory, and idle processor time.

use super::Effort;
use crate::daemon::Daemon;
use crate::processes::{pause, processor_seconds, pss, resident, tree};
use crate::report::{MIB, Row, Target, Unit};
use crate::wire::{Line, Wire, session_id};
use anyhow::Context;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time after which an idle worker's helper threads have exited.
const SETTLE_TIME: Duration = Duration::from_secs(11);

/// Duration of the idle measurement. Together with [`SETTLE_TIME`] it contains one idle heartbeat, which is sent
/// every 30 s.
const IDLE: Duration = Duration::from_secs(24);

/// Two hundred sessions with detailed measures.
pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    const SESSIONS: usize = 200;
    let mut daemon = Daemon::start()?;
    let mut wire = daemon.wire()?;
    let before = resident(daemon.pid()?)?;
    let up = raise(&daemon, &mut wire, SESSIONS)?;
    let after_calls = memory(&mut wire, SESSIONS)?;
    if !effort.quick {
        pause(SETTLE_TIME);
    }
    let idle = memory(&mut wire, SESSIONS)?;
    let supervisor = (resident(daemon.pid()?)?, pss(daemon.pid()?)?);
    let idle_load = idle_load(daemon.pid()?, if effort.quick { IDLE / 8 } else { IDLE })?;
    daemon.stop()?;

    let row = |name: &str, unit, target, values| {
        Row::new(format!("{SESSIONS} sessions: {name}"), unit, target, values)
    };
    let (bytes, none) = (Unit::Bytes, Target::NONE);
    let idle_target = Target::must_aim(1.0, 0.2);
    Ok(vec![
        row("attached, each answered", Unit::Seconds, Target::must_aim(5.0, 1.0), vec![up])?,
        row("PSS per idle worker and monitor", bytes, WORKER_PSS, idle.both)?,
        row("  of it the worker", bytes, none, idle.workers)?,
        row("  of it the monitor", bytes, none, idle.monitors)?,
        row("  both, right after a call", bytes, none, after_calls.both)?,
        row("supervisor RSS before the first", bytes, none, vec![before])?,
        row("supervisor RSS", bytes, Target::must_aim(48.0 * MIB, 32.0 * MIB), vec![supervisor.0])?,
        row("supervisor PSS", bytes, none, vec![supervisor.1])?,
        row("idle, of one core", Unit::Percent, idle_target, vec![idle_load])?,
    ])
}

/// A thousand sessions: whether they start, and their cost.
pub(super) fn measure_thousand(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let sessions = effort.rounds(1000);
    let mut daemon = Daemon::start()?;
    let mut wire = daemon.wire()?;
    let up = raise(&daemon, &mut wire, sessions)?;
    if !effort.quick {
        pause(SETTLE_TIME);
    }
    let idle = memory(&mut wire, sessions)?;
    let supervisor = resident(daemon.pid()?)?;
    let stop = daemon.stop()?.as_secs_f64();
    let row = |name: &str, unit, target, value| {
        Row::new(format!("{sessions} sessions: {name}"), unit, target, value)
    };
    let supervisor_target = Target::must(64.0 * MIB);
    Ok(vec![
        row("attached, each answered", Unit::Seconds, Target::must(3.0), vec![up])?,
        row("PSS per worker and monitor", Unit::Bytes, WORKER_PSS, idle.both)?,
        row("supervisor RSS", Unit::Bytes, supervisor_target, vec![supervisor])?,
        row("all ended", Unit::Seconds, Target::NONE, vec![stop])?,
    ])
}

const WORKER_PSS: Target = Target { must: Some(MIB), aim: Some(0.5 * MIB), judges_p99: false };

/// Attaches to `sessions` directories concurrently and calls a tool in each session when it is ready. Returns
/// the seconds until every call has its reply.
fn raise(daemon: &Daemon, wire: &mut Wire, sessions: usize) -> anyhow::Result<f64> {
    let repos: Vec<PathBuf> =
        (0..sessions).map(|n| daemon.repo(&format!("r{n}"))).collect::<anyhow::Result<_>>()?;
    let begin = Instant::now();
    for repo in &repos {
        wire.send(&Line::new(0, "attach", &json!({"path": repo})))?;
    }
    let mut answered = 0;
    while answered < sessions {
        let attached = wire.reply(|reply| match reply.id {
            Some(0) => Ok(Some(session_id(&serde_json::from_str(reply.data()?)?)?)),
            _ => reply.expect_success().map(|()| None),
        })?;
        match attached {
            Some(session) => {
                wire.send(&Line::call(1, &session, "read_file", &json!({"path": "2k"})))?;
            }
            None => answered += 1,
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Proportional set sizes, one value per worker.
struct Memory {
    workers: Vec<f64>,
    monitors: Vec<f64>,
    both: Vec<f64>,
}

fn memory(wire: &mut Wire, sessions: usize) -> anyhow::Result<Memory> {
    let ps = wire.request("quack.ps", &json!({}))?;
    let listed = ps.get("workers").and_then(Value::as_array).context("no workers in ps")?;
    anyhow::ensure!(listed.len() == sessions, "{} workers instead of {sessions}", listed.len());
    let mut memory = Memory { workers: Vec::new(), monitors: Vec::new(), both: Vec::new() };
    for worker in listed {
        let of = |key: &str| {
            let pid = worker.get(key).and_then(Value::as_i64).context("a worker without a pid")?;
            pss(i32::try_from(pid)?)
        };
        let (worker, monitor) = (of("pid")?, of("monitorPid")?);
        memory.workers.push(worker);
        memory.monitors.push(monitor);
        memory.both.push(worker + monitor);
    }
    Ok(memory)
}

/// Returns the processor time of the supervisor and its descendants without requests, in percent of a core.
fn idle_load(pid: i32, time: Duration) -> anyhow::Result<f64> {
    let processes = tree(pid);
    let begin = Instant::now();
    let before = processor_seconds(&processes)?;
    pause(time);
    let used = processor_seconds(&processes)? - before;
    Ok(used / begin.elapsed().as_secs_f64() * 100.0)
}
