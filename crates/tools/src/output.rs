//! What a call is answered with.

use crate::Update;
use crate::bounds::{Bounds, Cutoff, seconds};
use crate::truncate;
use quackd_protocol::limits::MAX_SHOWN_BYTES;
use quackd_protocol::plain::without_numbers;
use quackd_protocol::worker::ToolReport;
use serde_json::Value;
use std::fmt::Display;

/// Bytes of the end of a long text that followers see, with the line before it.
const SHOWN_TAIL_BYTES: usize = 4 * 1024;

/// Room for the line that says how much is left out.
const SHOWN_MARK_BYTES: usize = 64;

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The answer for a model.
    pub text: String,
    /// What is known besides the text.
    pub report: ToolReport,
    /// Structured result of tools that have one.
    pub data: Option<Value>,
    /// What the call printed after its last update.
    pub update: Option<Update>,
    /// End of the text of a command, after its output: how it ended.
    pub closing: Option<String>,
}

impl Output {
    /// A success.
    pub(crate) fn success(text: String) -> Self {
        Self { text, report: ToolReport::default(), data: None, update: None, closing: None }
    }

    /// A failure: `Error: ` and the reason.
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

    /// What is shown of a text that is too long for those who follow the session: its two ends.
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

    /// A call of which nothing is known but why it is not waited for any more.
    pub(crate) fn cut_off(tool: &str, bounds: &Bounds, cutoff: Cutoff) -> Self {
        let mut output = match cutoff {
            Cutoff::Aborted => Self::error(format_args!("{tool} was aborted")),
            Cutoff::TimedOut => {
                Self::error(format_args!("{tool} timed out after {}", seconds(bounds.limit)))
            }
            Cutoff::Broken => Self::error(format_args!("{tool} ended unexpectedly")),
        };
        output.report.aborted = cutoff == Cutoff::Aborted;
        output.report.timed_out = cutoff == Cutoff::TimedOut;
        output
    }
}
