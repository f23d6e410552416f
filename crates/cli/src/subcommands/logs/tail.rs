//! Reads the last lines of a rotated log, and the lines appended later. Used by `quack logs`.
//!
//! The daemon renames `duck-daemon.log` to `.1`, `.1` to `.2` and so on, and starts a new file. Files are identified by
//! their inode. An open file is read to its end before the next one, so that no line is lost between two polls.

use quackd_protocol::limits::LOG_FILES_KEPT;
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Maximum length of a line, in bytes. The daemon's own lines have at most a few thousand.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Size of one read, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// Log line without its line end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogLine {
    pub(super) bytes: Vec<u8>,
    /// Number of cut bytes.
    pub(super) omitted: usize,
}

/// Identity of a file: device and inode.
type FileId = (u64, u64);

#[derive(Debug)]
struct OpenLog {
    file: File,
    id: FileId,
    /// Offset of the next read.
    at: u64,
}

/// Read position in a log.
#[derive(Debug)]
pub(super) struct LogTail {
    path: PathBuf,
    /// Open files, oldest first. The last one is the newest known file.
    files: VecDeque<OpenLog>,
    /// Incomplete last line.
    begun: LogLine,
}

impl LogTail {
    /// Opens the log at `path` at its last `max_lines` lines, including rotated files. The log need not exist.
    ///
    /// # Errors
    /// Those of the file system, and an error if the path is not a file.
    pub(super) fn begin_blocking(path: &Path, max_lines: usize) -> io::Result<Self> {
        let mut tail =
            Self { path: path.to_owned(), files: VecDeque::new(), begun: LogLine::default() };

        let mut n_missing = max_lines;
        for n in 0..=LOG_FILES_KEPT {
            let Some(mut open) = open_blocking(&tail.generation(n))? else { continue };
            // The file was renamed during the search and is already open.
            if tail.files.iter().any(|known| known.id == open.id) {
                continue;
            }

            let (at, n_lines) = last_lines_blocking(&open.file, n_missing)?;
            open.at = at;
            tail.files.push_front(open);
            n_missing = n_missing.saturating_sub(n_lines);
            if n_missing == 0 {
                break;
            }
        }
        Ok(tail)
    }

    /// Whether no log file exists.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the new lines.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn read_blocking(&mut self) -> io::Result<Vec<LogLine>> {
        let mut lines = Vec::new();
        while lines.is_empty() {
            let n_files = self.files.len();
            let Some(first) = self.files.front_mut() else {
                // The file may have been created since.
                self.files.extend(open_blocking(&self.path)?);
                if self.files.is_empty() {
                    break;
                }
                continue;
            };

            let mut chunk = vec![0; CHUNK_BYTES];
            let n = first.read_blocking(&mut chunk)?;
            if n != 0 {
                split(chunk.get(..n).unwrap_or_default(), &mut self.begun, &mut lines);
                continue;
            }

            if n_files == 1 {
                let successors = self.successors_blocking()?;
                if successors.is_empty() {
                    break;
                }
                // The file may have grown between the read and its renaming.
                self.files.extend(successors);
                continue;
            }

            self.files.pop_front();
            // The last line of a rotated file may lack its line end.
            lines.extend(self.rest());
        }
        Ok(lines)
    }

    /// Returns the incomplete last line.
    pub(super) fn rest(&mut self) -> Option<LogLine> {
        let line = std::mem::take(&mut self.begun);
        Some(line).filter(|line| *line != LogLine::default())
    }

    /// Opens the files that are newer than the last open one, oldest first.
    fn successors_blocking(&self) -> io::Result<Vec<OpenLog>> {
        let Some(current) = self.files.back() else { return Ok(Vec::new()) };

        let mut successors: Vec<OpenLog> = Vec::new();
        for n in 0..=LOG_FILES_KEPT {
            match open_blocking(&self.generation(n))? {
                Some(open) if open.id == current.id => break,
                // The file was renamed during the search and is already open.
                Some(open) if successors.iter().any(|known| known.id == open.id) => {}
                Some(open) => successors.push(open),
                // The new file does not exist yet, or no more files exist.
                None if n == 0 => return Ok(Vec::new()),
                None => break,
            }
        }

        successors.reverse();
        Ok(successors)
    }

    /// Returns the path of the log after `n` rotations.
    fn generation(&self, n: usize) -> PathBuf {
        if n == 0 { self.path.clone() } else { self.path.with_added_extension(n.to_string()) }
    }
}

impl OpenLog {
    fn read_blocking(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        // The file is shorter than the read position: it was truncated and written again.
        if self.file.metadata()?.len() < self.at {
            self.at = 0;
        }

        self.file.seek(SeekFrom::Start(self.at))?;
        let n = self.file.read(chunk)?;
        self.at = self.at.saturating_add(u64::try_from(n).unwrap_or(0));
        Ok(n)
    }
}

/// Opens a file for reading if it exists. Refuses a FIFO or device without blocking.
fn open_blocking(path: &Path) -> io::Result<Option<OpenLog>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from) {
        Ok(file) => File::from(file),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };

    let status = file.metadata()?;
    if !status.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
    }
    Ok(Some(OpenLog { file, id: (status.dev(), status.ino()), at: 0 }))
}

/// Returns the offset of the last `max_lines` lines of a file, and their number.
fn last_lines_blocking(file: &File, max_lines: usize) -> io::Result<(u64, usize)> {
    let length = file.metadata()?.len();
    if max_lines == 0 {
        return Ok((length, 0));
    }

    let (mut end, mut n_lines) = (length, 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    while end != 0 {
        let begin = end.saturating_sub(u64::try_from(CHUNK_BYTES).unwrap_or(1));
        let n_bytes = usize::try_from(end - begin).unwrap_or(CHUNK_BYTES);
        let block = chunk.get_mut(..n_bytes).unwrap_or_default();
        match file.read_exact_at(block, begin) {
            Ok(()) => {}
            // The file was truncated during the search, so its content is new.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok((0, n_lines)),
            Err(error) => return Err(error),
        }

        for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = begin + u64::try_from(at).unwrap_or(0) + 1;
            // The line end of the last line starts no further line.
            if after == length {
                continue;
            }
            n_lines += 1;
            if n_lines == max_lines {
                return Ok((after, n_lines));
            }
        }
        end = begin;
    }

    // The text before the first line end is a line too.
    Ok((0, n_lines + usize::from(length != 0)))
}

/// Appends `bytes` to the incomplete line and moves complete lines to `lines`.
fn split(bytes: &[u8], begun: &mut LogLine, lines: &mut Vec<LogLine>) {
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = piece.strip_suffix(b"\n").unwrap_or(piece);
        // The rest of a long line is counted and not kept.
        let room = MAX_LINE_BYTES.saturating_sub(begun.bytes.len()).min(text.len());
        begun.bytes.extend_from_slice(text.get(..room).unwrap_or_default());
        begun.omitted += text.len() - room;
        if text.len() != piece.len() {
            lines.push(std::mem::take(begun));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use tempfile::TempDir;

    struct Log {
        _dir: TempDir,
        path: PathBuf,
    }

    impl Log {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("duck-daemon.log");
            Self { _dir: dir, path }
        }

        fn write(&self, text: impl AsRef<[u8]>) {
            let file = OpenOptions::new().create(true).append(true).open(&self.path);
            file.unwrap().write_all(text.as_ref()).unwrap();
        }

        #[expect(clippy::disallowed_methods, reason = "the test rotates a log as the daemon does")]
        fn rotate(&self) {
            for n in (0..LOG_FILES_KEPT).rev() {
                let of = |n: usize| match n {
                    0 => self.path.clone(),
                    n => self.path.with_added_extension(n.to_string()),
                };
                if of(n).exists() {
                    fs::rename(of(n), of(n + 1)).unwrap();
                }
            }
        }

        fn tail(&self, max_lines: usize) -> LogTail {
            LogTail::begin_blocking(&self.path, max_lines).unwrap()
        }
    }

    fn read(tail: &mut LogTail) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let lines = tail.read_blocking().unwrap();
            if lines.is_empty() {
                return all;
            }
            all.extend(lines.into_iter().map(|line| String::from_utf8(line.bytes).unwrap()));
        }
    }

    #[test]
    fn the_last_lines_are_found_whatever_stands_before_them() {
        let log = Log::new();
        log.write("1\n2\n\n4\n5");
        for (max_lines, lines) in
            [(0, &[][..]), (1, &[]), (2, &["4"]), (3, &["", "4"]), (9, &["1", "2", "", "4"])]
        {
            let mut tail = log.tail(max_lines);
            assert_eq!(read(&mut tail), lines, "{max_lines}");
            let rest = tail.rest().map(|line| line.bytes);
            assert_eq!(rest, Some(b"5".to_vec()).filter(|_| max_lines != 0), "{max_lines}");
        }
        log.write("\n");
        assert_eq!(read(&mut log.tail(2)), ["4", "5"]);
    }

    #[test]
    fn lines_that_the_current_file_has_not_come_from_those_before_it() {
        let log = Log::new();
        for n in 1..=5 {
            log.write(format!("{n}a\n{n}b\n"));
            log.rotate();
        }
        assert_eq!(read(&mut log.tail(3)), ["4b", "5a", "5b"]);
        log.write("6a\n");
        assert_eq!(read(&mut log.tail(4)), ["4b", "5a", "5b", "6a"]);
        assert_eq!(read(&mut log.tail(100)).len(), 9, "what was rotated away is gone");
    }

    #[test]
    fn a_block_border_is_no_line_border() {
        let log = Log::new();
        let lines: Vec<String> = (0..40_000).map(|n| format!("line {n}")).collect();
        log.write(lines.join("\n") + "\n");
        for max_lines in [1, 2, 9000, 39_999, 40_000, 50_000] {
            let first = lines.len().saturating_sub(max_lines);
            assert_eq!(read(&mut log.tail(max_lines)), lines[first..], "{max_lines}");
        }
    }

    #[test]
    fn no_line_is_lost_over_any_number_of_rotations() {
        let log = Log::new();
        let mut tail = log.tail(10);
        assert!(tail.is_empty() && read(&mut tail).is_empty());
        log.write("1\n2");
        assert_eq!(read(&mut tail), ["1"]);
        log.write(" whole\n3\n");
        log.rotate();
        assert_eq!(read(&mut tail), ["2 whole", "3"], "the new file is not there yet");
        log.write("4\n");
        assert_eq!(read(&mut tail), ["4"]);
        for n in 5..8 {
            log.write(format!("{n}\n"));
            log.rotate();
        }
        log.write("8");
        assert_eq!(read(&mut tail), ["5", "6", "7"]);
        log.rotate();
        log.write("9\n");
        assert_eq!(read(&mut tail), ["8", "9"], "a last line without an end is a line");
    }

    #[test]
    fn a_log_that_was_emptied_begins_again() {
        let log = Log::new();
        log.write("1\n2\n");
        let mut tail = log.tail(10);
        assert_eq!(read(&mut tail), ["1", "2"]);
        File::create(&log.path).unwrap();
        log.write("3\n");
        assert_eq!(read(&mut tail), ["3"]);
    }

    #[test]
    fn a_line_of_megabytes_costs_its_beginning_only() {
        let log = Log::new();
        log.write("x".repeat(8 * 1024 * 1024));
        log.write("\nnext\n");
        let mut tail = log.tail(2);
        let long = tail.read_blocking().unwrap();
        assert_eq!(long[0].bytes.len(), MAX_LINE_BYTES);
        assert_eq!(long[0].omitted, 8 * 1024 * 1024 - MAX_LINE_BYTES);
        assert!(tail.begun.bytes.capacity() <= 2 * MAX_LINE_BYTES);
        assert_eq!((long.len(), long[1].bytes.as_slice()), (2, &b"next"[..]));
    }

    #[test]
    fn a_fifo_in_its_place_is_refused_and_not_waited_for() {
        let log = Log::new();
        nix::unistd::mkfifo(&log.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(LogTail::begin_blocking(&log.path, 10).is_err());
    }
}
