//! A worker is killed during a call: time until the caller gets the error.

use super::Effort;
use crate::daemon::{Daemon, wait_for_file};
use crate::report::{Row, Target, Unit};
use crate::wire::{Line, ToolResult, Wire};
use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::time::Instant;

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let mut wire = daemon.wire()?;
    let mut times = Vec::new();
    for round in 0..effort.rounds(20) {
        // A new session each time, because restarts of a crashing one are delayed.
        let repo = daemon.repo(&format!("r{round}"))?;
        let session = wire.attach(&repo)?;
        wire.send(&Line::bash(&session, "touch started; sleep 60"))?;
        wait_for_file(&repo.join("started"))?;
        let worker = worker_pid(&mut daemon.wire()?, &session)?;
        let begin = Instant::now();
        kill(worker, Signal::SIGKILL)?;
        let text = wire.reply(|reply| {
            let result: ToolResult<'_> = serde_json::from_str(reply.data()?)?;
            Ok(result.text.get().to_owned())
        })?;
        times.push(begin.elapsed().as_secs_f64());
        anyhow::ensure!(text.contains("Worker died during bash (signal 9)"), "answered {text}");
    }
    daemon.stop()?;
    let target = Target::must_aim(1.0, 0.05).of_p99();
    Ok(vec![Row::new("worker death to client error", Unit::Seconds, target, times)?])
}

fn worker_pid(wire: &mut Wire, session: &str) -> anyhow::Result<Pid> {
    let ps = wire.request("quack.ps", &json!({}))?;
    let mut workers = ps.get("workers").and_then(Value::as_array).into_iter().flatten();
    let of_session = |worker: &&Value| worker.get("sessionId").is_some_and(|id| id == session);
    let pid = workers.find(of_session).and_then(|worker| worker.get("pid")?.as_i64());
    Ok(Pid::from_raw(i32::try_from(pid.context("the session has no worker")?)?))
}
