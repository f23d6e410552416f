//! Finds the background jobs that ran when an earlier daemon was killed: the journal has their beginning and no end. Called
//! once after the start, on a blocking thread.

use memchr::memmem;
use quackd_home::call_journal::{files_blocking, read_file_blocking};
use quackd_protocol::journal::{CallRecord, JOB_END, is_beginning_of_job};
use quackd_protocol::limits::MAX_JOURNAL_LINE_BYTES;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of files that are read, newest first. An older job has no end in the journal.
const MAX_FILES: usize = 4;

/// Most jobs that get an end.
const MAX_LOST: usize = 256;

/// Returns the beginnings, before a time, of background jobs without an end.
///
/// # Errors
/// Those of the file system.
pub(super) fn lost_jobs_blocking(dir: &Path, before: SystemTime) -> io::Result<Vec<CallRecord>> {
    let before = before.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let before = i64::try_from(before).unwrap_or(i64::MAX);
    let (mut ended, mut lost) = (HashSet::new(), Vec::new());
    for file in files_blocking(dir)?.iter().rev().take(MAX_FILES) {
        let bytes = read_file_blocking(file)?;
        let lines = bytes.rsplit(|byte| *byte == b'\n');
        let lines = lines.filter(|line| line.len() <= MAX_JOURNAL_LINE_BYTES);
        // Most lines are calls: they need not be parsed.
        let lines = lines.filter(|line| memmem::find(line, JOB_END.as_bytes()).is_some());
        for record in lines.filter_map(|line| serde_json::from_slice::<CallRecord>(line).ok()) {
            if record.tool != JOB_END {
                continue;
            }
            if !is_beginning_of_job(&record) {
                ended.insert(record.id);
            } else if record.at_ms < before && !ended.contains(&record.id) && lost.len() < MAX_LOST
            {
                lost.push(record);
            }
        }
    }
    lost.reverse();
    Ok(lost)
}
