//! Commands with endless output: throughput, resources of the worker, and latency for other clients.

use super::Effort;
use crate::daemon::Daemon;
use crate::processes::{pause, peak_resident};
use crate::report::{MIB, Row, Target, Unit};
use crate::wire::{Line, Wire};
use anyhow::Context;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Sessions that produce output while another client sends pings.
const FLOODING: usize = 8;

/// Duration of the output, and the interval of the pings.
const FLOOD: Duration = Duration::from_secs(4);
const PING_PAUSE: Duration = Duration::from_millis(2);

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let mut wire = daemon.wire()?;
    let session = wire.attach(&daemon.repo("a")?)?;
    let mib = if effort.quick { 64 } else { 1024 };
    let flood = Line::bash(&session, &format!("head -c {mib}M /dev/zero"));
    // Warm up with a command without output.
    wire.call(&Line::bash(&session, "true"))?;
    let mut rates = Vec::new();
    for _ in 0..3 {
        let begin = Instant::now();
        wire.call(&flood)?;
        rates.push(f64::from(mib) * MIB / begin.elapsed().as_secs_f64());
    }
    let ps = wire.request("quack.ps", &json!({}))?;
    let pid = ps.pointer("/workers/0/pid").and_then(Value::as_i64).context("no worker in ps")?;
    let peak = peak_resident(i32::try_from(pid)?)?;
    let pings = pings_among_floods(&daemon, effort)?;
    let supervisor = peak_resident(daemon.pid()?)?;
    daemon.stop()?;
    let ping_target = Target::must_aim(20e-3, 5e-3).of_p99();
    let none = Target::NONE;
    Ok(vec![
        Row::new(format!("flood of {mib} MiB: drained"), Unit::BytesPerSecond, none, rates)?,
        Row::new("flood: peak RSS of the worker", Unit::Bytes, none, vec![peak])?,
        Row::new(
            format!("ping while {FLOODING} sessions flood"),
            Unit::Seconds,
            ping_target,
            pings,
        )?,
        Row::new("  peak RSS of the supervisor", Unit::Bytes, none, vec![supervisor])?,
    ])
}

fn pings_among_floods(daemon: &Daemon, effort: Effort) -> anyhow::Result<Vec<f64>> {
    let flood = if effort.quick { FLOOD / 4 } else { FLOOD };
    let mut flooding = Vec::new();
    for n in 0..FLOODING {
        let mut wire = daemon.wire()?;
        let session = wire.attach(&daemon.repo(&format!("f{n}"))?)?;
        wire.call(&Line::bash(&session, "true"))?;
        flooding.push((wire, session));
    }
    for (wire, session) in &mut flooding {
        let seconds = flood.as_secs_f64();
        let command = format!("timeout -s KILL {seconds} cat /dev/zero; true");
        wire.send(&Line::bash(session, &command))?;
    }
    let begin = Instant::now();
    let mut wire = daemon.wire()?;
    let ping = Line::ping();
    let mut times = Vec::new();
    // Ignore the last tenth, in which some commands may have finished.
    while begin.elapsed() < flood * 9 / 10 {
        let begin = Instant::now();
        wire.send(&ping)?;
        wire.reply(|reply| reply.data().map(drop))?;
        times.push(begin.elapsed().as_secs_f64());
        pause(PING_PAUSE);
    }
    flooding.iter_mut().try_for_each(|(wire, _)| finish(wire))?;
    Ok(times)
}

fn finish(wire: &mut Wire) -> anyhow::Result<()> {
    wire.reply(|reply| reply.expect_success())
}
