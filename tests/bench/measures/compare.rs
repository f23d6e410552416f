//! Runs competing programs in turn, so that a busy machine slows all alike, and compares their medians.

use crate::report::{Program, Row, Target, Unit};
use crate::samples::Samples;
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quackd_testkit::program;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Timeout of a comparison.
const LIMIT: Duration = Duration::from_secs(60);

/// One of the compared programs.
pub(super) struct Lane<'a> {
    name: &'static str,
    version: Option<String>,
    is_ours: bool,
    once: Box<dyn FnMut() -> anyhow::Result<()> + 'a>,
    times: Vec<f64>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(name: &'static str, once: impl FnMut() -> anyhow::Result<()> + 'a) -> Self {
        Self { name, version: None, is_ours: false, once: Box::new(once), times: Vec::new() }
    }

    /// Marks a lane of quackd.
    pub(super) fn ours(self) -> Self {
        Self { version: Some(env!("CARGO_PKG_VERSION").to_owned()), is_ours: true, ..self }
    }

    /// Adds the version for the report.
    pub(super) fn of_version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// Like [`Lane::of_version`], for a program that is possibly not installed.
    pub(super) fn of(self, program: Option<&Installed>) -> Self {
        Self { version: program.map(|program| program.version.clone()), ..self }
    }
}

/// Runs all programs in turn. Returns rows of the times, the first with `label`, and the ratios of `ours` to the lanes
/// named in `goals`.
pub(super) fn in_turn(
    rounds: usize,
    label: &str,
    mut lanes: Vec<Lane<'_>>,
    ours: &str,
    goals: &[(&str, Option<f64>)],
) -> anyhow::Result<Vec<Row>> {
    let until = Instant::now() + LIMIT;
    for round in 0..=rounds {
        for lane in &mut lanes {
            let begin = Instant::now();
            (lane.once)().with_context(|| format!("{} for {label}", lane.name))?;
            // The first round warms the caches.
            if 0 < round {
                lane.times.push(begin.elapsed().as_secs_f64());
            }
        }
        if until < Instant::now() && 0 < round {
            break;
        }
    }
    let median = |name: &str| {
        let lane = lanes.iter().find(|lane| lane.name == name)?;
        Samples::new(lane.times.clone()).map(|samples| samples.median())
    };
    let ours = median(ours);
    let mut ratios = Vec::new();
    for (name, must) in goals {
        if let (Some(ours), Some(theirs)) = (ours, median(name)) {
            let target = must.map_or(Target::NONE, Target::must);
            let name = format!("  ratio to {name}");
            ratios.push(Row::new(name, Unit::Ratio, target, vec![ours / theirs])?);
        }
    }
    let mut rows = Vec::new();
    for (n, lane) in lanes.into_iter().enumerate() {
        let name = match n {
            0 => format!("{label}: {}", lane.name),
            _ => format!("  {}", lane.name),
        };
        let mut row = Row::new(name, Unit::Seconds, Target::NONE, lane.times)?;
        let (name, is_ours) = (lane.name.to_owned(), lane.is_ours);
        row.program = lane.version.map(|version| Program { name, version, is_ours });
        rows.push(row);
    }
    rows.extend(ratios);
    Ok(rows)
}

/// Like [`in_turn`], with the times in the plot, in a chart with the title `label`.
pub(super) fn charted(
    rounds: usize,
    label: &str,
    lanes: Vec<Lane<'_>>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = in_turn(rounds, label, lanes, "", &[])?;
    for row in &mut rows {
        row.chart = Some(label.to_owned());
    }
    Ok(rows)
}

/// A program of this machine.
#[derive(Debug, Clone)]
pub(super) struct Installed {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

impl Installed {
    /// Finds the program that the environment variable `variable` names, else the first of `names` in PATH. Returns
    /// `None` if no program prints its version with `flag`.
    pub(super) fn find(variable: Option<&str>, names: &[&str], flag: &str) -> Option<Self> {
        let given = variable.and_then(std::env::var_os).map(PathBuf::from);
        let names = names.iter().map(PathBuf::from);
        given.into_iter().chain(names).find_map(|path| {
            let mut command = program(&path);
            command.arg(flag).stderr(Stdio::null());
            let version = version_in(&output_of(command).ok()?)?;
            Some(Self { path, version })
        })
    }
}

/// Returns the first word with a digit.
fn version_in(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    Some(words.find(|word| word.contains(|c: char| c.is_ascii_digit()))?.to_owned())
}

/// The other programs. A missing one has no row or no version.
pub(super) struct Programs {
    pub(super) rg: Option<Installed>,
    pub(super) fd: Option<Installed>,
    pub(super) grep: Option<Installed>,
    pub(super) find: Option<Installed>,
}

impl Programs {
    pub(super) fn find() -> Self {
        let find = |variable, names: &[&str]| Installed::find(variable, names, "--version");
        Self {
            rg: find(Some("QUACKD_BENCH_RG"), &["rg"]),
            fd: find(Some("QUACKD_BENCH_FD"), &["fd", "fdfind"]),
            grep: find(None, &["grep"]),
            find: find(None, &["find"]),
        }
    }
}

/// Runs a program that must succeed. Returns its output. Kills the program after [`LIMIT`].
pub(super) fn output_of(mut command: Command) -> anyhow::Result<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let ended = read_until_exit(&mut child);
    if ended.is_err() {
        // Both fail only if the process has exited.
        drop(child.kill());
        drop(child.wait());
    }
    let (status, output) = ended?;
    anyhow::ensure!(status.success(), "{status}");
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn read_until_exit(child: &mut Child) -> anyhow::Result<(ExitStatus, Vec<u8>)> {
    let until = Instant::now() + LIMIT;
    let mut printed = child.stdout.take().context("no pipe")?;
    let (mut output, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(printed.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::try_from(left)?)?;
        anyhow::ensure!(0 < ready, "no end after {} s", LIMIT.as_secs());
        match printed.read(&mut buffer)? {
            0 => break,
            n => output.extend(buffer.iter().take(n)),
        }
    }
    // The output ends microseconds before the process. A pause would be longer than that.
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, output));
        }
        anyhow::ensure!(Instant::now() < until, "no exit after {} s", LIMIT.as_secs());
        std::thread::yield_now();
    }
}

/// Runs a program and reads its output through a pipe. An empty result is not a failure.
pub(super) fn read_all(mut command: Command) -> anyhow::Result<()> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut printed = child.stdout.take().context("no pipe")?;
    let mut buffer = vec![0; 64 * 1024];
    while printed.read(&mut buffer)? != 0 {}
    let status = child.wait()?;
    anyhow::ensure!(status.code().is_some_and(|code| code < 2), "{status}");
    Ok(())
}
