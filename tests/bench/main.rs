//! Benchmark of the performance budgets: the real binary over the real socket, one table of results.
//!
//! Run by `cargo bench -p quackd [-- WORD] [--quick] [--json] [--svg FILE]`; `docs/benchmarks.md` explains the rows. Each
//! group of measures has its own daemon, home and state directory, and removes them. The exit code is 1 only
//! after an error, not if a result exceeds its budget: the machine may be busy.

mod daemon;
mod machine;
mod measures;
mod options;
mod plot;
mod processes;
mod report;
mod samples;
mod stdio;
mod wire;

use anyhow::Context;
use measures::{Effort, GROUPS};
use options::{Options, Output};
use report::{Failure, Report};
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            tell(&format!("bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints. Returns false if a group failed.
fn run() -> anyhow::Result<bool> {
    let options = Options::read(std::env::args().skip(1))?;
    let chosen: Vec<_> = GROUPS.iter().filter(|group| options.wants(group.name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
        anyhow::bail!("no such group of measures; there are: {}", names.join(" "));
    }
    let effort = Effort { quick: options.quick };
    let mut report = Report::new(machine::describe(), options.quick);
    for group in chosen {
        let begin = Instant::now();
        match (group.measure)(effort) {
            Ok(rows) => report.rows.extend(rows),
            Err(error) => {
                report.failures.push(Failure { group: group.name, why: format!("{error:#}") });
            }
        }
        tell(&format!("{}: {:.1} s", group.name, begin.elapsed().as_secs_f64()));
    }
    report.load_at_end = machine::load_average();
    let text = match options.output {
        Output::Table => report.table(),
        Output::Json => report.json()?,
    };
    writeln!(std::io::stdout(), "{text}")?;
    if let Some(file) = &options.svg {
        let svg = plot::svg(&report)?;
        std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(report.failures.is_empty())
}

/// Prints progress and errors to stderr, so that `--json` prints one document.
fn tell(text: &str) {
    // A failed write to stderr cannot be reported.
    drop(writeln!(std::io::stderr(), "{text}"));
}
