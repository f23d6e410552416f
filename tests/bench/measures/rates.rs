//! Eight busy sessions, each with a client that has one call in flight.

use super::Effort;
use crate::daemon::Daemon;
use crate::report::{Row, Target, Unit};
use crate::wire::{Line, Wire};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SESSIONS: usize = 8;

/// Number of windows, of which the median is reported.
const WINDOWS: usize = 5;

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let window = Duration::from_millis(if effort.quick { 100 } else { 800 });
    let read = rate(&daemon, window, |session| Line::read_file(session, "4k"))?;
    let bash = rate(&daemon, window, |session| Line::bash(session, "true"))?;
    daemon.stop()?;
    let name = |what: &str| format!("{what} calls, {SESSIONS} sessions");
    let per_second = Unit::PerSecond;
    Ok(vec![
        Row::new(name("read_file 4 KiB"), per_second, Target::must_aim(5000.0, 15_000.0), read)?,
        Row::new(name("bash `true`"), per_second, Target::must_aim(400.0, 900.0), bash)?,
    ])
}

/// Returns the calls per second over all sessions, one value per window.
fn rate(
    daemon: &Daemon,
    window: Duration,
    line: impl Fn(&str) -> Line,
) -> anyhow::Result<Vec<f64>> {
    let mut clients = Vec::new();
    for n in 0..SESSIONS {
        let repo = daemon.repo(&format!("r{n}"))?;
        let mut wire = daemon.wire()?;
        let line = line(&wire.attach(&repo)?);
        wire.call(&line)?;
        clients.push((wire, line));
    }
    let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let working: Vec<_> = clients
            .into_iter()
            .map(|(wire, line)| scope.spawn(|| work(wire, line, &done, &stop)))
            .collect();
        // The first window is the warm-up.
        let mut rates: Vec<f64> = (0..=WINDOWS).map(|_| count(&done, window)).collect();
        stop.store(true, Ordering::Relaxed);
        for client in working {
            client.join().map_err(|_panic| anyhow::anyhow!("a client panicked"))??;
        }
        rates.remove(0);
        Ok(rates)
    })
}

fn work(mut wire: Wire, line: Line, done: &AtomicUsize, stop: &AtomicBool) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        wire.call(&line)?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn count(done: &AtomicUsize, window: Duration) -> f64 {
    let (begin, before) = (Instant::now(), done.load(Ordering::Relaxed));
    crate::processes::pause(window);
    let n = done.load(Ordering::Relaxed) - before;
    n as f64 / begin.elapsed().as_secs_f64()
}
