//! State of the calls of one answer. Part of the state of a run; [`super::tools`] changes it.

use super::routes::ToolRoute;
use crate::message::{AssistantMessage, ToolCall, ToolResultMessage};

/// The calls of one answer.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) message: AssistantMessage,
    pub(super) slots: Vec<Slot>,
    /// A line for the model about a loop.
    pub(super) hint: Option<String>,
    /// Hash of the results so far.
    pub(super) results: u64,
    /// Whether the run ends after these calls.
    pub(super) is_last: bool,
}

/// One call.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) call: ToolCall,
    pub(super) route: Option<ToolRoute>,
    pub(super) state: CallState,
    pub(super) result: Option<ToolResultMessage>,
}

/// State of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    /// The call was not announced to clients yet.
    New,
    /// It runs, with this number.
    Running(u64),
    /// It waits for another one.
    Queued,
    /// It has a result.
    Done,
}
