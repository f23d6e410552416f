//! Formats the end of a tool call as one line: duration, failure and details for the user. Used by [`super::calls`].

use super::event;
use crate::output::{DIM, RED};
use crate::sanitize::one_line;
use quackd_protocol::client::ToolInfo;
use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a path, in characters.
const MAX_PATH: usize = 400;

/// Result of a call, for display.
#[derive(Debug, Default)]
pub(super) struct CallSummary {
    is_error: bool,
    pub(super) exit_code: Option<i64>,
    duration_ms: Option<u64>,
    info: ToolInfo,
}

impl CallSummary {
    pub(super) fn read(data: &Value) -> Self {
        let details = data.pointer("/result/details");
        let info = details.and_then(|details| ToolInfo::deserialize(details).ok());
        Self {
            is_error: data.get("isError").and_then(Value::as_bool).unwrap_or(false),
            exit_code: data.get("exitCode").and_then(Value::as_i64),
            duration_ms: data.get("durationMs").and_then(Value::as_u64),
            // Details of other agents have other keys.
            info: info.unwrap_or_default(),
        }
    }

    pub(super) fn signal(&self) -> Option<i32> {
        self.info.signal
    }

    /// Returns whether the call failed, and its duration and remarks, each after a space.
    pub(super) fn ending(&self) -> (bool, String) {
        let took = self.duration_ms.map(|ms| format!(" {DIM}[{}]{DIM:#}", event::span(ms)));
        (self.is_error, took.unwrap_or_default() + &self.remarks())
    }

    /// Returns the line. `client` is empty, or a name and `: `.
    pub(super) fn line(&self, client: &str, name: &str, is_alone: bool) -> String {
        let took = self.duration_ms.map(|ms| format!("[{}]", event::span(ms)));
        let remarks = self.remarks();

        if self.is_error {
            let took = took.map_or_else(String::new, |took| format!(" {DIM}{took}{DIM:#}"));
            return format!("{RED}[error]{RED:#} {client}{name} failed{took}{remarks}");
        }

        let took = took.unwrap_or_else(|| "[done]".to_owned());
        let name = match client {
            "" if is_alone => String::new(),
            "" => format!("[{name}] "),
            client => format!("[{client}{name}] ok "),
        };
        format!("{DIM}{name}{took}{DIM:#}{remarks}")
    }

    fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        let info = &self.info;

        if let Some(code) = self.exit_code.filter(|code| *code != 0) {
            remarks.push(format!("exit code {code}"));
        }
        if let Some(signal) = info.signal {
            remarks.push(format!("killed by signal {signal}"));
        }

        remarks.extend(info.timed_out.then(|| "timed out".to_owned()));
        remarks.extend(info.aborted.then(|| "aborted".to_owned()));
        remarks.extend(info.worker_died.then(|| "worker died".to_owned()));

        match info.background_ended {
            0 => {}
            1 => remarks.push("1 background process ended with it".to_owned()),
            n => remarks.push(format!("{n} background processes ended with it")),
        }
        if let Some(path) = &info.full_output_path {
            remarks.push(format!("full output: {}", one_line(path, MAX_PATH)));
        }

        let remarks = remarks.join(", ");
        if remarks.is_empty() { remarks } else { format!(" {remarks}") }
    }
}
