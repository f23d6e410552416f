//! Cost of the protocol: `ping`, which the supervisor answers itself.

use super::Effort;
use crate::daemon::Daemon;
use crate::report::{Row, Target, Unit};
use crate::samples::time_rounds;
use crate::wire::{Line, Wire};
use std::time::{Duration, Instant};

/// Requests in flight in the pipelined measure. Their replies fit into the socket's buffer, so neither side
/// blocks on a write.
const PIPELINED: usize = 50;

/// Rate of upstream's daemon, pipelined, on a machine of this size.
const UPSTREAM_RATE: f64 = 57_000.0;

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let mut wire = daemon.wire()?;
    let ping = Line::ping();
    let times = time_rounds(effort.rounds(20_000), Duration::from_secs(5), || {
        wire.send(&ping)?;
        wire.reply(|reply| reply.data().map(drop))
    })?;
    let rates = pipelined(&mut wire, &ping, effort)?;
    daemon.stop()?;
    let (trip, slowest) = (Target::must_aim(100e-6, 40e-6), Target::must_aim(2e-3, 1e-3).of_p99());
    Ok(vec![
        Row::new("ping round trip", Unit::Seconds, trip, times.clone())?,
        Row::new("ping round trip, p99", Unit::Seconds, slowest, times)?,
        Row::new(
            format!("ping, {PIPELINED} pipelined"),
            Unit::PerSecond,
            Target::must(UPSTREAM_RATE),
            rates,
        )?,
    ])
}

/// Returns the rates of five windows.
fn pipelined(wire: &mut Wire, ping: &Line, effort: Effort) -> anyhow::Result<Vec<f64>> {
    let batch = ping.repeated(PIPELINED);
    let batches = effort.rounds(1000);
    let window = |wire: &mut Wire| {
        let begin = Instant::now();
        for _ in 0..batches {
            wire.send(&batch)?;
            wire.skip_lines(PIPELINED)?;
        }
        anyhow::Ok((batches * PIPELINED) as f64 / begin.elapsed().as_secs_f64())
    };
    window(wire)?;
    let rates = (0..5).map(|_| window(wire)).collect();
    // The windows only count lines, so check the replies once.
    wire.send(&batch)?;
    for _ in 0..PIPELINED {
        wire.reply(|reply| reply.data().map(drop))?;
    }
    rates
}
