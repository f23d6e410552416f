//! Output of a job: the newest bytes in memory, all of it in a file, and reads from both at a cursor.
//!
//! `quackd-process` writes the file, which contains the start of the output without gaps, up to its limit. Both
//! streams are in it in the order in which they were read, as in memory, so that positions are equal in both.

use quackd_process::Piece;
use quackd_protocol::limits::{JOB_MEMORY_BYTES, MAX_SPILL_BYTES};
use quackd_sandbox::Root;
use std::collections::VecDeque;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Newest bytes of an output, without gaps.
#[derive(Debug, Default)]
pub(crate) struct RecentOutput {
    bytes: VecDeque<u8>,
    /// Size of the output so far in bytes: the position after the last byte.
    pub(crate) total: u64,
}

/// Some bytes of an output and their position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OutputRange {
    /// Position of the first byte.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

impl RecentOutput {
    pub(crate) fn push(&mut self, piece: &Piece) {
        // Positions are counted from the end, so bytes before a gap would get wrong ones.
        if piece.omitted != 0 {
            self.bytes.clear();
        }
        self.bytes.extend(&piece.bytes);
        self.total = piece.total;
        self.shrink_to(JOB_MEMORY_BYTES);
    }

    /// Keeps the newest `n` bytes.
    pub(crate) fn shrink_to(&mut self, n: usize) {
        self.bytes.drain(..self.bytes.len().saturating_sub(n));
        if n < JOB_MEMORY_BYTES {
            self.bytes.shrink_to_fit();
        }
    }

    /// Returns up to `max` bytes from `position` on, or from the oldest available byte after it.
    pub(crate) fn read(&self, position: u64, max: usize) -> OutputRange {
        let oldest = self.total.saturating_sub(count(self.bytes.len()));
        let at = position.clamp(oldest, self.total);
        let skipped = usize::try_from(at - oldest).unwrap_or(usize::MAX);
        OutputRange { at, bytes: self.bytes.iter().skip(skipped).take(max).copied().collect() }
    }
}

/// Reads up to `max` bytes from `position` on. The file provides the bytes that are no longer in memory. The
/// range begins later if neither has the byte at `position`.
///
/// `in_memory` is the output in memory from `position` on. `in_file` bounds the read from the file, which need
/// not exist.
pub(crate) fn read_blocking(
    run_dir: &Path,
    name: &str,
    in_file: u64,
    position: u64,
    max: usize,
    in_memory: OutputRange,
) -> OutputRange {
    if in_memory.at <= position {
        return in_memory;
    }
    let in_file = in_file.min(MAX_SPILL_BYTES).saturating_sub(position);
    let n_in_file = usize::try_from(in_file).unwrap_or(usize::MAX).min(max);

    let mut bytes = read_file_blocking(run_dir, name, position, n_in_file).unwrap_or_default();
    if bytes.is_empty() {
        return in_memory;
    }

    let next = position + count(bytes.len());
    if let Some(skipped) = next.checked_sub(in_memory.at) {
        // The two meet or overlap.
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let room = max - bytes.len();
        bytes.extend(in_memory.bytes.iter().skip(skipped).take(room));
    }
    OutputRange { at: position, bytes }
}

/// Reads a part of a file in the run directory, or less at the file's end. Commands may write there too, so a
/// special file or a link is not opened.
fn read_file_blocking(run_dir: &Path, name: &str, position: u64, length: usize) -> Option<Vec<u8>> {
    let file = Root::open(run_dir).ok()?.open_file(name).ok()?.file;
    let mut bytes = vec![0; length];
    let mut n_read = 0;

    while n_read < length {
        match file.read_at(bytes.get_mut(n_read..)?, position + count(n_read)) {
            // After an error, the bytes before it are still right.
            Ok(0) | Err(_) => break,
            Ok(n) => n_read += n,
        }
    }

    bytes.truncate(n_read);
    Some(bytes)
}

pub(crate) fn count(n_bytes: usize) -> u64 {
    u64::try_from(n_bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: &[u8], omitted: u64, total: u64) -> Piece {
        Piece { bytes: bytes.into(), omitted, total }
    }

    fn stretch(at: u64, bytes: &[u8]) -> OutputRange {
        OutputRange { at, bytes: bytes.into() }
    }

    #[test]
    fn memory_holds_the_newest_bytes_without_holes() {
        let mut recent = RecentOutput::default();
        assert_eq!(recent.read(0, 10), stretch(0, b""));
        recent.push(&piece(b"one ", 0, 4));
        recent.push(&piece(b"two", 0, 7));
        assert_eq!(recent.read(0, 10), stretch(0, b"one two"));
        assert_eq!(recent.read(2, 3), stretch(2, b"e t"));
        assert_eq!(recent.read(7, 3), stretch(7, b""));
        recent.push(&piece(b"four", 5, 16));
        assert_eq!(recent.read(0, 10), stretch(12, b"four"));
        let flood = vec![b'x'; JOB_MEMORY_BYTES];
        recent.push(&piece(&flood, 0, 16 + count(JOB_MEMORY_BYTES)));
        recent.push(&piece(b"end", 0, 19 + count(JOB_MEMORY_BYTES)));
        assert_eq!(recent.read(0, 1), stretch(19, b"x"));
        assert_eq!(recent.read(16 + count(JOB_MEMORY_BYTES), 9).bytes, b"end");
        recent.shrink_to(2);
        assert_eq!(recent.read(0, 9), stretch(17 + count(JOB_MEMORY_BYTES), b"nd"));
    }

    #[test]
    fn a_stretch_comes_from_the_file_and_goes_on_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("job-1.log"), "0123456789").unwrap();
        let read = |in_file, position, max, memory: (u64, &[u8])| {
            let memory = stretch(memory.0, memory.1);
            let at_most = |mut read: OutputRange| {
                read.bytes.truncate(max);
                read
            };
            let name = "job-1.log";
            at_most(read_blocking(dir.path(), name, in_file, position, max, memory))
        };
        // Memory alone, both, the file alone.
        assert_eq!(read(u64::MAX, 8, 9, (8, b"89ab")), stretch(8, b"89ab"));
        assert_eq!(read(u64::MAX, 2, 99, (8, b"89ab")), stretch(2, b"23456789ab"));
        assert_eq!(read(u64::MAX, 2, 99, (10, b"ab")), stretch(2, b"23456789ab"));
        assert_eq!(read(u64::MAX, 2, 3, (8, b"89ab")), stretch(2, b"234"));
        // A gap is skipped when the read reaches it, and not before.
        assert_eq!(read(u64::MAX, 2, 99, (20, b"xy")), stretch(2, b"23456789"));
        assert_eq!(read(u64::MAX, 10, 99, (20, b"xy")), stretch(20, b"xy"));
        // Bytes of the file that are not output.
        assert_eq!(read(4, 2, 99, (20, b"xy")), stretch(2, b"23"));
        assert_eq!(read(4, 4, 99, (20, b"xy")), stretch(20, b"xy"));
        let missing = read_blocking(dir.path(), "job-2.log", 9, 0, 9, stretch(5, b"z"));
        assert_eq!(missing, stretch(5, b"z"));
    }

    #[test]
    fn a_fifo_or_a_link_in_the_place_of_the_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::create_dir(&run).unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret", run.join("job-1.log")).unwrap();
        let fifo = run.join("job-2.log");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["job-1.log", "job-2.log"] {
            assert_eq!(read_file_blocking(&run, name, 0, 9), None, "{name}");
        }
    }
}
