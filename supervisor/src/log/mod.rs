//! The daemon's log: JSON lines in `duck-daemon.log`, rotated by size, written by a separate thread.
//!
//! All resources are bounded: at most [`LOG_FILES_KEPT`] old files of [`LOG_FILE_BYTES`]. A full queue drops lines and
//! does not block the daemon. Repeated lines are counted. Payloads (arguments, output) are never logged.

mod dedup;
pub(crate) mod journal;
mod rotating;

use dedup::RepeatFilter;
use quackd_home::own_file::{NotOurFile, append_blocking};
use quackd_protocol::limits::{LOG_FILE_BYTES, LOG_FILES_KEPT};
use rotating::RotatingFile;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tracing::Level;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// Maximum number of lines that wait for the disk.
const QUEUED_LINES: usize = 8192;

/// Maximum length of a panic's line, in bytes.
const PANIC_BYTES: usize = 4096;

/// Settings and counters of the running log. Clones share their state.
#[derive(Debug, Clone)]
pub(crate) struct LogControl {
    is_brief: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    queue: ErrorCounter,
}

impl LogControl {
    /// Sets whether only warnings and errors are written to the file, regardless of the configuration.
    pub(crate) fn set_warnings_only(&self, is_brief: bool) {
        self.is_brief.store(is_brief, Ordering::Relaxed);
    }

    /// Returns the number of lines that are missing in the file, because of an error or a full
    /// queue.
    pub(crate) fn lines_dropped(&self) -> u64 {
        let late = u64::try_from(self.queue.dropped_lines()).unwrap_or(u64::MAX);
        self.failed.load(Ordering::Relaxed).saturating_add(late)
    }
}

/// Checks that the log's path is free or one of quackd's files. Other errors do not prevent the daemon from serving.
///
/// # Errors
/// Describes an existing file that only the user can remove.
pub(crate) fn check_blocking(path: &Path) -> Result<(), NotOurFile> {
    append_blocking(path).err().as_ref().and_then(NotOurFile::of).map_or(Ok(()), Err)
}

/// Starts logging to `path`, and to stderr if requested. Dropping the guard writes the queued lines. `filter` comes
/// from `log.level`.
pub(crate) fn start(path: &Path, filter: &str, to_stderr: bool) -> (WorkerGuard, LogControl) {
    let failed = Arc::<AtomicU64>::default();
    let file = RotatingFile::new(path, LOG_FILE_BYTES as u64, LOG_FILES_KEPT, Arc::clone(&failed));
    let file = RepeatFilter::new(file);
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES).finish(file);
    let is_brief = Arc::<AtomicBool>::default();

    let control =
        LogControl { is_brief: Arc::clone(&is_brief), failed, queue: writer.error_counter() };
    let writer = writer.with_filter(move |metadata| {
        *metadata.level() <= Level::WARN || !is_brief.load(Ordering::Relaxed)
    });

    // The configuration was checked, so the filter is usable.
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_unusable| "info".into());
    let builder = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter);

    let started = if to_stderr {
        builder.with_writer(writer.and(std::io::stderr)).try_init()
    } else {
        builder.with_writer(writer).try_init()
    };
    // A second start in one process keeps the first log.
    started.ok();
    (guard, control)
}

/// Aborts the process at the first panic, in every build profile. A daemon with a dead actor is worse than a dead
/// daemon, because the service manager restarts the latter. The panic bypasses the queue.
pub(crate) fn abort_on_panic(path: PathBuf) {
    std::panic::set_hook(Box::new(move |info| {
        let mut text = format!("panic: {info}").replace('\n', " ");
        text.truncate(text.floor_char_boundary(PANIC_BYTES));

        let line = serde_json::json!({
            "timestamp": jiff::Timestamp::now().to_string(),
            "level": "ERROR",
            "message": text,
        });

        // A failed write to the log or the terminal cannot be reported.
        if let Ok(mut file) = append_blocking(&path) {
            // One write: another thread may panic at the same time.
            file.write_all(format!("{line}\n").as_bytes()).ok();
        }
        writeln!(std::io::stderr(), "quackd: {text}").ok();
        std::process::abort();
    }));
}
