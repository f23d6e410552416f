//! Searches a large file with several threads. Called by `file`.
//!
//! Threads read the blocks of the file and find the lines without a match. The thread that owns the file passes
//! all other lines to the searcher in order, so the rows are those of a search with one thread. Each byte is
//! read once, so a file that changes during the search cannot make the threads disagree.

use super::blocks::{BLOCK_BYTES, Block, BlockRules};
use super::pass::Flags;
use super::sink::FileSink;
use super::skipping::{Blocks, SkippingReader};
use crate::condvar::{Monitored, n_threads};
use crate::line_matcher::LineMatcher;
use crate::tree::Stop;
use grep_searcher::Searcher;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::thread::{Builder, Scope as Threads};

/// Number of blocks after which further threads help. Starting a thread takes about 50 µs.
const MANY_BLOCKS: u64 = 4;

/// Maximum number of blocks per thread that are read or wait for the searcher.
const BLOCKS_PER_THREAD: usize = 2;

/// A large file, and the state that its threads share.
struct LargeFile<'a> {
    file: &'a File,
    /// The first bytes of the file, which were read to find out whether it is large.
    head: &'a [u8],
    rules: BlockRules,
    stop: &'a Stop,
    flags: &'a Flags,
    parts: Monitored<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    /// Number of blocks that were claimed.
    n_claimed: u64,
    /// Number of blocks that the searcher took.
    n_taken: u64,
    /// The blocks from `n_taken` on.
    ready: VecDeque<Option<Block>>,
    spare: Vec<Vec<u8>>,
    /// No further block is needed.
    has_ended: bool,
}

/// Searches a file that begins with `head`. `spare` has buffers of earlier files.
pub(super) fn search(
    file: &File,
    head: &[u8],
    rules: BlockRules,
    searcher: &mut Searcher,
    sink: &mut FileSink<'_>,
    spare: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    let (matcher, gaps) = (sink.matcher, sink.gaps);
    let (before, after) = (searcher.before_context(), searcher.after_context());
    let parts = Parts { spare: std::mem::take(spare), ..Parts::default() };
    let (stop, flags) = (sink.stop, sink.flags);
    let large = LargeFile { file, head, rules, stop, flags, parts: Monitored::new(parts) };

    let searched = std::thread::scope(|threads| {
        let blocks = OrderedBlocks { large: &large, matcher, threads, n_helpers: 0 };
        let mut reader = SkippingReader::new(blocks, gaps, before, after);
        let searched = searcher.search_reader(matcher, &mut reader, &mut *sink);
        sink.binary |= reader.is_binary;

        // The other threads end, because the scope waits for them.
        large.parts.with(|parts| parts.has_ended = true);
        large.parts.tell();
        searched
    });

    *spare = large.parts.into_inner().spare;
    // One buffer serves the next large file. More would only take memory.
    spare.truncate(1);
    searched
}

/// Next step of the thread that owns the file.
enum Step {
    Take(Block),
    Read(u64, Block),
}

impl LargeFile<'_> {
    fn stops(&self) -> bool {
        self.flags.has_ended() || self.stop.is_reached()
    }

    /// Claims the next block, if not too many blocks wait for the searcher.
    fn claim(parts: &mut Parts) -> Option<(u64, Block)> {
        let window = u64::try_from(BLOCKS_PER_THREAD * n_threads()).unwrap_or(u64::MAX);
        if parts.has_ended || parts.n_taken.saturating_add(window) <= parts.n_claimed {
            return None;
        }

        let n = parts.n_claimed;
        parts.n_claimed += 1;
        // Blocks can be read in any order, so each gets its place now.
        parts.ready.push_back(None);
        let buffer = parts.spare.pop().unwrap_or_else(|| vec![0; BLOCK_BYTES]);
        Some((n, Block::new(buffer)))
    }

    /// Reads and checks a claimed block.
    fn read(&self, n: u64, mut block: Block, matcher: &LineMatcher) {
        if n == 0 {
            block.begin_with(self.head, self.rules, matcher);
        }

        let offset = n.saturating_mul(u64::try_from(BLOCK_BYTES).unwrap_or(u64::MAX));
        block.read(self.file, offset, self.rules, matcher, || self.stops());
        self.parts.with(|parts| {
            parts.has_ended |= block.is_last;
            let at = usize::try_from(n.saturating_sub(parts.n_taken)).unwrap_or(usize::MAX);
            if let Some(place) = parts.ready.get_mut(at) {
                *place = Some(block);
            }
        });
        self.parts.tell();
    }

    /// Reads blocks until the file ends.
    fn help(&self, matcher: &LineMatcher) {
        // A separate copy: threads that share a matcher wait for each other.
        let matcher = matcher.clone();
        self.flags.begin_work();
        while let Some((n, block)) = self.parts.wait_for(|parts| match Self::claim(parts) {
            None if !parts.has_ended => None,
            claimed => Some(claimed),
        }) {
            self.read(n, block, &matcher);
        }
        self.flags.end_work();
    }
}

/// The blocks of a file in order, for the thread that owns it. The thread reads blocks itself while it waits.
struct OrderedBlocks<'s, 'e, 'a> {
    large: &'s LargeFile<'a>,
    matcher: &'s LineMatcher,
    threads: &'s Threads<'s, 'e>,
    n_helpers: usize,
}

impl OrderedBlocks<'_, '_, '_> {
    /// Starts another thread if the scan has fewer than it may have.
    fn get_help(&mut self, n_taken: u64) {
        let n_threads = n_threads();
        let is_long = MANY_BLOCKS <= n_taken;
        if is_long && self.n_helpers + 1 < n_threads && self.large.flags.n_working() < n_threads {
            let (large, matcher) = (self.large, self.matcher);
            // If no thread can be started, the search only takes longer.
            Builder::new().spawn_scoped(self.threads, || large.help(matcher)).ok();
            self.n_helpers += 1;
        }
    }
}

impl Blocks for OrderedBlocks<'_, '_, '_> {
    fn next(&mut self, used: Option<Block>) -> io::Result<Block> {
        let large = self.large;
        let n_taken = large.parts.with(|parts| {
            parts.spare.extend(used.map(Block::into_buffer));
            parts.n_taken
        });

        self.get_help(n_taken);
        loop {
            if large.stops() {
                return Err(io::Error::other("the search was stopped"));
            }
            let step = large.parts.wait_for(|parts| {
                if let Some(block) = parts.ready.front_mut().and_then(Option::take) {
                    parts.ready.pop_front();
                    parts.n_taken += 1;
                    return Some(Step::Take(block));
                }
                // The next block is not ready, so this thread reads one itself.
                LargeFile::claim(parts).map(|(n, block)| Step::Read(n, block))
            });

            match step {
                Step::Take(block) => {
                    large.parts.tell();
                    return Ok(block);
                }
                Step::Read(n, block) => large.read(n, block, self.matcher),
            }
        }
    }
}
