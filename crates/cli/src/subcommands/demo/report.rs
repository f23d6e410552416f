//! Output of the demo: one line per step as it happens, or one JSON document.

use crate::display;
use crate::output::{BOLD, CliOutput, DIM, GREEN, RED};
use crate::time_format::span;
use serde::Serialize;
use std::io;
use std::time::Duration;

/// Columns before a step's summary.
const NAME_WIDTH: usize = 10;

/// Columns of a quoted line.
const QUOTE_WIDTH: usize = 88;

/// Step that was shown.
#[derive(Debug, Serialize)]
struct DemoStep {
    name: &'static str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    summary: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<String>,
}

/// Measurements of the demo for `--json`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    pub(crate) workspace: String,
    pub(crate) session: String,
    /// Start time of the daemon in milliseconds. `None` if it was already running.
    pub(crate) daemon_start_ms: Option<f64>,
    pub(crate) killed_pid: Option<u32>,
    /// Time from the kill to the caller's error, in milliseconds.
    pub(crate) death_told_ms: Option<f64>,
    /// Duration of the next call, including the start of the new worker, in milliseconds.
    pub(crate) recovery_ms: Option<f64>,
    pub(crate) new_pid: Option<u32>,
    /// Whether the other session's call succeeded in its original worker.
    pub(crate) neighbour_undisturbed: bool,
}

/// Steps shown so far.
#[derive(Debug)]
pub(crate) struct Report {
    output: CliOutput,
    steps: Vec<DemoStep>,
    pub(crate) figures: Figures,
}

/// JSON document.
#[derive(Serialize)]
struct DemoReport<'a> {
    ok: bool,
    #[serde(flatten)]
    figures: &'a Figures,
    steps: &'a [DemoStep],
}

impl Report {
    pub(crate) fn new(output: CliOutput) -> Self {
        Self { output, steps: Vec::new(), figures: Figures::default() }
    }

    /// Reports a successful step with its duration, a one-line summary and quoted lines.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        took: Option<Duration>,
        summary: String,
        lines: Vec<String>,
    ) -> anyhow::Result<()> {
        self.add(DemoStep { name, ok: true, ms: took.map(ms), summary, lines }, took)?;
        Ok(())
    }

    /// Reports the failed step, which is the last one.
    pub(crate) fn failed(&mut self, name: &'static str, reason: &str) -> io::Result<()> {
        let mut lines = reason.lines().map(str::to_owned);
        let summary = lines.next().unwrap_or_default();
        self.add(DemoStep { name, ok: false, ms: None, summary, lines: lines.collect() }, None)
    }

    /// Prints text between the steps, which is not part of the document.
    pub(crate) fn say(&self, text: &str) -> io::Result<()> {
        if self.output.is_json() { Ok(()) } else { self.output.text(text) }
    }

    /// Prints the document if `--json` was given.
    pub(crate) fn finish(&self) -> io::Result<()> {
        if !self.output.is_json() {
            return Ok(());
        }
        let ok = self.steps.iter().all(|step| step.ok);
        self.output.document(&DemoReport { ok, figures: &self.figures, steps: &self.steps })
    }

    fn add(&mut self, step: DemoStep, took: Option<Duration>) -> io::Result<()> {
        self.say(&render(&step, took))?;
        self.steps.push(step);
        Ok(())
    }
}

/// Converts a duration to milliseconds with a resolution of 1 µs.
pub(crate) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn render(step: &DemoStep, took: Option<Duration>) -> String {
    let (color, mark) = if step.ok { (GREEN, "✓") } else { (RED, "✗") };
    let name = step.name;
    // The reason of a failure may take a second line.
    let width = if step.ok { QUOTE_WIDTH } else { usize::MAX };
    let summary = display::cut(&step.summary, width);
    let time = took.map(|took| format!("  {DIM}{}{DIM:#}", span(took))).unwrap_or_default();

    let mut text =
        format!("{color}{mark}{color:#} {BOLD}{name:<NAME_WIDTH$}{BOLD:#}{summary}{time}\n");

    for line in &step.lines {
        let line = display::cut(line, width);
        text.push_str(&format!("  {:NAME_WIDTH$}{DIM}{line}{DIM:#}\n", ""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_line_and_its_quotes_stand_below_it() {
        let step = DemoStep {
            name: "search",
            ok: true,
            ms: None,
            summary: "`fn `: 2 lines".to_owned(),
            lines: vec!["a.rs:1:fn a\x1b[0m".to_owned()],
        };
        let text = render(&step, Some(Duration::from_micros(1500)));
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string(),
            "✓ search    `fn `: 2 lines  1.5 ms\n            a.rs:1:fn a\u{fffd}[0m\n"
        );
    }
}
