//! Searches one file. Called by the threads of a scan.

use super::blocks::BlockRules;
use super::file_outcome::{FileOutcome, Hits};
use super::options::{ScanOptions, Skip};
use super::others::ThreadPatterns;
use super::parts;
use super::pass::{Flags, Scan};
use super::row::row_bytes;
use super::searchers::{Source, limit, searcher, size};
use super::sink::FileSink;
use super::skipping::Gaps;
use super::whole;
use crate::crlf::CrlfMap;
use crate::line_matcher::LineMatcher;
use crate::outcome::{Row, RowKind, Warning, words};
use crate::request::{Binary, OutputMode};
use crate::tree::Stop;
use crate::walk::EntryIndex;
use grep_matcher::Matcher as _;
use grep_searcher::Searcher;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;

/// Smaller files are read at once. A buffer of this size, in bytes, stays in the processor's cache.
const SMALL_FILE_BYTES: usize = 256 * 1024;

/// Searcher and buffers of one thread.
pub(crate) struct ScanThread<'a> {
    scan: &'a Scan<'a>,
    flags: &'a Flags,
    // A separate copy: threads that share a matcher wait for each other.
    matcher: LineMatcher,
    others: Option<ThreadPatterns<'a>>,
    searcher: Searcher,
    /// Searcher of files without an encoding that are read in blocks.
    block_searcher: Option<Searcher>,
    head: Vec<u8>,
    /// Number of bytes of the last file in `head`.
    n_head: usize,
    /// Buffers for blocks of large files.
    spare: Vec<Vec<u8>>,
    directory: Option<(u32, io::Result<File>)>,
    /// Rows in the earlier files of this batch.
    n_rows: usize,
    n_bytes: usize,
}

impl<'a> ScanThread<'a> {
    pub(crate) fn new(scan: &'a Scan<'a>, flags: &'a Flags) -> Self {
        Self {
            scan,
            flags,
            matcher: scan.ask.matcher.clone(),
            others: scan.others.map(ThreadPatterns::new),
            searcher: searcher(scan.ask, Source::File),
            block_searcher: None,
            head: vec![0; SMALL_FILE_BYTES.min(scan.ask.piece)],
            n_head: 0,
            spare: Vec::new(),
            directory: None,
            n_rows: 0,
            n_bytes: 0,
        }
    }

    pub(crate) fn begin_batch(&mut self) {
        (self.n_rows, self.n_bytes) = (0, 0);
    }

    /// Returns the size of the rows collected since the last call of [`ScanThread::begin_batch`].
    pub(crate) fn held_bytes(&self) -> usize {
        self.n_bytes + self.n_rows * size_of::<Row>()
    }

    /// Searches a file and skips its first rows. `give` receives the parts of a file with many rows.
    pub(crate) fn search(
        &mut self,
        file: usize,
        skip: Skip,
        give: &mut dyn FnMut(FileOutcome),
    ) -> FileOutcome {
        let Some(place) = self.scan.walked.places().get(file).copied() else {
            return FileOutcome::Gone;
        };

        match self.open(place) {
            Ok(opened) => {
                let outcome = self.read(opened, place, skip, give);
                self.count_others(&outcome);
                outcome
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileOutcome::Gone,
            Err(error) => FileOutcome::Unreadable(self.warning(place, &error)),
        }
    }

    fn warning(&self, place: EntryIndex, error: &io::Error) -> Warning {
        Warning { path: self.scan.walked.path(place), reason: words(error) }
    }

    fn open(&mut self, place: EntryIndex) -> io::Result<File> {
        let (walked, tree) = (self.scan.walked, self.scan.tree);
        if let Some(opened) = walked.open_start(place, tree) {
            return opened;
        }

        let dir = place.directory();
        // Files of one directory follow each other, so one handle is kept.
        if self.directory.as_ref().is_none_or(|(open, _)| *open != dir) {
            self.directory = Some((dir, walked.open(dir, tree)));
        }

        match &self.directory {
            Some((_, Ok(handle))) => tree.open_in(handle, OsStr::from_bytes(walked.name(place))),
            Some((_, Err(error))) => Err(match error.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => error.kind().into(),
            }),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Reads and searches a file. Most files of a repository are small: they are read at once and searched in
    /// place, which saves one read and one copy per file.
    fn read(
        &mut self,
        file: File,
        place: EntryIndex,
        skip: Skip,
        give: &mut dyn FnMut(FileOutcome),
    ) -> FileOutcome {
        let ask = self.scan.ask;
        let collects = ask.with_rows
            && !self.flags.only_counts()
            && self.n_rows <= ask.limit
            && self.n_bytes <= ask.max_bytes;

        let gaps = Gaps::default();
        let mut sink = FileSink {
            ask,
            matcher: &self.matcher,
            stop: self.scan.stop,
            flags: self.flags,
            scan: self.scan,
            gaps: &gaps,
            crlf: CrlfMap::default(),
            place,
            skip,
            give,
            collects,
            overflows: false,
            hits: Hits::default(),
            n_bytes: 0,
            n_seen: 0,
            binary: false,
        };

        let mut reader = Interruptible { file, stop: self.scan.stop, flags: self.flags };
        let is_small = |start: &[u8]| start.len() < SMALL_FILE_BYTES.min(ask.piece);
        let others = self.others.as_mut().filter(|others| !others.shared().is_over());
        let filled = fill(&mut reader, &mut self.head);
        self.n_head = filled.as_ref().map_or(0, |start| start.len());

        let searched = match filled {
            Ok(start) if ask.folds && !(is_small(start) && has_only_lf(ask, start)) => {
                let whole = start.chain(reader);
                whole::search(&mut self.searcher, &self.matcher, whole, &mut sink)
            }
            Ok(start) if is_small(start) => match glance_with(others, ask, &self.matcher, start) {
                QuickResult::Nothing => return FileOutcome::Searched(None),
                QuickResult::Binary => return FileOutcome::Binary,
                QuickResult::Maybe => self.searcher.search_slice(&self.matcher, start, &mut sink),
            },
            Ok(start) => match block_rules(ask, &self.matcher, &reader.file, start) {
                Some(rules) => {
                    let of_blocks = || searcher(ask, Source::Blocks);
                    let searcher = self.block_searcher.get_or_insert_with(of_blocks);
                    let (file, spare) = (&reader.file, &mut self.spare);
                    parts::search(file, start, rules, searcher, &mut sink, spare)
                }
                None => {
                    let whole = start.chain(reader);
                    self.searcher.search_reader(&self.matcher, whole, &mut sink)
                }
            },
            Err(error) => Err(error),
        };

        let (binary, hits) = (sink.binary, sink.hits);
        let outcome = self.conclude(searched, binary, hits, place);

        if let FileOutcome::Searched(Some(hits)) | FileOutcome::TooLong(Some(hits), _) = &outcome {
            let n_matches = hits.rows.iter().filter(|row| row.kind == RowKind::Match).count();
            self.n_rows += n_matches;
            // The context of skipped rows takes no space on the page. It must not keep the rows of the next
            // files from being collected.
            if n_matches != 0 {
                let path_len = self.scan.walked.path_len(place);
                self.n_bytes += hits.rows.iter().map(|row| row_bytes(path_len, row)).sum::<usize>();
            }
        }

        outcome
    }

    /// Counts the lines of similar patterns in a file without a match, while its first bytes are in memory.
    fn count_others(&mut self, outcome: &FileOutcome) {
        let Some(others) = self.others.as_mut().filter(|others| !others.shared().is_over()) else {
            return;
        };

        match outcome {
            FileOutcome::Searched(None) | FileOutcome::TooLong(None, _) => (),
            FileOutcome::Searched(Some(_)) | FileOutcome::TooLong(Some(_), _) => {
                others.shared().end();
                return;
            }
            _ => return,
        }

        let ask = self.scan.ask;
        let start = self.head.get(..self.n_head).unwrap_or_default();
        let is_whole = self.n_head < self.head.len();

        others.count(&mut self.searcher, start, is_whole, |matcher, content| {
            matches!(glance(ask, matcher, content), QuickResult::Maybe)
        });
    }

    fn conclude(
        &mut self,
        searched: io::Result<()>,
        is_binary: bool,
        mut hits: Hits,
        place: EntryIndex,
    ) -> FileOutcome {
        let ask = self.scan.ask;
        hits.is_binary = is_binary && ask.binary == Binary::Report;
        if hits.is_binary {
            report_binary(&mut hits, ask.output);
        }

        let found = (hits.lines != 0).then(|| Box::new(hits));
        match searched {
            Ok(()) if is_binary && ask.binary == Binary::Skip => FileOutcome::Binary,
            Ok(()) => FileOutcome::Searched(found),
            // The receiver that stopped the scan already expects missing files.
            Err(_) if self.scan.stop.is_reached() || self.flags.has_ended() => {
                FileOutcome::Searched(found)
            }
            // Kernel errors have a number. The searcher's only other error is a full buffer.
            Err(error) if error.raw_os_error().is_none() => {
                // The searcher's buffer has grown to its limit and would keep that size.
                self.searcher = searcher(ask, Source::File);
                self.block_searcher = None;
                let (path, max_size) = (self.scan.walked.path(place), size(limit(ask)));
                if ask.multiline {
                    let reason = format!(
                        "larger than {max_size}, too large for matches across lines; not searched"
                    );
                    FileOutcome::TooLarge(Warning { path, reason })
                } else {
                    let reason =
                        format!("a line is longer than {max_size}; searched only up to it");
                    FileOutcome::TooLong(found, Warning { path, reason })
                }
            }
            Err(error) => FileOutcome::Unreadable(self.warning(place, &error)),
        }
    }
}

/// Result of searching a whole file without splitting it into lines.
enum QuickResult {
    Nothing,
    Binary,
    Maybe,
}

/// Checks a whole file. Begins with a similar pattern that matches more, if there is one: most files match
/// neither, so one check decides about both.
fn glance_with(
    others: Option<&mut ThreadPatterns<'_>>,
    ask: &ScanOptions,
    matcher: &LineMatcher,
    content: &[u8],
) -> QuickResult {
    if let Some(others) = others
        && let Some(superset) = others.superset()
    {
        let result = glance(ask, superset, content);
        others.rules_out_superset(matches!(result, QuickResult::Nothing));
        if !matches!(result, QuickResult::Maybe) {
            return result;
        }
    }
    glance(ask, matcher, content)
}

/// Checks a whole file for any match. Most files have none, and this check is faster than the searcher, which
/// also counts lines.
fn glance(ask: &ScanOptions, matcher: &LineMatcher, content: &[u8]) -> QuickResult {
    if !is_plain(ask, content) {
        return QuickResult::Maybe;
    }
    // The searcher checks for NUL bytes only at the start of a slice.
    if ask.binary == Binary::Skip && memchr::memchr(0, content).is_some() {
        return QuickResult::Binary;
    }

    // Only the searcher finds lines without a match, and matches across lines.
    if ask.invert || ask.multiline {
        return QuickResult::Maybe;
    }

    match matcher.find_candidate_line(content) {
        Ok(None) => QuickResult::Nothing,
        _ => QuickResult::Maybe,
    }
}

/// Whether a small file is searched as it is also without the carriage returns of its line ends.
fn has_only_lf(ask: &ScanOptions, content: &[u8]) -> bool {
    is_plain(ask, content) && memchr::memmem::find(content, b"\r\n").is_none()
}

/// Returns the rules for reading a file in blocks, or `None` if it must be read in order.
fn block_rules(
    ask: &ScanOptions,
    matcher: &LineMatcher,
    file: &File,
    start: &[u8],
) -> Option<BlockRules> {
    let rules = BlockRules::of(ask, matcher).filter(|_| is_plain(ask, start))?;
    // Blocks have positions, which a FIFO in the place of a file has not.
    file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(rules)
}

/// Whether a file that begins with `start` is searched without conversion.
fn is_plain(ask: &ScanOptions, start: &[u8]) -> bool {
    match &ask.encoding {
        // First bytes of the three byte order marks.
        None => !matches!(start.first(), Some(0xEF | 0xFE | 0xFF)),
        Some(encoding) => encoding.is_none(),
    }
}

/// Replaces the rows of a binary file by one row without text.
fn report_binary(hits: &mut Hits, output: OutputMode) {
    hits.rows.retain(|row| row.kind == RowKind::Match);
    hits.rows.truncate(1);
    if matches!(output, OutputMode::Lines | OutputMode::OnlyMatching) {
        hits.n_rows = hits.n_rows.min(1);
    }
    for row in &mut hits.rows {
        row.text.clear();
        row.spans.clear();
        row.cut = None;
    }
}

/// Reads until `buffer` is full or the file ends, and returns the bytes read.
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

/// A file whose reads end when the search should stop, so that a huge file without a match cannot outlast the
/// deadline. A read that blocks in the kernel is not interrupted.
struct Interruptible<'a> {
    file: File,
    stop: &'a Stop,
    flags: &'a Flags,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.flags.has_ended() || self.stop.is_reached() {
            return Err(io::Error::other("the search was stopped"));
        }
        self.file.read(buffer)
    }
}
