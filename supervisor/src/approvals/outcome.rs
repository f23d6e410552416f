//! Results of requests to ask the user, answers of the user, and the reasons why a question is closed or an answer does
//! not count.

use quackd_protocol::approval::{AnswerScope, Decision, RecentApproval};

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The user allowed it.
    Allowed(AnswerScope),
    /// The user denied it.
    Denied,
    /// The user did not answer in time.
    TimedOut,
    /// Too many questions.
    TooMany,
    /// No client can answer.
    NoAnswerer,
    /// The session or the daemon has ended.
    Ended,
    /// A changed rule decides about it.
    RulesChanged,
}

/// The reason why a question to the user, or a dialog of Pi, was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// A client answered.
    Answered,
    /// The user did not answer in time.
    TimedOut,
    /// The session, the daemon, Pi or its turn has ended.
    Ended,
}

impl CloseReason {
    /// Name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::TimedOut => "timeout",
            Self::Ended => "ended",
        }
    }
}

/// An answer of the user.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) decision: Decision,
    pub(super) scope: AnswerScope,
    /// Name of the client, for display.
    pub(super) by: String,
}

/// Reason why an answer does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// No such question.
    Unknown,
    /// The question is closed.
    Closed(Box<RecentApproval>),
}
