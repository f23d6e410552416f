//! What the demo shows: one line per step as it happens, or all of it as one JSON document.

use crate::age::span;
use crate::display;
use crate::output::{BOLD, DIM, GREEN, Output, RED};
use serde::Serialize;
use std::io;
use std::time::Duration;

/// Columns before a step's summary.
const NAME_WIDTH: usize = 10;

/// Columns of a quoted line.
const QUOTE_WIDTH: usize = 88;

/// One thing that was shown.
#[derive(Debug, Serialize)]
struct Step {
    name: &'static str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    summary: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<String>,
}

/// The figures that the demo is about, for `--json`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    pub(crate) workspace: String,
    pub(crate) session: String,
    /// How long the daemon took to start, if it had to.
    pub(crate) daemon_start_ms: Option<f64>,
    pub(crate) killed_pid: Option<u32>,
    /// From the kill to the caller's answer.
    pub(crate) death_told_ms: Option<f64>,
    /// The next call, start of the new worker included.
    pub(crate) recovery_ms: Option<f64>,
    pub(crate) new_pid: Option<u32>,
    /// The other session's call was answered, by the worker that it had before.
    pub(crate) neighbour_undisturbed: bool,
}

/// The demo's story so far.
#[derive(Debug)]
pub(crate) struct Report {
    output: Output,
    steps: Vec<Step>,
    pub(crate) figures: Figures,
}

/// Everything as one document.
#[derive(Serialize)]
struct Document<'a> {
    ok: bool,
    #[serde(flatten)]
    figures: &'a Figures,
    steps: &'a [Step],
}

impl Report {
    pub(crate) fn new(output: Output) -> Self {
        Self { output, steps: Vec::new(), figures: Figures::default() }
    }

    /// A step that worked: how long it took, what came out in one line, and lines to quote.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        took: Option<Duration>,
        summary: String,
        lines: Vec<String>,
    ) -> io::Result<()> {
        self.add(Step { name, ok: true, ms: took.map(ms), summary, lines }, took)
    }

    /// The step that did not work; the last one.
    pub(crate) fn failed(&mut self, name: &'static str, why: &str) -> io::Result<()> {
        let mut lines = why.lines().map(str::to_owned);
        let summary = lines.next().unwrap_or_default();
        self.add(Step { name, ok: false, ms: None, summary, lines: lines.collect() }, None)
    }

    /// Text between the steps. Not part of the document.
    pub(crate) fn say(&self, text: &str) -> io::Result<()> {
        if self.output.is_json() { Ok(()) } else { self.output.text(text) }
    }

    /// Prints the document, if one is wanted.
    pub(crate) fn finish(&self) -> io::Result<()> {
        if !self.output.is_json() {
            return Ok(());
        }
        let ok = self.steps.iter().all(|step| step.ok);
        self.output.document(&Document { ok, figures: &self.figures, steps: &self.steps })
    }

    fn add(&mut self, step: Step, took: Option<Duration>) -> io::Result<()> {
        self.say(&render(&step, took))?;
        self.steps.push(step);
        Ok(())
    }
}

/// Milliseconds, as the document has them: exact to the microsecond.
pub(crate) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn render(step: &Step, took: Option<Duration>) -> String {
    let (color, mark) = if step.ok { (GREEN, "✓") } else { (RED, "✗") };
    let name = step.name;
    // Why something failed is worth a second line of the terminal.
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
        let step = Step {
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
