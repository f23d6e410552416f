//! Searching one file. Called by the threads of a scan.

use super::row::row_bytes;
use super::sink::FileSink;
use super::{Flags, Scan};
use crate::outcome::{Row, RowKind, Warning};
use crate::request::{Binary, OutputMode};
use crate::tree::Stop;
use crate::walk::{Place, words};
use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Encoding, Searcher, SearcherBuilder};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;

/// Longest line, in bytes; shorter for patterns that repeat much. The searcher holds whole lines in memory.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Largest file in which matches may cross lines, in bytes; smaller for patterns that repeat much. It is read as a whole.
const MAX_WHOLE_BYTES: usize = 16 * 1024 * 1024;

/// Files below this size are read at once; a buffer of it stays in the processor's cache.
const SMALL_FILE_BYTES: usize = 256 * 1024;

/// What is done with each file.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) matcher: RegexMatcher,
    pub(crate) multiline: bool,
    /// Bytes of text that are searched at once.
    pub(crate) piece: usize,
    pub(crate) invert: bool,
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) output: OutputMode,
    pub(crate) max_per_file: Option<u64>,
    pub(crate) max_line: Option<usize>,
    pub(crate) binary: Binary,
    /// `None` for the byte order mark, `Some(None)` for bytes as they are.
    pub(crate) encoding: Option<Option<Encoding>>,
    /// Rows that are wanted; one more is looked for.
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
    /// Rows are collected; else only counted.
    pub(crate) with_rows: bool,
    /// Go on when there are rows enough.
    pub(crate) count_all: bool,
}

/// Rows that are left out at the beginning of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Skip {
    #[default]
    Nothing,
    Rows(u64),
    /// Those up to this line.
    Through(u64),
}

/// What a file gave.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was searched; with what was found, if anything.
    Searched(Option<Box<Hits>>),
    /// It holds a NUL byte and is left out.
    Binary,
    /// It has a line that is too long; what was found before it.
    TooLong(Option<Box<Hits>>),
    TooLarge,
    Unreadable(Warning),
    /// It was removed after the walk.
    Gone,
}

/// What was found in a file.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    pub(crate) rows: Vec<Row>,
    /// Rows of the mode that were seen, collected or not, but those that were skipped.
    pub(crate) n_rows: u64,
    /// Rows of the mode that were skipped.
    pub(crate) n_skipped: u64,
    pub(crate) lines: u64,
    pub(crate) matches: u64,
    pub(crate) is_binary: bool,
}

/// One thread's means of searching.
pub(crate) struct Worker<'a> {
    scan: &'a Scan<'a>,
    flags: &'a Flags,
    // A copy of its own: threads that share one wait for each other.
    matcher: RegexMatcher,
    searcher: Searcher,
    head: Vec<u8>,
    directory: Option<(u32, io::Result<File>)>,
    /// Of the files of this batch that are before the next one.
    n_rows: usize,
    n_bytes: usize,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(scan: &'a Scan<'a>, flags: &'a Flags) -> Self {
        Self {
            scan,
            flags,
            matcher: scan.ask.matcher.clone(),
            searcher: searcher(scan.ask),
            head: vec![0; SMALL_FILE_BYTES.min(scan.ask.piece)],
            directory: None,
            n_rows: 0,
            n_bytes: 0,
        }
    }

    pub(crate) fn begin_batch(&mut self) {
        (self.n_rows, self.n_bytes) = (0, 0);
    }

    /// Searches a file, of which the first rows are left out.
    pub(crate) fn search(&mut self, file: usize, skip: Skip) -> Outcome {
        let Some(place) = self.scan.walked.places().get(file).copied() else {
            return Outcome::Gone;
        };
        match self.open(place) {
            Ok(opened) => self.read(opened, place, skip),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Gone,
            Err(error) => Outcome::Unreadable(self.warning(place, &error)),
        }
    }

    fn warning(&self, place: Place, error: &io::Error) -> Warning {
        Warning { path: self.scan.walked.path(place), reason: words(error) }
    }

    fn open(&mut self, place: Place) -> io::Result<File> {
        let (walked, tree) = (self.scan.walked, self.scan.tree);
        if let Some(opened) = walked.open_start(place, tree) {
            return opened;
        }
        let dir = place.directory();
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

    /// Most files of a repository are small: they are read at once and searched in place, which spares
    /// a read and a copy each.
    fn read(&mut self, file: File, place: Place, skip: Skip) -> Outcome {
        let ask = self.scan.ask;
        let collects = ask.with_rows
            && !self.flags.only_counts()
            && self.n_rows <= ask.limit
            && self.n_bytes <= ask.max_bytes;
        let mut sink = FileSink {
            ask,
            matcher: &self.matcher,
            stop: self.scan.stop,
            flags: self.flags,
            scan: self.scan,
            place,
            skip,
            collects,
            overflows: false,
            hits: Hits::default(),
            n_bytes: 0,
            n_seen: 0,
            binary: false,
        };
        let mut reader = Interruptible { file, stop: self.scan.stop, flags: self.flags };
        let n_head = self.head.len();
        let searched = match fill(&mut reader, &mut self.head) {
            Ok(start) if start.len() < n_head => match glance(ask, &self.matcher, start) {
                Glance::Nothing => return Outcome::Searched(None),
                Glance::Binary => return Outcome::Binary,
                Glance::Maybe => self.searcher.search_slice(&self.matcher, start, &mut sink),
            },
            Ok(start) => {
                let whole = start.chain(reader);
                self.searcher.search_reader(&self.matcher, whole, &mut sink)
            }
            Err(error) => Err(error),
        };
        let (binary, hits) = (sink.binary, sink.hits);
        let outcome = self.conclude(searched, binary, hits, place);
        if let Outcome::Searched(Some(hits)) | Outcome::TooLong(Some(hits)) = &outcome {
            let n_matches = hits.rows.iter().filter(|row| row.kind == RowKind::Match).count();
            self.n_rows += n_matches;
            // Context of rows that were skipped takes no room of the page: it must not keep the rows of the
            // next files from being collected.
            if n_matches != 0 {
                let path_len = self.scan.walked.path_len(place);
                self.n_bytes += hits.rows.iter().map(|row| row_bytes(path_len, row)).sum::<usize>();
            }
        }
        outcome
    }

    fn conclude(
        &mut self,
        searched: io::Result<()>,
        is_binary: bool,
        mut hits: Hits,
        place: Place,
    ) -> Outcome {
        let ask = self.scan.ask;
        hits.is_binary = is_binary && ask.binary == Binary::Report;
        if hits.is_binary {
            report_binary(&mut hits, ask.output);
        }
        let found = (hits.lines != 0).then(|| Box::new(hits));
        match searched {
            Ok(()) if is_binary && ask.binary == Binary::Skip => Outcome::Binary,
            Ok(()) => Outcome::Searched(found),
            // Whoever stopped it knows that files are missing.
            Err(_) if self.scan.stop.is_reached() || self.flags.has_ended() => {
                Outcome::Searched(found)
            }
            // The kernel's errors have a number; the searcher's only own one is a full buffer.
            Err(error) if error.raw_os_error().is_none() => {
                // Its buffer has grown to the limit and would stay so.
                self.searcher = searcher(ask);
                if ask.multiline { Outcome::TooLarge } else { Outcome::TooLong(found) }
            }
            Err(error) => Outcome::Unreadable(self.warning(place, &error)),
        }
    }
}

/// What is seen of a whole file without going through its lines.
enum Glance {
    Nothing,
    Binary,
    Maybe,
}

/// Most files have no match. That is seen sooner here than by the searcher, which counts lines meanwhile.
fn glance(ask: &Ask, matcher: &RegexMatcher, content: &[u8]) -> Glance {
    let is_plain = match &ask.encoding {
        // The first bytes of the three marks.
        None => !matches!(content.first(), Some(0xEF | 0xFE | 0xFF)),
        Some(encoding) => encoding.is_none(),
    };
    if !is_plain {
        return Glance::Maybe;
    }
    // The searcher looks for NUL bytes at the beginning of a slice only.
    if ask.binary == Binary::Skip && memchr::memchr(0, content).is_some() {
        return Glance::Binary;
    }
    if ask.invert || ask.multiline {
        return Glance::Maybe;
    }
    match matcher.find_candidate_line(content) {
        Ok(None) => Glance::Nothing,
        _ => Glance::Maybe,
    }
}

/// A binary file that matches has one row without text.
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

fn searcher(ask: &Ask) -> Searcher {
    let mut builder = SearcherBuilder::new();
    let most = if ask.multiline { MAX_WHOLE_BYTES } else { MAX_LINE_BYTES };
    // Never memory maps: a file that is truncated while it is mapped would kill the process.
    builder
        .line_number(matches!(ask.output, OutputMode::Lines | OutputMode::OnlyMatching))
        .invert_match(ask.invert)
        .multi_line(ask.multiline)
        .max_matches(ask.max_per_file)
        .heap_limit(Some(most.min(ask.piece)))
        .binary_detection(match ask.binary {
            Binary::Skip => BinaryDetection::quit(0),
            Binary::Text => BinaryDetection::none(),
            Binary::Report => BinaryDetection::convert(0),
        });
    if ask.with_rows && ask.output == OutputMode::Lines {
        builder.before_context(ask.before).after_context(ask.after);
    }
    match &ask.encoding {
        None => &mut builder,
        Some(None) => builder.bom_sniffing(false),
        Some(encoding) => builder.encoding(encoding.clone()),
    };
    builder.build()
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

/// A file that stops giving bytes when the search should end, so that a huge file without a match
/// cannot outlast the deadline. A read that the kernel does not answer is not interrupted.
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

impl Outcome {
    /// What was found, if anything.
    pub(crate) fn into_hits(self) -> Option<Box<Hits>> {
        match self {
            Self::Searched(hits) | Self::TooLong(hits) => hits,
            Self::Binary | Self::TooLarge | Self::Unreadable(_) | Self::Gone => None,
        }
    }
}
