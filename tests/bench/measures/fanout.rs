//! Many clients follow one session: latency of its events, and resources of the supervisor. One client does
//! not read and must not slow down the others.

use super::Effort;
use crate::daemon::Daemon;
use crate::processes::{pause, peak_resident};
use crate::report::{Row, Target, Unit};
use crate::wire::{Line, Wire};
use anyhow::{Context, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of followers, one of which does not read.
const FOLLOWERS: usize = 100;

/// Events per second.
const RATE: u32 = 2000;
const TIME: Duration = Duration::from_secs(30);

/// Calls per batch. Each call causes two events.
const BATCH: u32 = 10;

/// Calls of the measure without a rate limit.
const FAST_CALLS: u32 = 10_000;

/// Maximum delay of the last follower.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let time = if effort.quick { TIME / 10 } else { TIME };
    let mut daemon = Daemon::start()?;
    let mut wire = daemon.wire()?;
    let repo = daemon.repo("a")?;
    std::fs::write(repo.join("small"), "one line\n")?;
    let session = wire.attach(&repo)?;
    let call = Line::read_file(&session, "small");
    wire.call(&call)?;
    let before = peak_resident(daemon.pid()?)?;

    let batches = u32::try_from(time.as_millis())? * RATE / (2 * BATCH * 1000);
    let stopped = follow(&daemon, &session)?;
    let paced = run(&daemon, &session, FOLLOWERS - 1, u64::from(batches * BATCH) * 2, || {
        let begin = Instant::now();
        for n in 0..batches {
            let due = begin + Duration::from_secs(2) * BATCH * n / RATE;
            pause(due.saturating_duration_since(Instant::now()));
            calls(&mut wire, &call, BATCH)?;
        }
        Ok(())
    })?;
    let slow = slow_clients(&mut wire)?;
    drop(stopped);
    let peak = peak_resident(daemon.pid()?)?;
    let fast_calls = if effort.quick { FAST_CALLS / 10 } else { FAST_CALLS };
    let fast = run(&daemon, &session, FOLLOWERS, u64::from(fast_calls) * 2, || {
        (0..fast_calls / BATCH).try_for_each(|_| calls(&mut wire, &call, BATCH))
    })?;
    if !effort.quick && slow != 1 {
        bail!("{slow} clients were disconnected as slow, and one does not read");
    }
    daemon.stop()?;
    let none = Target::NONE;
    let per_second = |run: &Run| run.delivered / run.time.as_secs_f64();
    Ok(vec![
        Row::new(
            format!("{FOLLOWERS} followers, {RATE} events/s for {} s: delivered", time.as_secs()),
            Unit::PerSecond,
            none,
            vec![per_second(&paced)],
        )?,
        Row::new("  last follower behind", Unit::Seconds, none, vec![paced.behind.as_secs_f64()])?,
        Row::new("  supervisor, peak RSS before", Unit::Bytes, none, vec![before])?,
        Row::new("  and after", Unit::Bytes, Target::must(64.0 * crate::report::MIB), vec![peak])?,
        Row::new(
            format!("{FOLLOWERS} followers, as fast as it goes: delivered"),
            Unit::PerSecond,
            Target::must(100_000.0),
            vec![per_second(&fast)],
        )?,
    ])
}

/// Result of one run.
struct Run {
    /// Events times followers.
    delivered: f64,
    time: Duration,
    /// Time from the last reply to the last event of the last follower.
    behind: Duration,
}

/// Follows with `n` clients and calls `work`, which causes `events` events. Waits until every client has
/// received all of them in order.
fn run(
    daemon: &Daemon,
    session: &str,
    n: usize,
    events: u64,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Run> {
    let followers = (0..n).map(|_| follow(daemon, session)).collect::<anyhow::Result<Vec<_>>>()?;
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(followers, events, &done));
        let begin = Instant::now();
        work()?;
        let answered = Instant::now();
        while !reading.is_finished() {
            if CATCH_UP_TIMEOUT < answered.elapsed() {
                bail!("{} of {n} followers have everything", done.load(Ordering::Relaxed));
            }
            pause(Duration::from_millis(1));
        }
        let read = reading.join().map_err(|_panic| anyhow::anyhow!("the reader failed"))?;
        read?;
        #[expect(clippy::cast_precision_loss, reason = "some millions")]
        let delivered = events as f64 * n as f64;
        Ok(Run { delivered, time: begin.elapsed(), behind: answered.elapsed() })
    })
}

/// A following client, and the number of its next event.
struct Follower {
    stream: UnixStream,
    next: u64,
    last: u64,
    rest: Vec<u8>,
}

fn follow(daemon: &Daemon, session: &str) -> anyhow::Result<(UnixStream, u64)> {
    let mut wire = daemon.wire()?;
    let data = wire.request("follow", &json!({"sessionId": session}))?;
    let seq = data.get("seq").and_then(Value::as_u64).context("no seq")?;
    Ok((wire.into_stream(), seq))
}

/// Reads on one thread for all clients, to minimize their cost.
fn read_all(streams: Vec<(UnixStream, u64)>, events: u64, done: &AtomicU64) -> anyhow::Result<()> {
    let mut followers = Vec::new();
    for (stream, seq) in streams {
        stream.set_nonblocking(true)?;
        followers.push(Follower { stream, next: seq + 1, last: seq + events, rest: Vec::new() });
    }
    let mut buffer = vec![0; 256 * 1024];
    while !followers.is_empty() {
        let mut waiting: Vec<PollFd<'_>> =
            followers.iter().map(|f| PollFd::new(f.stream.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut waiting, PollTimeout::from(1000_u16))?;
        let ready: Vec<bool> = waiting.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        for (follower, _) in followers.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
            follower.read(&mut buffer)?;
        }
        followers.retain(|follower| follower.next <= follower.last);
        done.store(u64::try_from(ready.len() - followers.len())?, Ordering::Relaxed);
    }
    Ok(())
}

impl Follower {
    fn read(&mut self, buffer: &mut [u8]) -> anyhow::Result<()> {
        let n = self.stream.read(buffer)?;
        if n == 0 {
            bail!("a follower was disconnected at event {}", self.next);
        }
        self.rest.extend_from_slice(buffer.get(..n).unwrap_or_default());
        let mut begin = 0;
        while let Some(rest) = self.rest.get(begin..)
            && let Some(end) = rest.iter().position(|byte| *byte == b'\n')
        {
            let line = rest.get(..end).unwrap_or_default();
            let expected = format!("\"seq\":{}}}", self.next);
            if !line.ends_with(expected.as_bytes()) {
                bail!("not event {}: {}", self.next, String::from_utf8_lossy(line));
            }
            self.next += 1;
            begin += end + 1;
        }
        self.rest.drain(..begin);
        Ok(())
    }
}

fn calls(wire: &mut Wire, call: &Line, n: u32) -> anyhow::Result<()> {
    wire.send(&call.repeated(usize::try_from(n)?))?;
    (0..n).try_for_each(|_| wire.reply(|reply| reply.expect_success()))
}

fn slow_clients(wire: &mut Wire) -> anyhow::Result<u64> {
    let ps = wire.request("quack.ps", &json!({}))?;
    ps.pointer("/supervisor/slowClients").and_then(Value::as_u64).context("no count in ps")
}
