//! The output of the protocol: responses and events in their order, and notes on stderr.

use super::lines::{Dialect, event_line};
use quackd_client::Event;
use serde_json::Value;
use std::io::Write;

/// A response, and what its order depends on.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) line: String,
    pub(super) order: Order,
    /// Whether the command was one of [`super::WORK`].
    pub(super) is_work: bool,
    /// Setting that the command has made: its name, and the command that repeats it.
    pub(super) setting: Option<(&'static str, Value)>,
}

/// Order of a response and the events of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Any,
    /// The response precedes the events.
    First,
    /// The response follows the end of the turn.
    AfterTurn,
    /// The response follows the end of the wait for another attempt.
    AfterRetry,
    /// The response follows the end of the summary.
    AfterSummary,
}

/// Writes a note to stderr: stdout is for the protocol alone.
pub(super) fn note(text: &str) {
    // A failed write cannot be reported.
    writeln!(std::io::stderr(), "note: {text}").ok();
}

/// Writer of responses and events.
#[derive(Debug)]
pub(super) struct Output<W> {
    stdout: W,
    dialect: Dialect,
    /// Prompts without a response, and the events that follow it.
    prompts: usize,
    held: Vec<String>,
    in_turn: bool,
    /// Whether the turn waits for another attempt.
    is_retrying: bool,
    /// Whether a summary is made.
    is_summarizing: bool,
    /// Responses that wait for an event.
    late: Vec<Done>,
}

impl<W: Write> Output<W> {
    /// Creates the output of an idle session.
    pub(super) fn new(stdout: W, dialect: Dialect) -> Self {
        Self {
            stdout,
            dialect,
            prompts: 0,
            held: Vec::new(),
            in_turn: false,
            is_retrying: false,
            is_summarizing: false,
            late: Vec::new(),
        }
    }

    /// Whether a turn is running, according to the events.
    pub(super) fn in_turn(&self) -> bool {
        self.in_turn
    }

    /// Writes lines and flushes them, so that a client sees each one at once.
    pub(super) fn write(&mut self, lines: &[String]) -> std::io::Result<()> {
        lines.iter().try_for_each(|line| writeln!(self.stdout, "{line}"))?;
        self.stdout.flush()
    }

    /// Notes a command. Events of a prompt wait for its response.
    pub(super) fn begun(&mut self, order: Order) {
        self.prompts += usize::from(order == Order::First);
    }

    /// Writes a response, or keeps it for later.
    pub(super) fn done(&mut self, done: Done) -> std::io::Result<()> {
        let order = done.order;
        if self.is_early(order) {
            self.late.push(done);
        } else {
            self.write(&[done.line])?;
        }

        if order == Order::First {
            self.prompts = self.prompts.saturating_sub(1);
        }

        if self.prompts == 0 {
            // The last open prompt has its response, so its events may follow.
            let held = std::mem::take(&mut self.held);
            self.write(&held)?;
        }
        Ok(())
    }

    /// Whether a response must wait for an event.
    fn is_early(&self, order: Order) -> bool {
        match order {
            Order::Any | Order::First => false,
            Order::AfterTurn => self.in_turn,
            Order::AfterRetry => self.is_retrying,
            Order::AfterSummary => self.is_summarizing,
        }
    }

    /// Writes the lines that waited for the turn, whose events are no longer read.
    pub(super) fn turn_left(&mut self) -> std::io::Result<()> {
        (self.in_turn, self.is_retrying, self.is_summarizing) = (false, false, false);
        self.prompts = 0;
        let held = std::mem::take(&mut self.held);
        self.write(&held)?;
        self.write_late()
    }

    /// Writes an event, and the responses that have waited for it.
    pub(super) fn event(&mut self, event: Event) -> std::io::Result<()> {
        match event.name.as_str() {
            "agent_start" => (self.in_turn, self.is_retrying) = (true, false),
            "agent_end" => self.in_turn = false,
            "auto_retry_start" => self.is_retrying = true,
            "auto_retry_end" => self.is_retrying = false,
            "auto_compaction_start" => self.is_summarizing = true,
            "auto_compaction_end" => self.is_summarizing = false,
            _ => {}
        }

        // The response of a prompt precedes the events of its turn.
        match (event_line(event, self.dialect), self.prompts) {
            (Some(line), 0) => self.write(&[line])?,
            (Some(line), _) => self.held.push(line),
            (None, _) => {}
        }
        self.write_late()
    }

    fn write_late(&mut self) -> std::io::Result<()> {
        let all = std::mem::take(&mut self.late);
        let (late, ready): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|done| self.is_early(done.order));
        self.late = late;

        for done in ready {
            self.write(&[done.line])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str) -> Event {
        let data = serde_json::value::to_raw_value(&serde_json::json!({ "type": name })).ok();
        Event { name: name.to_owned(), session_id: None, data, seq: None, turn: None }
    }

    fn done(line: &str, order: Order) -> Done {
        Done { line: line.to_owned(), order, is_work: false, setting: None }
    }

    /// Returns the lines that `script` writes.
    fn written(script: impl FnOnce(&mut Output<Vec<u8>>) -> std::io::Result<()>) -> String {
        let mut output = Output::new(Vec::new(), Dialect::Newest);
        script(&mut output).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.replace("{\"type\":\"", "").replace("\"}", "").lines().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_end_of_a_retry_is_answered_at_once_unless_one_is_waiting() {
        let lines = written(|output| {
            output.event(event("agent_start"))?;
            output.done(done("none", Order::AfterRetry))?;
            output.event(event("auto_retry_start"))?;
            output.event(event("agent_start"))?;
            output.done(done("late", Order::AfterRetry))?;
            output.event(event("auto_retry_start"))?;
            output.done(done("given-up", Order::AfterRetry))?;
            output.event(event("auto_retry_end"))?;
            output.event(event("agent_end"))
        });
        let expected = "agent_start none auto_retry_start agent_start late auto_retry_start \
            auto_retry_end given-up agent_end";
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_summary_has_the_name_that_the_dialect_has() {
        let event = || {
            let json = serde_json::json!({ "type": "auto_compaction_end", "result": null, "aborted": true });
            let data = serde_json::value::to_raw_value(&json).ok();
            Event {
                name: "auto_compaction_end".to_owned(),
                session_id: None,
                data,
                seq: None,
                turn: None,
            }
        };
        let newest = event_line(event(), Dialect::Newest).unwrap();
        assert_eq!(newest, r#"{"aborted":true,"type":"compaction_end"}"#);
        let old = event_line(event(), Dialect::Old).unwrap();
        assert!(
            old.contains(r#""auto_compaction_end""#) && old.contains(r#""result":null"#),
            "{old}"
        );
    }

    #[test]
    fn a_response_is_before_or_after_the_events_of_its_turn() {
        let lines = written(|output| {
            output.begun(Order::First);
            output.event(event("agent_start"))?;
            output.done(done("state", Order::Any))?;
            output.done(done("prompt", Order::First))?;
            output.done(done("abort", Order::AfterTurn))?;
            output.event(event("agent_end"))?;
            output.done(done("idle", Order::AfterTurn))
        });
        assert_eq!(lines, "state prompt agent_start agent_end abort idle");
        let left = written(|output| {
            output.event(event("agent_start"))?;
            output.done(done("abort", Order::AfterTurn))?;
            output.turn_left()
        });
        assert_eq!(left, "agent_start abort");
    }
}
