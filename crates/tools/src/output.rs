//! The answer of a call.

use crate::Update;
use crate::call_limits::{CallLimits, StopCause, seconds};
use crate::truncate;
use quackd_protocol::limits::MAX_SHOWN_BYTES;
use quackd_protocol::plain::without_numbers;
use quackd_protocol::worker::ToolReport;
use serde_json::Value;
use std::fmt::Display;

/// Size of the end of a long text that followers receive, in bytes, including the line before it.
const SHOWN_TAIL_BYTES: usize = 4 * 1024;

/// Space for the line with the number of omitted bytes.
const SHOWN_MARK_BYTES: usize = 64;

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The answer for a model.
    pub text: String,
    /// Facts for the supervisor, in addition to the text.
    pub report: ToolReport,
    /// Structured result of tools that have one.
    pub data: Option<Value>,
    /// Output of the call after its last update.
    pub update: Option<Update>,
    /// Closing lines of a command's text, after its output.
    pub closing: Option<String>,
}

impl Output {
    /// Creates a success.
    pub(crate) fn success(text: String) -> Self {
        Self { text, report: ToolReport::default(), data: None, update: None, closing: None }
    }

    /// Creates a failure: `Error: ` and the reason.
    pub fn error(reason: impl Display) -> Self {
        let report = ToolReport { is_error: true, ..ToolReport::default() };
        let text = format!("Error: {}", without_numbers(&reason.to_string()));
        Self { text, report, data: None, update: None, closing: None }
    }

    /// Adds reason and advice in plain words.
    pub(crate) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.report.hint = hint;
        self
    }

    /// Returns both ends of a text that is too long for the clients that follow the session.
    #[must_use]
    pub fn shown(&self) -> Option<String> {
        if self.text.len() <= MAX_SHOWN_BYTES {
            return None;
        }
        let bytes = self.text.as_bytes();
        let head = truncate::head(bytes, MAX_SHOWN_BYTES - SHOWN_TAIL_BYTES);
        let tail = truncate::tail(bytes, SHOWN_TAIL_BYTES - SHOWN_MARK_BYTES);
        let n_left_out = bytes.len() - head.n_bytes - tail.n_bytes;
        Some(format!("{}\n[... {n_left_out} bytes not shown]\n{}", head.text, tail.text))
    }

    /// Creates the answer of a call that was abandoned.
    pub(crate) fn cut_off(tool: &str, bounds: &CallLimits, cutoff: StopCause) -> Self {
        let mut output = match cutoff {
            StopCause::Aborted => Self::error(format_args!("{tool} was aborted")),
            StopCause::TimedOut => {
                Self::error(format_args!("{tool} timed out after {}", seconds(bounds.limit)))
            }
            StopCause::Broken => Self::error(format_args!("{tool} ended unexpectedly")),
        };
        output.report.aborted = cutoff == StopCause::Aborted;
        output.report.timed_out = cutoff == StopCause::TimedOut;
        output
    }
}
