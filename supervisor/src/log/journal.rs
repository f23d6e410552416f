//! Files of records in the state directory: answers of the user in `approvals.jsonl`, requests of commands for hosts in
//! `network.jsonl`, and calls in `journal/`. One JSON object per line, appended by a separate thread for each kind,
//! which the first record starts.

use super::rotating::RotatingFile;
use crate::clock::unix_ms;
use memchr::memmem;
use quackd_home::call_journal::{JournalLimits, JournalWriter};
use quackd_protocol::journal::JournalGap;
use quackd_protocol::mask::mask_value;
use serde::Serialize;
use std::cell::LazyCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::SystemTime;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Maximum number of records that wait for the disk. Further ones are dropped; those of calls are counted.
const QUEUED_RECORDS: usize = 4096;

/// Number of older files.
const N_OLDER: usize = 1;

/// The queue to the thread that writes, and the guard that waits for the thread at the end.
type Writer = (NonBlocking, WorkerGuard);

/// Records of one kind.
#[derive(Debug)]
pub(crate) struct Journal {
    missed: Arc<Missed>,
    /// The first record starts the thread.
    writer: LazyCell<Writer, Box<dyn FnOnce() -> Writer>>,
}

/// Part of the records of calls that still run. Their ends are counted if they are missing.
const RUNNING: &[u8] = br#""outcome":"running""#;

/// Calls that are not in the journal and that no record mentions yet. Shared with the thread that writes.
#[derive(Debug, Default)]
struct Missed {
    n_calls: AtomicU64,
    since_ms: AtomicI64,
    has_failed: AtomicBool,
}

impl Missed {
    fn add(&self, now: SystemTime, has_failed: bool) {
        if has_failed {
            self.has_failed.store(true, Ordering::Relaxed);
        }

        // Only the first missing call sets the beginning of the gap.
        if self.n_calls.fetch_add(1, Ordering::Relaxed) == 0 {
            self.since_ms.store(unix_ms(now), Ordering::Relaxed);
        }
    }

    /// Counts a record that is lost. The beginning of a call does not count: its end follows, and
    /// is counted.
    fn unwritten(&self, line: &[u8]) {
        if memmem::find(line, RUNNING).is_none() {
            self.add(SystemTime::now(), true);
        }
    }

    fn gap(&self, now: SystemTime) -> Option<JournalGap> {
        let n_calls = self.n_calls.load(Ordering::Relaxed);
        (n_calls != 0).then(|| JournalGap {
            n_calls,
            since_ms: self.since_ms.load(Ordering::Relaxed),
            until_ms: unix_ms(now),
            has_failed: self.has_failed.load(Ordering::Relaxed),
        })
    }

    /// Forgets the calls of a gap that is in the journal now.
    fn recorded(&self, gap: JournalGap) {
        self.has_failed.store(false, Ordering::Relaxed);
        // Calls that were missed after the gap was read belong to the next gap.
        if self.n_calls.fetch_sub(gap.n_calls, Ordering::Relaxed) != gap.n_calls {
            self.since_ms.store(gap.until_ms, Ordering::Relaxed);
        }
    }
}

impl Journal {
    /// Creates a journal in one file of at most `max_bytes`, and an older one. Opens nothing yet.
    pub(crate) fn rotating(path: &Path, max_bytes: u64) -> Self {
        let file = RotatingFile::new(path, max_bytes, N_OLDER, Arc::default());
        Self::new(Records::Rotating(file), Arc::default())
    }

    /// Creates the journal of calls. Opens nothing yet.
    pub(crate) fn of_calls(dir: PathBuf, limits: JournalLimits) -> Self {
        let missed = Arc::<Missed>::default();
        let writer = JournalWriter::new(dir, limits);
        Self::new(Records::Daily { writer, missed: Arc::clone(&missed) }, missed)
    }

    fn new(records: Records, missed: Arc<Missed>) -> Self {
        let builder = NonBlockingBuilder::default().buffered_lines_limit(QUEUED_RECORDS);
        Self { missed, writer: LazyCell::new(Box::new(move || builder.finish(records))) }
    }

    /// Counts a call that is not recorded, because the disk is almost full. The next record comes after one that reports it.
    pub(crate) fn miss(&self) {
        self.missed.add(SystemTime::now(), false);
    }

    /// Appends a record, with keys in its texts masked. Does not wait for the disk.
    pub(crate) fn add(&self, record: &impl Serialize) {
        let Ok(mut value) = serde_json::to_value(record) else { return };
        // Masked before the queue, so that no key reaches the thread that writes.
        mask_value(&mut value);
        let Ok(mut line) = serde_json::to_vec(&value) else { return };
        line.push(b'\n');

        let (writer, _) = &*self.writer;
        queue(&line, writer.clone(), &self.missed);
    }
}

/// Passes a line to the thread that writes. Counts it as missing if the queue is full.
fn queue(line: &[u8], mut writer: NonBlocking, missed: &Missed) {
    // The writer reports a dropped line by its counter only.
    let dropped = writer.error_counter();
    let n_dropped = dropped.dropped_lines();

    // Never fails: a full queue drops the line.
    writer.write_all(line).ok();

    if dropped.dropped_lines() != n_dropped {
        missed.unwritten(line);
    }
}

/// Writes whole lines. A line that cannot be written is lost; those of calls are counted.
enum Records {
    Rotating(RotatingFile),
    Daily { writer: JournalWriter, missed: Arc<Missed> },
}

/// Appends a line of the journal of calls, after a record about the missing ones.
fn daily_blocking(writer: &mut JournalWriter, missed: &Missed, line: &[u8]) -> io::Result<()> {
    let now = SystemTime::now();
    if let Some(gap) = missed.gap(now) {
        let mut record = serde_json::to_vec(&gap.record())?;
        record.push(b'\n');
        writer.line_blocking(&record, now)?;
        missed.recorded(gap);
        tracing::info!(calls = gap.n_calls, "journal written again, calls missing");
    }
    writer.line_blocking(line, now)
}

impl Write for Records {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::Rotating(file) => file.line(line),
            Self::Daily { writer, missed } => {
                if let Err(error) = daily_blocking(writer, missed, line) {
                    // Only for the first of several: the disk may stay full for long.
                    if missed.n_calls.load(Ordering::Relaxed) == 0 {
                        tracing::warn!(%error, "cannot write the journal of calls");
                    }
                    missed.unwritten(line);
                }
            }
        }

        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    #[test]
    fn calls_that_a_full_queue_drops_are_counted() {
        /// Writes one line for each permit.
        struct SlowDisk(std::sync::mpsc::Receiver<()>);
        impl Write for SlowDisk {
            fn write(&mut self, line: &[u8]) -> io::Result<usize> {
                self.0.recv().map_err(io::Error::other)?;
                Ok(line.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (permits, disk) = std::sync::mpsc::channel();
        let builder = NonBlockingBuilder::default().buffered_lines_limit(4);
        let (writer, _guard) = builder.finish(SlowDisk(disk));
        let missed = Missed::default();
        // The thread may have taken one line already.
        for _ in 0..20 {
            queue(br#"{"outcome":"ok"}"#, writer.clone(), &missed);
            queue(br#"{"outcome":"running"}"#, writer.clone(), &missed);
        }
        let gap = missed.gap(SystemTime::now()).unwrap();
        assert!((16..=18).contains(&gap.n_calls), "{gap:?}");
        assert!(gap.has_failed);
        drop(permits);
    }

    #[test]
    fn calls_that_could_not_be_written_are_reported_before_the_next_record() {
        let state = tempfile::tempdir().unwrap();
        let above = state.path().join("away");
        let limits = JournalLimits { kept: Duration::from_secs(1 << 20), max_bytes: 1 << 20 };
        let writer = JournalWriter::new(above.join("journal"), limits);
        let missed = Arc::<Missed>::default();
        let mut records = Records::Daily { writer, missed: Arc::clone(&missed) };
        let mut write =
            |record: Value| records.write_all(format!("{record}\n").as_bytes()).unwrap();
        write(json!({"id": "a", "outcome": "running"}));
        write(json!({"id": "a", "outcome": "ok"}));
        write(json!({"id": "b", "outcome": "failed"}));
        missed.add(SystemTime::now(), false);
        std::fs::create_dir(&above).unwrap();
        write(json!({"id": "c", "outcome": "ok"}));
        write(json!({"id": "d", "outcome": "ok"}));
        let files = quackd_home::call_journal::files_blocking(&above.join("journal")).unwrap();
        let text = std::fs::read_to_string(&files[0].path).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let reason = "the journal could not be written";
        assert_eq!(lines[0]["arguments"], json!({"calls": 3, "reason": reason}), "{text}");
        let ids: Vec<_> = lines[1..].iter().map(|line| line["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["c", "d"]);
    }
}
