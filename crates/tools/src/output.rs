//! The answer of a call.

use crate::Update;
use crate::call_limits::{CallLimits, StopCause, seconds};
use quackd_protocol::approval::ApprovalKind;
use quackd_protocol::denial::one_line;
use quackd_protocol::limits::{MAX_LINE_BYTES, MAX_SHOWN_BYTES};
use quackd_protocol::mask::{cut_at_word, end_at_word};
use quackd_protocol::plain::without_numbers;
use quackd_protocol::worker::{MAX_LISTED, ToolReport};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::fmt::Display;
use std::path::Path;

/// Size of the end of a long text that followers receive, in bytes, including the line before it.
const SHOWN_TAIL_BYTES: usize = 4 * 1024;

/// Space for the line with the number of omitted bytes.
const SHOWN_MARK_BYTES: usize = 64;

/// Maximum size of text and data together as JSON, in bytes. Leaves space for the rest of the frame.
const MAX_ANSWER_BYTES: usize = MAX_LINE_BYTES - 1024 * 1024;

/// Maximum number of bytes of JSON for one byte of a text.
const MAX_ESCAPE_BYTES: usize = 6;

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The answer for a model.
    pub text: String,
    /// Facts for the supervisor, in addition to the text.
    pub report: ToolReport,
    /// Structured result of tools that have one.
    pub data: Option<Data>,
    /// Output of the call after its last update.
    pub update: Option<Update>,
    /// Closing lines of a command's text, after its output.
    pub closing: Option<String>,
}

/// Structured result as JSON text, as the supervisor receives it.
#[derive(Debug, Clone)]
pub struct Data(Box<RawValue>);

impl Data {
    /// Creates the text of a value whose keys are sorted.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        // The values of the tools always have a JSON form.
        Self(to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Parses the text.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }

    /// Returns the text.
    #[must_use]
    pub fn into_json(self) -> Box<RawValue> {
        self.0
    }
}

impl From<Value> for Data {
    fn from(value: Value) -> Self {
        Self::of(&value)
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Output {
    /// Creates a success.
    #[must_use]
    pub fn success(text: String) -> Self {
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

    /// Adds advice to a fixed text.
    pub(crate) fn with_advice(mut self, advice: Option<String>) -> Self {
        self.report.hint_adds = advice.is_some();
        self.with_hint(advice)
    }

    /// Reports the files that a file tool wrote, for the journal of calls.
    pub(crate) fn wrote(mut self, paths: impl IntoIterator<Item: AsRef<Path>>) -> Self {
        for path in paths {
            self.report.n_written = self.report.n_written.saturating_add(1);
            if self.report.written.len() < MAX_LISTED {
                self.report.written.push(one_line(&path.as_ref().to_string_lossy()));
            }
        }
        self
    }

    /// Marks a refusal that the user may take back.
    pub(crate) fn may_ask(mut self, kind: ApprovalKind) -> Self {
        self.report.may_ask = Some(kind);
        self
    }

    /// Whether text and data fit into one frame.
    pub(crate) fn fits_into_frame(&self) -> bool {
        let data = self.data.as_ref().map_or(0, |data| data.0.get().len());
        let fits = |text: usize| text + data <= MAX_ANSWER_BYTES;
        // Only a text with many escapes must be written to know its size.
        fits(self.text.len() * MAX_ESCAPE_BYTES + 2)
            || to_raw_value(&self.text).is_ok_and(|text| fits(text.get().len()))
    }

    /// Returns both ends of a text that is too long for the clients that follow the session.
    #[must_use]
    pub fn shown(&self) -> Option<String> {
        if self.text.len() <= MAX_SHOWN_BYTES {
            return None;
        }
        // The journal masks keys in it.
        let head = cut_at_word(&self.text, MAX_SHOWN_BYTES - SHOWN_TAIL_BYTES);
        let tail = end_at_word(&self.text, SHOWN_TAIL_BYTES - SHOWN_MARK_BYTES);
        let n_left_out = self.text.len() - head.len() - tail.len();
        Some(format!("{head}\n[... {n_left_out} bytes not shown]\n{tail}"))
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
