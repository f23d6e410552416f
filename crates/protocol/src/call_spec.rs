//! The specification of one tool call. The supervisor makes it from the request of a client or an agent, a frame of
//! [`crate::worker`] carries it, and the tools of the worker read it.

use crate::CallId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSpec {
    /// Unique within the worker. Empty until the session has accepted the call.
    pub call_id: CallId,
    /// Tool name as the client sent it.
    pub tool: String,
    /// Arguments as JSON text, as the client sent them.
    pub arguments: String,
    /// Timeout of the call, in milliseconds from its arrival.
    pub deadline_ms: u64,
    /// True if the call may only use tools that change nothing.
    pub safe_mode: bool,
    /// True if the user allowed the command of this call, which safe mode would refuse.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
    /// True if the client requested the command's whole output while it runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// True if the client also requested the rows of a search.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream_rows: bool,
    /// True if the client sends the input of a command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// Directory of the caller, relative to the workspace. Empty: the workspace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cwd: String,
    /// Origin of the call. The record of a changed file has it.
    #[serde(default, skip_serializing_if = "CallOrigin::is_unknown")]
    pub origin: CallOrigin,
}

impl CallSpec {
    /// Returns the timeout of the call from its arrival.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// Sets the timeout of the call. The part below 1 ms is dropped.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
    }
}

/// Origin of a call. The records of changed files have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOrigin {
    /// Id of the call in the journal of calls, which `quack log` shows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// The turn of the session's own agent that made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnOrigin>,
}

impl CallOrigin {
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// A turn of an agent. Turns count from 1 in each daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnOrigin {
    /// Number of the turn.
    pub number: u64,
    /// Start of the daemon, ISO 8601 UTC.
    pub daemon: String,
}
