//! `quackd-state.json` on disk. Its caller saves the whole content and exports `metadata.json` from it.

use crate::StoreError;
use crate::document::{Earlier, StateFile, to_bytes};
use crate::replace::replace_with_backup_blocking;
use quackd_protocol::metadata::Metadata;
use quackd_protocol::state::DaemonState;
use std::path::PathBuf;
use std::sync::Arc;

/// Everything durable at one point in time. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Workspaces and sessions.
    pub metadata: Arc<Metadata>,
    /// Settings that only quackd has.
    pub state: Arc<DaemonState>,
}

/// `quackd-state.json` and its last known content.
#[derive(Debug)]
pub struct StoredState {
    path: PathBuf,
    /// Content that was opened or saved last.
    durable: Snapshot,
    /// Whether the file contains exactly `durable`, so that a save can be skipped.
    is_known: bool,
    /// Whether the file says that nothing is under way ([`StateFile::is_settled`]).
    is_settled: bool,
}

impl StoredState {
    /// Writes nothing: the file at `path` may differ from `durable` until the first save.
    #[must_use]
    pub fn new(path: PathBuf, durable: Snapshot, is_settled: bool) -> Self {
        Self { path, durable, is_known: false, is_settled }
    }

    /// Returns the content that was opened or saved last.
    #[must_use]
    pub fn durable(&self) -> Snapshot {
        self.durable.clone()
    }

    /// Replaces the file if its content differs. The replaced file becomes `<path>.bak`. `earlier` becomes
    /// [`StateFile::earlier`].
    ///
    /// # Errors
    /// [`StoreError`]: the file is unchanged.
    pub fn save_blocking(
        &mut self,
        snapshot: Snapshot,
        earlier: Earlier,
    ) -> Result<(), StoreError> {
        let is_same = Arc::ptr_eq(&self.durable.metadata, &snapshot.metadata)
            && Arc::ptr_eq(&self.durable.state, &snapshot.state);
        if self.is_known && (is_same || self.durable == snapshot) {
            return Ok(());
        }

        // After an error, the next save writes the file in any case.
        self.is_known = false;
        // Not settled: the other program may not have seen this change.
        self.write_blocking(&snapshot, earlier, false)?;
        (self.durable, self.is_known, self.is_settled) = (snapshot, true, false);
        Ok(())
    }

    /// Marks the file as settled, unless it is.
    ///
    /// # Errors
    /// [`StoreError`]: the file is unchanged.
    pub fn settle_blocking(&mut self) -> Result<(), StoreError> {
        if !self.is_settled {
            self.write_blocking(&self.durable, Earlier::default(), true)?;
            self.is_settled = true;
        }
        Ok(())
    }

    fn write_blocking(
        &self,
        snapshot: &Snapshot,
        earlier: Earlier,
        is_settled: bool,
    ) -> Result<(), StoreError> {
        let (state, metadata) = (&*snapshot.state, Some(&*snapshot.metadata));
        let file = StateFile { state, metadata, earlier, is_settled };
        let bytes = to_bytes::<StateFile>(&self.path, &file)?;
        replace_with_backup_blocking(&self.path, &bytes)
            .map_err(|error| StoreError::write(&self.path, error))
    }
}
