//! Runs competing programs in turn, so that a busy machine slows all alike, and compares their medians.

use crate::report::{Row, Target, Unit};
use crate::samples::Samples;
use anyhow::Context;
use quackd_testkit::program;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout of a comparison.
const LIMIT: Duration = Duration::from_secs(60);

/// One of the compared programs.
pub(super) struct Lane<'a> {
    name: &'static str,
    once: Box<dyn FnMut() -> anyhow::Result<()> + 'a>,
    times: Vec<f64>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(name: &'static str, once: impl FnMut() -> anyhow::Result<()> + 'a) -> Self {
        Self { name, once: Box::new(once), times: Vec::new() }
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
        rows.push(Row::new(name, Unit::Seconds, Target::NONE, lane.times)?);
    }
    rows.extend(ratios);
    Ok(rows)
}

/// Paths of the other programs, from PATH or from `QUACKD_BENCH_RG` and `QUACKD_BENCH_FD`. A missing one has no row.
pub(super) struct Programs {
    pub(super) rg: Option<PathBuf>,
    pub(super) fd: Option<PathBuf>,
}

impl Programs {
    pub(super) fn find() -> Self {
        let named = |variable: &str, names: &[&str]| {
            let given = std::env::var_os(variable).map(PathBuf::from);
            given.or_else(|| {
                let works = |name: &&&str| {
                    let found = program(name).arg("--version").stdout(Stdio::null()).status();
                    found.is_ok_and(|status| status.success())
                };
                names.iter().find(works).map(PathBuf::from)
            })
        };
        Self {
            rg: named("QUACKD_BENCH_RG", &["rg"]),
            fd: named("QUACKD_BENCH_FD", &["fd", "fdfind"]),
        }
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
