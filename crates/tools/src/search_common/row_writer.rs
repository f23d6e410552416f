//! Writes the rows of a streamed search as lines of JSON, for the reader of the call's output. Used by search and find.

use super::data::{entry, file_row, line_row, name};
use crate::Call;
use quackd_process::{Flow, StreamName};
use quackd_protocol::search::{FileLines, RowsLine};
use quackd_search::{FileHits, FoundEntry, OutputMode, Row, Stop};
use std::borrow::Cow;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Size of the text from which on the rows of a file go into another line, in bytes.
const LINE_BYTES: usize = 32 * 1024;

/// Bytes that are counted for each row in addition to its text.
const ROW_COST: usize = 24;

/// Maximum number of bytes that are added to the flow at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Interval between two checks of the stop condition while the reader is behind.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Writer of rows. If the reader is behind, writing blocks.
#[derive(Debug)]
pub(crate) struct RowWriter {
    flow: Flow,
    runtime: Handle,
    line: Vec<u8>,
}

/// Returns the answer's text for a number of streamed rows.
pub(crate) fn text(n_rows: u64) -> String {
    format!("[{n_rows} streamed]")
}

impl RowWriter {
    /// Returns the writer of a call whose client requested the rows.
    pub(crate) fn of(call: &Call) -> Option<Self> {
        let flow = call.flow.clone().filter(|_| call.spec.stream_rows)?;
        Some(Self { flow, runtime: Handle::current(), line: Vec::new() })
    }

    /// Writes the rows of a file, or the file as a row. Returns false if the search must stop.
    pub(crate) fn file_blocking(&mut self, file: &FileHits, mode: OutputMode, stop: &Stop) -> bool {
        if !matches!(mode, OutputMode::Lines | OutputMode::OnlyMatching) {
            return self.write(&RowsLine::File(file_row(file, mode)), stop);
        }
        let (path, path_bytes) = name(&file.path);

        let mut bytes = 0;
        let mut is_same_line = |row: &Row| {
            bytes = if bytes < LINE_BYTES { bytes } else { 0 } + row.text.len() + ROW_COST;
            bytes < LINE_BYTES
        };

        file.rows.chunk_by(|row, _| is_same_line(row)).all(|rows| {
            let lines = FileLines {
                path: Cow::Borrowed(&path),
                path_bytes: path_bytes.clone(),
                binary: file.is_binary,
                rows: rows.iter().map(line_row).collect(),
            };
            self.write(&RowsLine::Lines(lines), stop)
        })
    }

    /// Writes an entry of a directory. Returns false if the search must stop.
    pub(crate) fn entry_blocking(&mut self, hit: &FoundEntry, stop: &Stop) -> bool {
        self.write(&RowsLine::Entry(entry(hit)), stop)
    }

    fn write(&mut self, line: &RowsLine<'_>, stop: &Stop) -> bool {
        self.line.clear();
        // The type always has a JSON form.
        if serde_json::to_writer(&mut self.line, line).is_err() {
            return false;
        }
        self.line.push(b'\n');

        for chunk in self.line.chunks(CHUNK_BYTES) {
            while !self.flow.has_room() {
                if stop.is_reached() {
                    return false;
                }
                // At the end of the interval, the condition is checked again.
                self.runtime.block_on(async {
                    timeout(CHECK_INTERVAL, self.flow.room()).await.ok();
                });
            }
            self.flow.push(StreamName::Rows, chunk);
        }
        true
    }
}
