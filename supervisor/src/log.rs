//! The daemon's log: JSON lines in `duck-daemon.log`, rotated by size, written by a thread of its own.
//!
//! Bounded everywhere: at most [`LOG_FILES_KEPT`] old files of [`LOG_FILE_BYTES`], and a queue whose
//! overflow drops lines instead of stopping the daemon. Payloads (arguments, output) are never logged.

use file_rotate::compression::Compression;
use file_rotate::suffix::AppendCount;
use file_rotate::{ContentLimit, FileRotate};
use quackd_protocol::limits::{LOG_FILE_BYTES, LOG_FILES_KEPT};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// Lines waiting for the disk.
const QUEUED_LINES: usize = 8192;

/// Longest text of one panic line in the log.
const PANIC_BYTES: usize = 4096;

/// Starts logging to `path`, and to stderr too if asked. What is queued is written when the guard is
/// dropped. `filter` is that of `log.level`.
pub(crate) fn start(path: &Path, filter: &str, to_stderr: bool) -> WorkerGuard {
    let files = FileRotate::new(
        path,
        AppendCount::new(LOG_FILES_KEPT),
        ContentLimit::BytesSurpassed(LOG_FILE_BYTES),
        Compression::None,
        Some(options()),
    );
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES).finish(files);
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_unusable| "info".into());
    let builder = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter);
    // A second start in one process keeps the first log.
    drop(if to_stderr {
        builder.with_writer(writer.and(std::io::stderr)).try_init()
    } else {
        builder.with_writer(writer).try_init()
    });
    guard
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options
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
        if let Ok(mut file) = options().open(&path) {
            drop(writeln!(file, "{line}"));
        }
        drop(writeln!(std::io::stderr(), "quackd: {text}"));
        std::process::abort();
    }));
}
