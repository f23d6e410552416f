//! Calls after which the state of the session's files is not recorded yet.

use actix::SpawnHandle;
use std::collections::BTreeMap;
use std::time::Instant;

/// A call that may change files.
#[derive(Debug, Clone)]
pub(super) struct ChangingCall {
    /// Name of the call in the record, one line.
    pub(super) name: String,
    /// Whether it runs commands, or uses an MCP server.
    pub(super) by_commands: bool,
}

/// Calls since the last record, and the record that is being made.
#[derive(Debug, Default)]
pub(super) struct UnrecordedCalls {
    /// The running calls that may change files, by their numbers.
    pub(super) running: BTreeMap<u64, ChangingCall>,
    /// The calls to name in the next record, the first ones.
    pub(super) calls: Vec<ChangingCall>,
    /// When the first of them ended. `None` if there is nothing to record.
    pub(super) since: Option<Instant>,
    pub(super) timer: Option<SpawnHandle>,
    pub(super) is_recording: bool,
    /// Whether the first record since the daemon's start has ended.
    pub(super) is_begun: bool,
    /// Whether calls that may change files wait for the first state.
    pub(super) holds_calls: bool,
    /// Whether the last attempt failed. Only the first failure is logged; the next call leads to another attempt.
    pub(super) has_failed: bool,
}
