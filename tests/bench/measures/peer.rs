//! One and many clients, compared with another daemon of the same protocol.
//!
//! `QUACKD_BENCH_OTHER` is a shell command that runs the other daemon in the foreground, with its state in
//! `RUBBER_DUCK_APP_SUPPORT`. Without it, only this daemon is measured. Both get the same requests in turn.

use super::Effort;
use super::compare::{Lane, in_turn};
use crate::daemon::Daemon;
use crate::report::{Row, Target, Unit};
use crate::samples::Samples;
use crate::wire::{Line, Wire};
use serde_json::json;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Names a shell command.
const OTHER: &str = "QUACKD_BENCH_OTHER";

/// Sessions that the clients share.
const SESSIONS: usize = 8;

/// Numbers of clients, each with one request in flight.
const CLIENTS: [usize; 2] = [32, 256];

/// Connections of one thread of this program.
const PER_THREAD: usize = 16;

/// Windows of each rate, of which the median is reported.
const WINDOWS: usize = 5;

const OURS: &str = "quackd";
const THEIRS: &str = "other daemon";

/// A daemon with sessions.
struct Side {
    name: &'static str,
    daemon: Daemon,
    sessions: Vec<String>,
}

impl Side {
    fn new(name: &'static str, daemon: Daemon) -> anyhow::Result<Self> {
        let mut wire = daemon.wire()?;
        let mut sessions = Vec::new();
        for n in 0..SESSIONS {
            sessions.push(wire.attach(&daemon.repo(&format!("r{n}"))?)?);
        }
        Ok(Self { name, daemon, sessions })
    }

    fn lines(&self, kind: Kind) -> Vec<Line> {
        self.sessions.iter().map(|session| kind.line(session)).collect()
    }
}

/// A request that both daemons know.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Ping,
    Read,
    Write,
    Bash,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Read => "read_file of 2 KiB",
            Self::Write => "write_file of 4 KiB",
            Self::Bash => "bash `true`",
        }
    }

    fn line(self, session: &str) -> Line {
        let (tool, arguments) = match self {
            Self::Ping => return Line::ping(),
            Self::Read => ("read_file", json!({"path": "2k"})),
            Self::Write => ("write_file", json!({"path": "w", "content": "x".repeat(4096)})),
            Self::Bash => ("bash", json!({"command": "true"})),
        };
        let params = json!({"sessionId": session, "callId": "b", "toolName": tool,
                            "arguments": arguments.to_string()});
        Line::new(0, "voice_tool_call", &params)
    }
}

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut sides = vec![Side::new(OURS, Daemon::start()?)?];
    if let Some(command) = std::env::var_os(OTHER) {
        sides.push(Side::new(THEIRS, Daemon::start_other(&command)?)?);
    }
    let mut rows = Vec::new();
    for (kind, rounds) in
        [(Kind::Ping, 5000), (Kind::Read, 3000), (Kind::Write, 500), (Kind::Bash, 300)]
    {
        rows.extend(one_client(effort.rounds(rounds), kind, &sides)?);
    }
    let window = Duration::from_millis(if effort.quick { 100 } else { 600 });
    for n in CLIENTS {
        for kind in [Kind::Ping, Kind::Read, Kind::Write] {
            rows.extend(many_clients(n, kind, window, &sides)?);
        }
    }
    if let Some(ours) = sides.first_mut() {
        ours.daemon.stop()?;
    }
    Ok(rows)
}

fn one_client(rounds: usize, kind: Kind, sides: &[Side]) -> anyhow::Result<Vec<Row>> {
    let mut lanes = Vec::new();
    for side in sides {
        let wire = RefCell::new(side.daemon.wire()?);
        let line = side.lines(kind).swap_remove(0);
        lanes.push(Lane::new(side.name, move || answered(&mut wire.borrow_mut(), &line)));
    }
    in_turn(rounds, kind.name(), lanes, OURS, &[(THEIRS, None)])
}

fn answered(wire: &mut Wire, line: &Line) -> anyhow::Result<()> {
    wire.send(line)?;
    wire.reply(|reply| reply.data().map(drop))
}

fn many_clients(
    n: usize,
    kind: Kind,
    window: Duration,
    sides: &[Side],
) -> anyhow::Result<Vec<Row>> {
    let mut rates = vec![Vec::new(); sides.len()];
    // The first round is the warm-up.
    for round in 0..=WINDOWS {
        for (side, rates) in sides.iter().zip(&mut rates) {
            let rate = rate(n, &side.lines(kind), window, &side.daemon)?;
            if 0 < round {
                rates.push(rate);
            }
        }
    }
    let mut rows = Vec::new();
    let mut medians = Vec::new();
    for (side, rates) in sides.iter().zip(rates) {
        medians.extend(Samples::new(rates.clone()).map(|samples| samples.median()));
        let name = format!("{}, {n} clients: {}", kind.name(), side.name);
        rows.push(Row::new(name, Unit::PerSecond, Target::NONE, rates)?);
    }
    if let [ours, theirs] = medians[..] {
        let name = format!("  rate relative to the {THEIRS}");
        rows.push(Row::new(name, Unit::Ratio, Target::NONE, vec![ours / theirs])?);
    }
    Ok(rows)
}

/// Returns the replies per second to `n` clients. A thread serves several: it sends a request for each, then reads all
/// replies.
fn rate(n: usize, lines: &[Line], window: Duration, daemon: &Daemon) -> anyhow::Result<f64> {
    let mut clients = Vec::new();
    for line in lines.iter().cycle().take(n) {
        clients.push((daemon.wire()?, line.clone()));
    }
    let begin = Instant::now();
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .chunks_mut(PER_THREAD)
            .map(|clients| scope.spawn(move || serve(clients, begin + window)))
            .collect();
        let mut done = 0;
        for thread in threads {
            done += thread.join().map_err(|_panic| anyhow::anyhow!("a client panicked"))??;
        }
        anyhow::Ok(done)
    })?;
    Ok(f64::from(done) / begin.elapsed().as_secs_f64())
}

fn serve(clients: &mut [(Wire, Line)], until: Instant) -> anyhow::Result<u32> {
    let mut done = 0;
    while Instant::now() < until {
        for (wire, line) in &mut *clients {
            wire.send(line)?;
        }
        for (wire, _) in &mut *clients {
            wire.reply(|reply| reply.data().map(drop))?;
            done += 1;
        }
    }
    Ok(done)
}
