//! Passes a large file to the searcher without the lines that cannot be part of the answer. Called by `parts`.

use super::blocks::{Block, Region};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;

/// Maximum size in bytes of the lines that are kept because they may be context.
const MAX_KEPT_BYTES: usize = 8 * 1024 * 1024;

/// The lines that the searcher does not see. Shared by the reader and the sink, which needs them to number lines.
#[derive(Debug, Default)]
pub(super) struct Gaps(RefCell<GapList>);

#[derive(Debug, Default)]
struct GapList {
    /// Number of left-out lines in the gaps before the last position asked for.
    n_before: u64,
    /// Position of each further gap in the bytes that the searcher sees, and its number of lines.
    next: VecDeque<(u64, u64)>,
}

impl Gaps {
    /// Returns the number of lines left out before a position. Positions must not decrease.
    pub(super) fn lines_before(&self, at: u64) -> u64 {
        let mut gaps = self.0.borrow_mut();
        while let Some((_, n_lines)) = gaps.next.pop_front_if(|(gap, _)| *gap <= at) {
            gaps.n_before += n_lines;
        }
        gaps.n_before
    }

    fn add(&self, at: u64, n_lines: u64) {
        self.0.borrow_mut().next.push_back((at, n_lines));
    }
}

/// Supplies the blocks of a file in order.
pub(super) trait Blocks {
    /// Returns the next block, and takes the previous one back.
    fn next(&mut self, used: Option<Block>) -> io::Result<Block>;
}

/// Reader of the lines that the searcher must see: lines that match, with enough lines around them, and lines
/// that no single block contains.
pub(super) struct SkippingReader<'a, B> {
    blocks: B,
    gaps: &'a Gaps,
    before: usize,
    after: usize,
    block: Option<Block>,
    n_regions: usize,
    /// Rest of a region of which only a part was passed.
    rest: Option<Region>,
    /// Bytes of the block that the searcher must still see, after the kept lines if those are due.
    due: Range<usize>,
    /// The last lines without a match, at most `before`.
    kept: Vec<u8>,
    n_kept: usize,
    /// Number of bytes of the kept lines that were passed, or `None` if these lines may yet be left out.
    passed: Option<usize>,
    /// Number of lines to pass because they may be context of an earlier match.
    owed: usize,
    /// Number of bytes that the searcher sees.
    n_passed: u64,
    n_left_out: u64,
    is_verbatim: bool,
    /// The file was not searched further because of a NUL byte.
    pub(super) is_binary: bool,
}

impl<'a, B: Blocks> SkippingReader<'a, B> {
    pub(super) fn new(blocks: B, gaps: &'a Gaps, before: usize, after: usize) -> Self {
        Self {
            blocks,
            gaps,
            before,
            after,
            block: None,
            n_regions: 0,
            rest: None,
            due: 0..0,
            kept: Vec::new(),
            n_kept: 0,
            passed: None,
            owed: 0,
            n_passed: 0,
            n_left_out: 0,
            is_verbatim: false,
            is_binary: false,
        }
    }

    /// Returns bytes that the searcher must see, or nothing if the next region decides.
    fn due(&mut self, max: usize) -> &[u8] {
        if let Some(from) = self.passed {
            let n = max.min(self.kept.len().saturating_sub(from));
            if n != 0 {
                self.passed = Some(from + n);
                return self.kept.get(from..from + n).unwrap_or_default();
            }
            self.kept.clear();
            (self.n_kept, self.passed) = (0, None);
        }

        let end = self.due.end.min(self.due.start.saturating_add(max));
        let range = self.due.start..end;
        self.due.start = end;
        self.block.as_ref().map_or(&[], |block| block.get(range))
    }

    /// Decides about the next region. Returns false at the end of the file.
    fn advance(&mut self) -> io::Result<bool> {
        if let Some(region) = self.rest.take().or_else(|| self.next_region()) {
            match region.boring_lines.filter(|_| !self.is_verbatim) {
                Some(n_lines) => self.leave_out(region.range, n_lines),
                None => {
                    self.pass(region.range);
                    self.owed = self.after;
                }
            }
            return Ok(true);
        }

        if let Some(block) = &mut self.block {
            if let Some(error) = block.error.take() {
                return Err(error);
            }
            if block.is_last {
                self.is_binary = block.is_binary;
                return Ok(false);
            }
        }

        let used = self.block.take();
        let block = self.blocks.next(used)?;
        self.is_verbatim |= block.is_verbatim;
        (self.block, self.n_regions) = (Some(block), 0);
        Ok(true)
    }

    fn next_region(&mut self) -> Option<Region> {
        let region = self.block.as_ref()?.regions.get(self.n_regions).cloned();
        self.n_regions += 1;
        region
    }

    /// Passes a range, after the lines that were kept.
    fn pass(&mut self, range: Range<usize>) {
        if self.n_left_out != 0 {
            self.gaps.add(self.n_passed, self.n_left_out);
            self.n_left_out = 0;
        }
        self.passed = Some(0);
        self.n_passed += wide(self.kept.len()) + wide(range.len());
        self.due = range;
    }

    /// Leaves lines out, except those that may be context.
    fn leave_out(&mut self, range: Range<usize>, n_lines: usize) {
        let lines = self.block.as_ref().map_or(&[][..], |block| block.get(range.clone()));

        // The context after a match goes through first.
        if self.owed != 0 {
            let n = self.owed.min(n_lines);
            let end = range.start + first_lines(lines, n).len();
            self.owed -= n;
            self.pass(range.start..end);
            let left = Some(n_lines - n).filter(|left| *left != 0);
            self.rest = left.map(|_| Region { range: end..range.end, boring_lines: left });
            return;
        }

        if self.before == 0 {
            self.n_left_out += wide(n_lines);
            return;
        }

        // Few lines can be long, so their bytes are limited too.
        if MAX_KEPT_BYTES < self.kept.len() {
            self.pass(range);
            return;
        }

        let n = n_lines.min(self.before);
        let n_dropped = (self.n_kept + n).saturating_sub(self.before);
        self.kept.drain(..first_lines(&self.kept, n_dropped).len());
        self.kept.extend_from_slice(last_lines(lines, n));
        self.n_kept += n - n_dropped;
        self.n_left_out += wide(n_dropped + n_lines - n);
    }
}

impl<B: Blocks> Read for SkippingReader<'_, B> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let due = self.due(buffer.len());
            if !due.is_empty() || buffer.is_empty() {
                let n = due.len();
                buffer.get_mut(..n).unwrap_or_default().copy_from_slice(due);
                return Ok(n);
            }
            if !self.advance()? {
                return Ok(0);
            }
        }
    }
}

/// Returns the first `n` lines.
fn first_lines(lines: &[u8], n: usize) -> &[u8] {
    let last = n.checked_sub(1).map(|n| memchr::memchr_iter(b'\n', lines).nth(n));
    let end = last.map_or(0, |newline| newline.map_or(lines.len(), |newline| newline + 1));
    lines.get(..end).unwrap_or_default()
}

/// Returns the last `n` lines, all of which end with a newline.
fn last_lines(lines: &[u8], n: usize) -> &[u8] {
    let start = memchr::memrchr_iter(b'\n', lines).nth(n).map_or(0, |newline| newline + 1);
    lines.get(start..).unwrap_or_default()
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
