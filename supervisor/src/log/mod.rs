//! The daemon's log: JSON lines in `duck-daemon.log`, rotated by size, written by a thread of its own.
//!
//! Bounded everywhere: at most [`LOG_FILES_KEPT`] old files of [`LOG_FILE_BYTES`], a queue whose overflow drops
//! lines instead of stopping the daemon, and lines that repeat are counted instead of written. Payloads
//! (arguments, output) are never logged.
//!
//! [`LOG_FILES_KEPT`]: quackd_protocol::limits::LOG_FILES_KEPT
//! [`LOG_FILE_BYTES`]: quackd_protocol::limits::LOG_FILE_BYTES

mod dedup;
mod rotating;

use dedup::Repeats;
use quackd_home::own_file::{NotOurFile, append_blocking};
use rotating::RotatingFile;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tracing::Level;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// Lines waiting for the disk.
const QUEUED_LINES: usize = 8192;

/// Longest text of one panic line in the log.
const PANIC_BYTES: usize = 4096;

/// What the rest of the daemon may do with the log beside writing to it. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct LogControl {
    is_brief: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    queue: ErrorCounter,
}

impl LogControl {
    /// Whether warnings and errors only are written to the file, whatever the configuration says.
    pub(crate) fn set_brief(&self, is_brief: bool) {
        self.is_brief.store(is_brief, Ordering::Relaxed);
    }

    /// Lines that are not in the file because it could not be written, or not in time.
    pub(crate) fn lines_dropped(&self) -> u64 {
        let late = u64::try_from(self.queue.dropped_lines()).unwrap_or(u64::MAX);
        self.failed.load(Ordering::Relaxed).saturating_add(late)
    }
}

/// Whether the log can be one: what has its name is a file of ours, or nothing. That it cannot be written just now
/// is no reason not to serve.
///
/// # Errors
/// What stands there instead, and only a person can change.
pub(crate) fn check_blocking(path: &Path) -> Result<(), NotOurFile> {
    append_blocking(path).err().as_ref().and_then(NotOurFile::of).map_or(Ok(()), Err)
}

/// Starts logging to `path`, and to stderr too if asked. What is queued is written when the guard is
/// dropped. `filter` is that of `log.level`.
pub(crate) fn start(path: &Path, filter: &str, to_stderr: bool) -> (WorkerGuard, LogControl) {
    let failed = Arc::<AtomicU64>::default();
    let file = Repeats::new(RotatingFile::new(path, Arc::clone(&failed)));
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES).finish(file);
    let is_brief = Arc::<AtomicBool>::default();
    let control =
        LogControl { is_brief: Arc::clone(&is_brief), failed, queue: writer.error_counter() };
    let writer = writer.with_filter(move |metadata| {
        *metadata.level() <= Level::WARN || !is_brief.load(Ordering::Relaxed)
    });
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_unusable| "info".into());
    let builder = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter);
    // A second start in one process keeps the first log.
    drop(if to_stderr {
        builder.with_writer(writer.and(std::io::stderr)).try_init()
    } else {
        builder.with_writer(writer).try_init()
    });
    (guard, control)
}

/// Ends the process at the first panic, whatever the build profile: a daemon with a dead actor is worse
/// than a dead daemon, which its service manager starts again. The panic is written past the queue.
pub(crate) fn abort_on_panic(path: PathBuf) {
    std::panic::set_hook(Box::new(move |info| {
        let mut text = format!("panic: {info}").replace('\n', " ");
        text.truncate(text.floor_char_boundary(PANIC_BYTES));
        let line = serde_json::json!({
            "timestamp": jiff::Timestamp::now().to_string(),
            "level": "ERROR",
            "message": text,
        });
        // Nothing is left to do about a log or a terminal that cannot be written.
        if let Ok(mut file) = append_blocking(&path) {
            drop(writeln!(file, "{line}"));
        }
        drop(writeln!(std::io::stderr(), "quackd: {text}"));
        std::process::abort();
    }));
}
