//! Files of records in the state directory: answers of the user in `approvals.jsonl`, requests of commands for hosts in
//! `network.jsonl`, and calls in `journal/`. One JSON object per line, appended by a separate thread for each kind,
//! which the first record starts.

use super::rotating::RotatingFile;
use quackd_home::call_journal::{JournalLimits, JournalWriter};
use quackd_protocol::limits::{APPROVALS_FILE_BYTES, NETWORK_FILE_BYTES};
use quackd_protocol::mask::mask_value;
use serde::Serialize;
use std::cell::OnceCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Maximum number of records that wait for the disk. Further ones are dropped.
const QUEUED_RECORDS: usize = 4096;

/// Number of older files.
const N_OLDER: usize = 1;

/// Records of one kind.
#[derive(Debug)]
pub(crate) struct Journal {
    files: Files,
    writer: OnceCell<(NonBlocking, WorkerGuard)>,
}

#[derive(Debug)]
enum Files {
    Rotating { path: PathBuf, max_bytes: u64 },
    Daily { dir: PathBuf, limits: JournalLimits },
}

impl Journal {
    /// The file of the user's answers.
    pub(crate) fn of_approvals(path: PathBuf) -> Self {
        Self::of(Files::Rotating { path, max_bytes: APPROVALS_FILE_BYTES })
    }

    /// The file of requests for hosts.
    pub(crate) fn of_network(path: PathBuf) -> Self {
        Self::of(Files::Rotating { path, max_bytes: NETWORK_FILE_BYTES })
    }

    /// The files of calls.
    pub(crate) fn of_calls(dir: PathBuf, limits: JournalLimits) -> Self {
        Self::of(Files::Daily { dir, limits })
    }

    fn of(files: Files) -> Self {
        Self { files, writer: OnceCell::new() }
    }

    /// Appends a record, with keys in its texts masked. Does not wait for the disk.
    pub(crate) fn add(&self, record: &impl Serialize) {
        let Ok(mut value) = serde_json::to_value(record) else { return };
        mask_value(&mut value);
        let Ok(mut line) = serde_json::to_vec(&value) else { return };
        line.push(b'\n');
        let (writer, _) = self.writer.get_or_init(|| {
            let records = match &self.files {
                Files::Rotating { path, max_bytes } => {
                    let failed = Arc::<AtomicU64>::default();
                    let limits = (*max_bytes, N_OLDER);
                    Records::Rotating(RotatingFile::with_limits(path, limits, failed))
                }
                Files::Daily { dir, limits } => {
                    Records::Daily(JournalWriter::new(dir.clone(), *limits))
                }
            };
            NonBlockingBuilder::default().buffered_lines_limit(QUEUED_RECORDS).finish(records)
        });
        // A full queue drops the record.
        drop(writer.clone().write_all(&line));
    }
}

/// Writes whole lines. A line that cannot be written is lost.
enum Records {
    Rotating(RotatingFile),
    Daily(JournalWriter),
}

impl Write for Records {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::Rotating(file) => file.line(line),
            Self::Daily(writer) => writer.line_blocking(line, SystemTime::now()).unwrap_or(()),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
