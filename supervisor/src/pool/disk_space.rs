//! Free space on the disk of the state directory.
//!
//! With too little free space, workers write no spill files (each checks before it writes), the log contains warnings
//! and errors only, and garbage collection runs once. The remaining space is for files that must be written: each save
//! writes a new file next to the old one. The state ends when half as much again as required is free.

use crate::log::LogControl;
use quackd_home::{DiskRoom, Home};
use quackd_protocol::client::{Check, CheckStatus, DiskInfo};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Timeout of one check. A check that hangs keeps its permit, and no other starts.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    dir: PathBuf,
    log: LogControl,
    /// Bytes that must be free, if the disk is large enough.
    min_free_bytes: u64,
    /// Result of the last check.
    room: Cell<Option<DiskRoom>>,
    is_low: Cell<bool>,
    /// The disk became low, and no garbage collection has run for it.
    cleanup_due: Cell<bool>,
    permit: Arc<Semaphore>,
}

impl DiskSpace {
    /// `min_free_bytes` is in bytes. Checks nothing yet.
    pub(crate) fn new(home: &Home, min_free_bytes: u64, log: LogControl) -> Self {
        let (room, is_low, cleanup_due) = (Cell::new(None), Cell::new(false), Cell::new(false));
        let (dir, permit) = (home.dir().to_owned(), Arc::new(Semaphore::new(1)));
        Self { dir, log, min_free_bytes, room, is_low, cleanup_due, permit }
    }

    /// Returns the bytes that must be free before a worker writes a spill file. Fewer than
    /// configured on a small disk.
    pub(crate) fn min_free(&self) -> u64 {
        self.room.get().map_or(self.min_free_bytes, |room| room.needed(self.min_free_bytes))
    }

    /// Returns whether the disk is almost full, so that optional files are not written.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low.get()
    }

    /// Returns the result of the last check; `None` before it, and where the system does not report
    /// free space.
    pub(crate) fn describe(&self) -> Option<DiskInfo> {
        let room = self.room.get()?;
        Some(DiskInfo { free_bytes: room.free, total_bytes: room.total, low: self.is_low.get() })
    }

    /// Returns the number of lines that are missing in the log because the disk was full.
    pub(crate) fn log_lines_dropped(&self) -> u64 {
        self.log.lines_dropped()
    }

    /// Returns whether the disk became low since the last call. Resets it.
    pub(crate) fn take_cleanup_due(&self) -> bool {
        self.cleanup_due.take()
    }

    /// Checks now. Keeps the last result if the check hangs or another one is running.
    pub(crate) async fn check(&self) {
        let Ok(permit) = Arc::clone(&self.permit).try_acquire_owned() else { return };

        let dir = self.dir.clone();
        let checking = actix_rt::task::spawn_blocking(move || {
            let room = DiskRoom::of_blocking(&dir);
            // In the thread: the permit of a check that hangs stays taken although its future is
            // dropped.
            drop(permit);
            room
        });

        match tokio::time::timeout(CHECK_TIMEOUT, checking).await {
            Ok(Ok(Ok(room))) => self.note(room),
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "cannot determine the free disk space");
            }
            // The check hangs, or the daemon is shutting down.
            Ok(Err(_)) | Err(_) => {}
        }
    }

    /// Records the result of a check, and logs when the disk becomes low or recovers.
    fn note(&self, room: DiskRoom) {
        self.room.set(Some(room));
        let was_low = self.is_low.get();
        let is_low = room.is_low(self.min_free_bytes, was_low);

        self.is_low.set(is_low);
        if is_low == was_low {
            return;
        }

        let (free, needed) = (room.free, room.needed(self.min_free_bytes));
        // Before the line about the end, which the level would otherwise suppress.
        self.log.set_warnings_only(is_low);
        if is_low {
            self.cleanup_due.set(true);
            tracing::warn!(free, needed, "disk almost full, spill files disabled");
        } else {
            tracing::info!(free, "disk space recovered");
        }
    }

    /// The check of `doctor`. `note` describes the last garbage collection.
    pub(crate) fn report(&self, note: Option<String>) -> Check {
        let dropped = match self.log_lines_dropped() {
            0 => String::new(),
            n => format!("; {n} lines are missing in the log"),
        };
        let last = note.map_or_else(String::new, |note| format!("; {note}"));

        let (status, message, hint) = match self.room.get() {
            None => (CheckStatus::Ok, format!("free disk space unknown{dropped}"), None),
            Some(room) if self.is_low.get() => (
                CheckStatus::Warn,
                format!(
                    "{} MiB free, fewer than {}: long outputs and the journal of calls are not written, the log has \
                     warnings and errors only{dropped}",
                    mebibytes_of(room.free),
                    mebibytes_of(room.needed(self.min_free_bytes))
                ),
                Some("free disk space; `quack gc -n` lists what can be deleted".to_owned()),
            ),
            Some(room) => {
                let free = mebibytes_of(room.free);
                (CheckStatus::Ok, format!("{free} MiB free{last}{dropped}"), None)
            }
        };
        Check { name: "disk".to_owned(), status, message, hint }
    }
}

fn mebibytes_of(bytes: u64) -> u64 {
    bytes / (1024 * 1024)
}
