//! Reading files and collecting rows.

use crate::Open;
use crate::request::{Row, Skipped, Stop};
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest line, in bytes. The searcher holds whole lines in memory.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Files below this size are read at once. The searcher looks for NUL bytes in as much of a slice.
const SMALL_FILE_BYTES: usize = 64 * 1024;

/// What reading the files has given.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) rows: Vec<Row>,
    /// At least one more row exists, or the only row is cut.
    pub(crate) is_full: bool,
    pub(crate) files_searched: usize,
    pub(crate) skipped: Skipped,
    bytes: usize,
}

/// Searches `files` in their order, until all are searched, `max_bytes` are full or `stop` says so.
pub(crate) fn scan(
    files: &[PathBuf],
    matcher: &RegexMatcher,
    max_bytes: usize,
    stop: &Stop<'_>,
    open: Open<'_>,
) -> Scan {
    // Never memory maps: a file that is truncated while it is mapped would kill the process.
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_BYTES))
        .build();
    let mut scan = Scan::default();
    let mut head = vec![0; SMALL_FILE_BYTES];
    for path in files {
        if scan.is_full || stop.is_reached() {
            break;
        }
        match open(path) {
            Ok(file) => {
                let sink = FileSink::new(path, max_bytes, stop, &mut scan);
                sink.search(file, matcher, &mut searcher, &mut head);
            }
            // It was removed after the walk.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => scan.skipped.unreadable += 1,
        }
    }
    scan
}

/// Takes the matching lines of one file.
struct FileSink<'a> {
    path: &'a Path,
    max_bytes: usize,
    stop: &'a Stop<'a>,
    scan: &'a mut Scan,
    // INVARIANT: the lengths of `scan.rows` and `scan.bytes` before this file, to which they go back
    // if it turns out to be binary.
    rows_before: usize,
    bytes_before: usize,
    is_binary: bool,
    /// Made with the first row: most files have none.
    shared_path: Option<Arc<Path>>,
}

impl<'a> FileSink<'a> {
    fn new(path: &'a Path, max_bytes: usize, stop: &'a Stop<'a>, scan: &'a mut Scan) -> Self {
        let (rows_before, bytes_before) = (scan.rows.len(), scan.bytes);
        Self {
            path,
            max_bytes,
            stop,
            scan,
            rows_before,
            bytes_before,
            is_binary: false,
            shared_path: None,
        }
    }

    /// Most files of a repository are small: they are read at once and searched in place, which spares
    /// a read and a copy each. `head` is the buffer for that.
    fn search(
        mut self,
        file: File,
        matcher: &RegexMatcher,
        searcher: &mut Searcher,
        head: &mut [u8],
    ) {
        let mut reader = Interruptible { file, stop: self.stop };
        let searched = match fill(&mut reader, head) {
            Ok(start) if start.len() < SMALL_FILE_BYTES => {
                searcher.search_slice(matcher, start, &mut self)
            }
            Ok(start) => searcher.search_reader(matcher, start.chain(reader), &mut self),
            Err(error) => Err(error),
        };
        match searched {
            Ok(()) if self.is_binary => self.scan.skipped.binary += 1,
            Ok(()) => self.scan.files_searched += 1,
            Err(_) if self.stop.is_reached() => (),
            // The kernel's errors have a number; the searcher's only own one is a full line buffer.
            Err(error) if error.raw_os_error().is_none() => self.scan.skipped.too_long += 1,
            Err(_) => self.scan.skipped.unreadable += 1,
        }
    }
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.stop.is_reached() {
            return Ok(false);
        }
        let line = found.line_number().unwrap_or_default();
        let text = found.bytes();
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let bytes = row_bytes(self.path, line, text);
        let room = self.max_bytes.saturating_sub(self.scan.bytes);
        self.scan.is_full = room < bytes;
        if self.scan.is_full && !self.scan.rows.is_empty() {
            return Ok(false);
        }
        // A first row that does not fit is cut rather than left out: an empty result would say that
        // nothing matches.
        let kept = text.get(..text.len().min(self.max_bytes)).unwrap_or(text);
        let path = self.shared_path.get_or_insert_with(|| Arc::from(self.path));
        self.scan.rows.push(Row { path: Arc::clone(path), line, text: kept.to_vec() });
        self.scan.bytes += bytes;
        Ok(!self.scan.is_full)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        // A NUL byte far into the file comes after rows that were already delivered.
        if end.binary_byte_offset().is_some() {
            self.is_binary = true;
            self.scan.rows.truncate(self.rows_before);
            self.scan.bytes = self.bytes_before;
        }
        Ok(())
    }
}

/// Reads until `buffer` is full or the file has ended, and gives what was read.
fn fill<'b>(from: &mut impl Read, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let mut n = 0;
    while let Some(free) = buffer.get_mut(n..).filter(|free| !free.is_empty()) {
        match from.read(free) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(buffer.get(..n).unwrap_or_default())
}

/// The size of `path:line:text` and a newline.
fn row_bytes(path: &Path, line: u64, text: &[u8]) -> usize {
    let digits = usize::try_from(line.checked_ilog10().unwrap_or(0)).unwrap_or(0) + 1;
    path.as_os_str().as_bytes().len() + digits + text.len() + 3
}

/// A file that stops giving bytes when the search should end, so that a huge file without a match
/// cannot outlast the deadline. A read that the kernel does not answer is not interrupted.
struct Interruptible<'a> {
    file: File,
    stop: &'a Stop<'a>,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_reached() {
            return Err(io::Error::other("the search was stopped"));
        }
        self.file.read(buffer)
    }
}
