//! Starts worker processes for the main thread, as `worker_source` on Linux. There is no template.

use super::spawner::{SpawnSettings, WORKER};
use quackd_process::{SelfExe, SpawnError, SpawnedWorker, spawn_worker_blocking};
use std::os::fd::OwnedFd;

/// The template: none.
#[derive(Debug, Default)]
pub(super) struct WorkerSource {}

impl WorkerSource {
    pub(super) fn pid(&self) -> Option<u32> {
        None
    }

    pub(super) fn spawn(
        &mut self,
        exe: &SelfExe,
        stdin: OwnedFd,
    ) -> Result<SpawnedWorker, SpawnError> {
        spawn_worker_blocking(exe, &[WORKER], stdin)
    }

    pub(super) fn prepare(&mut self, _settings: &SpawnSettings) {}

    pub(super) fn discard(&mut self) {}
}
