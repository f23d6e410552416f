//! Frames that both kinds of agents send.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The agent's reply to a command.
#[derive(Debug, Serialize, Deserialize)]
pub struct AgentAnswer {
    /// Number of the command.
    pub number: u64,
    /// Whether the agent reports success.
    pub success: bool,
    /// Error text of a failed command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The result, on one line: of [`super::AgentCommand::GetState`] at most [`crate::limits::MAX_AGENT_STATE_BYTES`],
    /// otherwise [`crate::limits::MAX_AGENT_ANSWER_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// Exit of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentExit {
    /// Exit code, if the agent exited.
    pub code: Option<i32>,
    /// Signal, if one killed the agent.
    pub signal: Option<i32>,
    /// End of the agent's stderr.
    pub stderr_tail: String,
}
