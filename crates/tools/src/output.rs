//! What a call is answered with.

use crate::bounds::{Bounds, Cutoff, seconds};
use quackd_protocol::worker::ToolReport;
use serde_json::Value;
use std::fmt::Display;

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The answer for a model.
    pub text: String,
    /// What is known besides the text.
    pub report: ToolReport,
    /// Structured result of tools that have one.
    pub data: Option<Value>,
}

impl Output {
    /// A success.
    pub(crate) fn success(text: String) -> Self {
        Self { text, report: ToolReport::default(), data: None }
    }

    /// A failure: `Error: ` and the reason.
    pub fn error(reason: impl Display) -> Self {
        let report = ToolReport { is_error: true, ..ToolReport::default() };
        Self { text: format!("Error: {reason}"), report, data: None }
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
