//! State of a run: its phase, messages and counters. Owned by the agent; [`super::run`], [`super::answer`] and
//! [`super::tools`] change it.

use super::call_batch::Batch;
use super::incoming::Incoming;
use crate::message::{Cost, Message};
use quackd_protocol::model::EndReason;
use serde_json::Value;

/// State of a run, from its prompt to the end of its last turn.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) phase: Phase,
    /// Messages of this run, for `agent_end`.
    pub(super) messages: Vec<Message>,
    /// Id of the last entry before this run.
    pub(super) parent: Option<String>,
    /// Requests of this run.
    pub(super) turns: u32,
    /// Failed attempts of the current request.
    pub(super) attempt: u32,
    /// Whether the user aborted.
    pub(super) is_aborted: bool,
    /// Whether the run was continued after a summary because of an overflow, and no answer has come since.
    pub(super) was_compacted: bool,
    /// Number of requests of this run before the last summary within it.
    summarized_at: Option<u32>,
    /// Whether the connection of an earlier attempt of the current request broke.
    pub(super) was_broken: bool,
    /// The calls of the last answer, and how often they came in a row.
    pub(super) last_calls: (String, u32),
    /// Hash of the results of the last calls.
    pub(super) last_results: u64,
    /// Reason for an early end of the run.
    pub(super) reason: Option<EndReason>,
    /// JSON schema of the answer.
    pub(super) schema: Option<Value>,
    /// Cost of the requests of this run.
    pub(super) cost: Cost,
}

/// The event that a run waits for.
#[derive(Debug)]
pub(super) enum Phase {
    /// The instructions of the workspace, and the tools of MCP servers.
    Loading(Loading),
    /// The model.
    Answering(Box<Answer>),
    /// Tool calls.
    Calling(Box<Batch>),
    /// The time of another attempt.
    Waiting,
    /// A summary, because the context was too long.
    Compacting,
}

/// Numbers of the calls that a run waits for before its first request.
#[derive(Debug)]
pub(super) struct Loading {
    pub(super) instructions: Option<u64>,
    pub(super) servers: Option<u64>,
}

/// An answer that is not complete.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) incoming: Incoming,
    /// Whether clients know of the message.
    pub(super) is_started: bool,
    pub(super) began_ms: i64,
}

impl Run {
    /// Creates a run without messages, which waits for nothing. `parent`: the last entry before it.
    pub(super) fn new(parent: Option<String>, schema: Option<Value>) -> Self {
        Self {
            phase: Phase::Waiting,
            messages: Vec::new(),
            parent,
            turns: 0,
            attempt: 0,
            is_aborted: false,
            was_compacted: false,
            summarized_at: None,
            was_broken: false,
            last_calls: (String::new(), 0),
            last_results: 0,
            reason: None,
            schema,
            cost: Cost::default(),
        }
    }

    /// Whether a summary may be made within the run: there was none, or several answers came since.
    pub(super) fn may_summarize(&self) -> bool {
        self.summarized_at.is_none_or(|at| at + 1 < self.turns)
    }

    /// Notes that a summary within the run was made, or has failed.
    pub(super) fn summarized(&mut self) {
        self.summarized_at = Some(self.turns);
    }

    /// Whether this run waits for the answer to this request.
    pub(super) fn is_for_request(&self, number: u64) -> bool {
        matches!(&self.phase, Phase::Answering(answer) if answer.incoming.number == number)
    }
}
