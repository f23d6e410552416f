//! Files of records in the state directory: answers of the user in `approvals.jsonl`, and requests of commands for hosts in
//! `network.jsonl`. One JSON object per line, appended by a separate thread for each file, which the first record
//! starts.

use super::rotating::RotatingFile;
use quackd_protocol::limits::{APPROVALS_FILE_BYTES, NETWORK_FILE_BYTES};
use serde::Serialize;
use std::cell::OnceCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Maximum number of records that wait for the disk. Further ones are dropped.
const QUEUED_RECORDS: usize = 4096;

/// Number of older files.
const N_OLDER: usize = 1;

/// One file of records.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    max_bytes: u64,
    writer: OnceCell<(NonBlocking, WorkerGuard)>,
}

impl Journal {
    /// The file of the user's answers.
    pub(crate) fn of_approvals(path: PathBuf) -> Self {
        Self { path, max_bytes: APPROVALS_FILE_BYTES, writer: OnceCell::new() }
    }

    /// The file of requests for hosts.
    pub(crate) fn of_network(path: PathBuf) -> Self {
        Self { path, max_bytes: NETWORK_FILE_BYTES, writer: OnceCell::new() }
    }

    /// Appends a record. Does not wait for the disk.
    pub(crate) fn add(&self, record: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        line.push(b'\n');
        let (writer, _) = self.writer.get_or_init(|| {
            let limits = (self.max_bytes, N_OLDER);
            let failed = Arc::<AtomicU64>::default();
            let file = RotatingFile::with_limits(&self.path, limits, failed);
            NonBlockingBuilder::default().buffered_lines_limit(QUEUED_RECORDS).finish(Records(file))
        });
        // A full queue drops the record.
        drop(writer.clone().write_all(&line));
    }
}

/// Writes whole lines.
struct Records(RotatingFile);

impl Write for Records {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
