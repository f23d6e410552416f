//! The first call of a session: startup time of its worker, and the disk's part of an `attach`.

use super::Effort;
use crate::daemon::Daemon;
use crate::report::{Row, Target, Unit};
use crate::samples::time_rounds;
use crate::wire::{Line, Wire};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let rounds = effort.rounds(30);
    let mut daemon = Daemon::start()?;
    let Attached { sessions, to_reply, to_answer } = attach(&daemon, rounds)?;
    let syncs = durable_replace(&daemon.app(), rounds)?;
    // Stops the workers; the sessions remain.
    daemon.stop()?;
    daemon.boot()?;
    let (cold, warm) = first_calls(&mut daemon.wire()?, &sessions)?;
    daemon.stop()?;
    let overhead: Vec<f64> = cold.iter().zip(&warm).map(|(cold, warm)| cold - warm).collect();
    let seconds = Unit::Seconds;
    let attach_target = Target::must_aim(0.05, 0.01);
    Ok(vec![
        Row::new(
            "worker spawn to ready (first call - second)",
            seconds,
            Target::must(0.01),
            overhead,
        )?,
        Row::new("attach of a fresh directory to its reply", seconds, Target::NONE, to_reply)?,
        Row::new("  of it the disk: write, fsync, rename, fsync", seconds, Target::NONE, syncs)?,
        Row::new("attach to the first answered read_file", seconds, attach_target, to_answer)?,
    ])
}

struct Attached {
    sessions: Vec<String>,
    to_reply: Vec<f64>,
    to_answer: Vec<f64>,
}

/// Attaches to new directories, and immediately calls a tool.
fn attach(daemon: &Daemon, rounds: usize) -> anyhow::Result<Attached> {
    let mut wire = daemon.wire()?;
    let mut attached =
        Attached { sessions: Vec::new(), to_reply: Vec::new(), to_answer: Vec::new() };
    for round in 0..rounds {
        let repo = daemon.repo(&format!("r{round}"))?;
        let begin = Instant::now();
        let session = wire.attach(&repo)?;
        attached.to_reply.push(begin.elapsed().as_secs_f64());
        wire.call(&Line::read_file(&session, "2k"))?;
        attached.to_answer.push(begin.elapsed().as_secs_f64());
        attached.sessions.push(session);
    }
    Ok(attached)
}

/// Measures the first call of each session, which starts its worker, and the second. No disk write is
/// involved, because the sessions exist already.
fn first_calls(wire: &mut Wire, sessions: &[String]) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for session in sessions {
        let call = Line::read_file(session, "2k");
        for times in [&mut cold, &mut warm] {
            let begin = Instant::now();
            wire.call(&call)?;
            times.push(begin.elapsed().as_secs_f64());
        }
    }
    Ok((cold, warm))
}

/// Measures a durable write of the metadata's size in the same directory.
fn durable_replace(dir: &Path, rounds: usize) -> anyhow::Result<Vec<f64>> {
    let content = std::fs::read(dir.join("metadata.json"))?;
    let (new, name) = (dir.join("bench.new"), dir.join("bench.json"));
    let times = time_rounds(rounds, Duration::from_secs(5), || {
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&content)?;
        file.sync_all()?;
        #[expect(clippy::disallowed_methods, reason = "its cost is what is measured")]
        std::fs::rename(&new, &name)?;
        std::fs::File::open(dir)?.sync_all()?;
        Ok(())
    })?;
    std::fs::remove_file(&name)?;
    Ok(times)
}
