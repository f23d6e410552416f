//! Reads one block of a large file, and finds the lines in it that cannot be part of the answer. Called by
//! `parts`.

use super::options::ScanOptions;
use crate::line_matcher::LineMatcher;
use crate::request::Binary;
use grep_matcher::{LineMatchKind, Matcher as _};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Size of a block in bytes. One thread reads and checks a block.
pub(super) const BLOCK_BYTES: usize = 1024 * 1024;

/// Number of bytes that are read and checked at once. They stay in the processor's cache.
const READ_BYTES: usize = 128 * 1024;

/// Properties of a scan that decide how a block is checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockRules {
    binary: Binary,
}

impl BlockRules {
    /// Returns the rules, or `None` if lines cannot be checked independently of each other.
    pub(super) fn of(ask: &ScanOptions, matcher: &LineMatcher) -> Option<Self> {
        let is_by_line = matcher.line_terminator().is_some();
        let is_suitable = is_by_line && !ask.invert && !ask.multiline && BLOCK_BYTES <= ask.piece;
        is_suitable.then_some(Self { binary: ask.binary })
    }
}

/// A part of a block.
#[derive(Debug, Clone)]
pub(super) struct Region {
    pub(super) range: Range<usize>,
    /// Number of lines, if the region consists of complete lines without a match.
    pub(super) boring_lines: Option<usize>,
}

/// The bytes of one block.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    n_bytes: usize,
    n_checked: usize,
    /// All bytes of the block, in order.
    pub(super) regions: Vec<Region>,
    /// The file ends in this block, or its rest is not searched because of a NUL byte.
    pub(super) is_last: bool,
    /// The file is not searched further because of a NUL byte.
    pub(super) is_binary: bool,
    /// The searcher must see all bytes from here on, because it replaces NUL bytes by newlines.
    pub(super) is_verbatim: bool,
    pub(super) error: Option<io::Error>,
}

impl Block {
    /// Creates an empty block with a buffer, whose content does not matter.
    pub(super) fn new(buffer: Vec<u8>) -> Self {
        Self {
            bytes: buffer,
            n_bytes: 0,
            n_checked: 0,
            regions: Vec::new(),
            is_last: false,
            is_binary: false,
            is_verbatim: false,
            error: None,
        }
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Checks the first bytes of the block, which were already read.
    pub(super) fn begin_with(&mut self, head: &[u8], rules: BlockRules, matcher: &LineMatcher) {
        if let Some(start) = self.bytes.get_mut(..head.len()) {
            start.copy_from_slice(head);
            self.check(head.len(), rules, matcher);
        }
    }

    /// Reads and checks the rest of the block, which begins at `offset` in the file. Ends early if `stops`
    /// returns true.
    pub(super) fn read(
        &mut self,
        file: &File,
        offset: u64,
        rules: BlockRules,
        matcher: &LineMatcher,
        stops: impl Fn() -> bool,
    ) {
        while self.n_bytes < self.bytes.len() && !self.is_last && !stops() {
            let upto = self.bytes.len().min(self.n_bytes + READ_BYTES);
            let free = self.bytes.get_mut(self.n_bytes..upto).unwrap_or_default();
            let at = offset.saturating_add(u64::try_from(self.n_bytes).unwrap_or(u64::MAX));
            match file.read_at(free, at) {
                Ok(0) => self.is_last = true,
                Ok(n) => self.check(n, rules, matcher),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => (self.error, self.is_last) = (Some(error), true),
            }
        }

        // The rest is not a complete line.
        self.push(self.n_bytes, None);
    }

    /// Checks `n_new` more bytes.
    fn check(&mut self, n_new: usize, rules: BlockRules, matcher: &LineMatcher) {
        let from = self.n_bytes;
        self.n_bytes += n_new;
        let new = self.bytes.get(from..self.n_bytes).unwrap_or_default();

        let (n_newlines, has_nul) = newlines_and_nul(new);
        if has_nul && rules.binary == Binary::Skip {
            (self.is_binary, self.is_last) = (true, true);
            self.n_bytes = from;
            return;
        }

        // From here on the searcher must see all bytes, because it reports the NUL byte.
        self.is_verbatim |= has_nul && rules.binary == Binary::Report;
        let last = memchr::memrchr(b'\n', new).filter(|_| !self.is_verbatim);
        let Some(end) = last.map(|last| from + last + 1) else { return };

        let mut n_lines = n_newlines;
        if self.n_checked == 0 {
            // The first line may have begun in the previous block.
            let head = memchr::memchr(b'\n', new).map_or(end, |first| from + first + 1);
            self.push(head, None);
            n_lines = n_lines.saturating_sub(1);
        }

        let lines = self.bytes.get(self.n_checked..end).unwrap_or_default();
        match first_matching_line(matcher, lines) {
            None => self.push(end, Some(n_lines)),
            Some(n) => {
                let before = lines.get(..n).unwrap_or_default();
                let n_lines = memchr::memchr_iter(b'\n', before).count();
                self.push(self.n_checked + n, Some(n_lines));
                self.push(end, None);
            }
        }
    }

    fn push(&mut self, end: usize, boring_lines: Option<usize>) {
        if self.n_checked < end {
            self.regions.push(Region { range: self.n_checked..end, boring_lines });
            self.n_checked = end;
        }
    }
}

/// Counts the newlines, and returns whether a NUL byte exists. Two passes would take twice as long.
fn newlines_and_nul(bytes: &[u8]) -> (usize, bool) {
    // The compiler uses vector instructions if the counter has one byte, which must not overflow.
    const GROUP: usize = 192;
    let (mut n, mut least) = (0, u8::MAX);
    for group in bytes.chunks(GROUP) {
        let mut n_here = 0_u8;
        for byte in group {
            n_here = n_here.wrapping_add(u8::from(*byte == b'\n'));
            least = least.min(*byte);
        }
        n += usize::from(n_here);
    }
    (n, least == 0)
}

/// Returns the start of the first line that matches. `lines` are complete. Decides as the searcher does.
fn first_matching_line(matcher: &LineMatcher, lines: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(rest) = lines.get(from..).filter(|rest| !rest.is_empty()) {
        let (at, is_sure) = match matcher.find_candidate_line(rest) {
            Ok(None) => return None,
            Ok(Some(LineMatchKind::Confirmed(at))) => (at, true),
            Ok(Some(LineMatchKind::Candidate(at))) => (at, false),
            // In doubt the line counts as one that matches: the searcher decides.
            Err(_) => (0, true),
        };

        let start = rest.get(..at).and_then(|before| memchr::memrchr(b'\n', before));
        let start = start.map_or(0, |newline| newline + 1);
        let line = rest.get(start..).unwrap_or_default();

        // An empty match after the last line is not in a line.
        let end = memchr::memchr(b'\n', line)?;
        if is_sure || matcher.is_match(line.get(..=end).unwrap_or_default()).unwrap_or(true) {
            return Some(from + start);
        }
        from += start + end + 1;
    }
    None
}
