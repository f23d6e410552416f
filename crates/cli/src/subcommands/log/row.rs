//! Shows calls of the journal as text. Every text in a record comes from a client, a worker or a command.

use super::records::is_gap;
use crate::display::{count, cut, name_cell, path, plain};
use crate::output::{BOLD, DIM, RED, YELLOW};
use crate::render::calls::main_words;
use crate::time_format::span;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_protocol::journal::{CallEnd, CallRecord, JOB_END};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::time::Duration;

/// Width of the call in a row, in columns.
const MAX_CALL: usize = 90;

/// Width of one argument or path in the details of a call, in columns.
const MAX_DETAIL: usize = 400;

/// Formats calls.
#[derive(Debug)]
pub(crate) struct CallFormat {
    pub(crate) zone: TimeZone,
    pub(crate) now: Timestamp,
    /// Labels by session id, from the daemon. Without it, no call runs.
    pub(crate) labels: Option<HashMap<String, String>>,
}

impl CallFormat {
    /// Returns one line: time, session, client, call, end and id.
    pub(crate) fn row(&self, call: &CallRecord) -> String {
        if is_gap(call) {
            return self.gap(call);
        }

        let client = match &call.client {
            Some(name) => format!("{}: ", name_cell(name)),
            None => String::new(),
        };
        let argument = match main_argument(call).as_str() {
            "" => String::new(),
            argument => format!(" {}", cut(argument, MAX_CALL)),
        };

        format!(
            "{DIM}{}{DIM:#}  {}  {client}{BOLD}{}{BOLD:#}{argument}  {}  {DIM}{}{DIM:#}\n",
            self.time(call),
            name_cell(&self.label(call)),
            name_cell(&call.tool),
            self.end(call),
            plain(&call.id),
        )
    }

    /// Returns all facts of a call but its output.
    pub(crate) fn details(&self, call: &CallRecord, home_dir: Option<&str>) -> String {
        let label = self.label(call);
        let mut lines = vec![
            ("call", format!("{}  {}", plain(&call.id), self.time(call))),
            ("session", format!("{}  {}", name_cell(&label), path(&call.workspace_path, home_dir))),
        ];

        lines.extend(call.client.as_deref().map(|client| ("client", name_cell(client))));
        lines.push(("tool", name_cell(&call.tool)));
        for (name, value) in arguments(call) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            lines.push(("", format!("{}: {}", name_cell(&name), cut(&text, MAX_DETAIL))));
        }

        lines.push(("end", self.end(call)));
        lines.extend(
            call.denials.iter().map(|denial| ("denied", cut(&denial.to_string(), MAX_DETAIL))),
        );
        lines.extend(call.files.iter().map(|file| ("wrote", cut(file, MAX_DETAIL))));

        let n_listed = u32::try_from(call.files.len()).unwrap_or(u32::MAX);
        if n_listed < call.n_files {
            lines.push(("", format!("and {} more files", call.n_files - n_listed)));
        }

        let line = |(name, text): (&str, String)| format!("{DIM}{name:8}{DIM:#}{text}\n");
        lines.into_iter().map(line).collect()
    }

    /// Returns the line in place of calls that are missing.
    fn gap(&self, call: &CallRecord) -> String {
        let arguments = arguments(call);
        let n_calls = arguments.get("calls").and_then(Value::as_u64).unwrap_or_default();
        let reason = arguments.get("reason").and_then(Value::as_str).unwrap_or_default();
        let took = span(Duration::from_millis(call.duration_ms));
        let missing = count(usize::try_from(n_calls).unwrap_or(usize::MAX), "call");

        format!(
            "{DIM}{}{DIM:#}  {RED}{missing} of all sessions not recorded{RED:#}: {}, {DIM}within {took}{DIM:#}\n",
            self.time(call),
            cut(reason, MAX_CALL),
        )
    }

    /// Returns the time of today's calls, else date and time.
    fn time(&self, call: &CallRecord) -> String {
        let Ok(at) = Timestamp::from_millisecond(call.at_ms) else { return "unknown".to_owned() };
        let (at, now) = (at.to_zoned(self.zone.clone()), self.now.to_zoned(self.zone.clone()));
        let format = if at.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        at.strftime(format).to_string()
    }

    fn label(&self, call: &CallRecord) -> String {
        let recorded = || Some(call.label.clone()).filter(|label| !label.is_empty());
        // The daemon knows the label of now.
        let known = self.labels.as_ref().and_then(|labels| labels.get(&call.session_id.0));
        known.cloned().or_else(recorded).unwrap_or_else(|| {
            let directory = call.workspace_path.rsplit('/').next().unwrap_or_default();
            format!("{directory}/{}", call.session_name)
        })
    }

    /// Returns the end of a call: its outcome, what was denied, and its duration.
    fn end(&self, call: &CallRecord) -> String {
        let end = match call.outcome {
            // The next daemon has not recorded the end yet.
            CallEnd::Running if self.labels.is_none() => CallEnd::DaemonDied,
            end => end,
        };

        let outcome = match (end, call.signal, call.exit_code) {
            (CallEnd::Failed, Some(signal), _) => format!("killed by signal {signal}"),
            (CallEnd::Failed, None, Some(code)) => format!("exit {code}"),
            (outcome, Some(signal), _) => format!("{}, killed by signal {signal}", outcome.name()),
            (outcome, ..) => outcome.name().to_owned(),
        };

        let outcome = match end {
            CallEnd::Ok | CallEnd::Running => outcome,
            _ => format!("{RED}{outcome}{RED:#}"),
        };

        let denied = match call.denials.len() {
            0 => String::new(),
            n => format!(", {YELLOW}{n} denied{YELLOW:#}"),
        };

        // The time at which a daemon was killed is not known.
        if matches!(end, CallEnd::Running | CallEnd::DaemonDied) {
            return outcome;
        }
        let took = span(Duration::from_millis(call.duration_ms));
        format!("{outcome}{denied}, {DIM}{took}{DIM:#}")
    }
}

/// Returns the arguments of a call. Empty for a text that is not a JSON object, such as one that
/// was cut.
pub(crate) fn arguments(call: &CallRecord) -> Map<String, Value> {
    let read = |raw: &serde_json::value::RawValue| serde_json::from_str(raw.get()).ok();
    call.arguments.as_deref().and_then(read).unwrap_or_default()
}

/// Returns the argument that says most: the command of `bash`, the path of a file tool.
pub(crate) fn main_argument(call: &CallRecord) -> String {
    let arguments = arguments(call);
    if call.tool == JOB_END {
        let word = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        return format!("{} {}", word("job"), word("command"));
    }

    main_words(&call.tool, &arguments).unwrap_or_else(|| {
        let words = arguments.iter().map(|(name, value)| {
            format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        });
        words.collect::<Vec<_>>().join(" ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(extra: Value) -> String {
        let mut call = json!({
            "id": "mi2k4x9q", "atMs": 1_773_144_000_000_i64, "sessionId": "s", "sessionName": "x",
            "workspacePath": "/home/ada/app", "tool": "bash", "outcome": "ok", "durationMs": 1500,
        });
        call.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let call = serde_json::from_value(call).unwrap();
        let now = "2026-03-10T20:00:00Z".parse().unwrap();
        let labels = Some(HashMap::from([("t".to_owned(), "app".to_owned())]));
        let format = CallFormat { zone: TimeZone::UTC, now, labels };
        anstream::adapter::strip_str(&format.row(&call)).to_string()
    }

    #[test]
    fn a_row_has_who_called_what_and_how_it_ended() {
        for (extra, row) in [
            (
                json!({"arguments": {"command": "make\ntest"}, "client": "claude-code", "sessionId": "t"}),
                "12:00:00  app  claude-code: bash make\u{fffd}test  ok, 1.5 s  mi2k4x9q\n",
            ),
            (
                json!({"outcome": "failed", "exitCode": 101, "arguments": {"command": "x"}}),
                "12:00:00  app/x  bash x  exit 101, 1.5 s  mi2k4x9q\n",
            ),
            (
                json!({"outcome": "failed", "signal": 9, "atMs": 1_773_000_000_000_i64}),
                "2026-03-08 20:00:00  app/x  bash  killed by signal 9, 1.5 s  mi2k4x9q\n",
            ),
            (
                json!({"tool": "write_file", "arguments": {"content": "c", "path": "a\u{1b}[2J"}}),
                "12:00:00  app/x  write_file a\u{fffd}[2J  ok, 1.5 s  mi2k4x9q\n",
            ),
            (
                json!({"tool": "job_end", "arguments": {"command": "npm run dev", "job": "job-1"}, "outcome": "failed", "signal": 9}),
                "12:00:00  app/x  job_end job-1 npm run dev  killed by signal 9, 1.5 s  mi2k4x9q\n",
            ),
            (
                json!({"denials": [{"kind": "network", "target": "example.com"}], "outcome": "timed_out"}),
                "12:00:00  app/x  bash  timed out, 1 denied, 1.5 s  mi2k4x9q\n",
            ),
            (
                json!({"outcome": "running", "arguments": {"command": "x"}}),
                "12:00:00  app/x  bash x  running  mi2k4x9q\n",
            ),
            (
                json!({"outcome": "daemon_died", "arguments": {"command": "x"}}),
                "12:00:00  app/x  bash x  ended with the daemon  mi2k4x9q\n",
            ),
            (
                json!({"tool": "journal_gap", "outcome": "missing", "arguments": {"calls": 3, "reason": "the disk was almost full"}}),
                "12:00:00  3 calls of all sessions not recorded: the disk was almost full, within 1.5 s\n",
            ),
        ] {
            assert_eq!(shown(extra), row);
        }
    }
}
