//! State of a summary that is being made. Owned by the agent; [`super::compact`] changes it.

use super::incoming::Incoming;
use crate::compaction::{Plan, SummaryPrompts};
use crate::message::Usage;

/// A summary that is being made.
#[derive(Debug)]
pub(super) struct Compaction {
    pub(super) reason: Reason,
    pub(super) plan: Plan,
    pub(super) prompts: SummaryPrompts,
    /// Whether the running request is for the history, not for the start of a split turn.
    pub(super) is_history: bool,
    pub(super) history: Option<String>,
    pub(super) turn_prefix: Option<String>,
    pub(super) usage: Usage,
    /// The answer to the running request.
    pub(super) incoming: Option<Incoming>,
    /// Whether a byte of an answer came, so that the provider may bill the summary.
    pub(super) is_billed: bool,
}

/// Reason for a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The user asked, with this command.
    Manual(u64),
    /// The conversation is close to the limit after a run.
    Threshold,
    /// The conversation is close to the limit within a run, which continues afterwards, also without a summary.
    WithinRun,
    /// The model refused the conversation.
    Overflow,
}

impl Reason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Manual(_) => "manual",
            Self::Threshold | Self::WithinRun => "threshold",
            Self::Overflow => "overflow",
        }
    }
}

impl Compaction {
    /// Whether the summary waits for the answer to this request.
    pub(super) fn is_for(&self, number: u64) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.number == number)
    }
}
