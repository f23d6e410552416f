//! Ceilings of commands, as reports name them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Ceiling that ended a command. The text of the answer has the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CeilingKind {
    /// The memory of its session (`limits.session_memory_mb`).
    SessionMemory,
    /// The memory of the machine, or of a control group around the daemon: the kernel probably killed it.
    Memory,
    /// The processes of a command (`limits.processes`).
    Processes,
}
