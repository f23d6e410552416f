//! Calls after which the state of the session's files is not recorded yet.

use actix::SpawnHandle;
use std::collections::BTreeMap;
use std::time::Instant;

/// Calls since the last record, and the record that is being made.
#[derive(Debug, Default)]
pub(super) struct UnrecordedCalls {
    /// Names of the running calls that may change files, by their numbers.
    pub(super) running: BTreeMap<u64, String>,
    /// The calls to name in the next record, the first ones.
    pub(super) calls: Vec<String>,
    /// When the first of them ended. `None` if there is nothing to record.
    pub(super) since: Option<Instant>,
    pub(super) timer: Option<SpawnHandle>,
    pub(super) is_recording: bool,
    /// Whether the last attempt failed. Only the first failure is logged; the next call leads to another attempt.
    pub(super) has_failed: bool,
}
