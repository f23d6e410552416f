//! Searches the files of a walk in order, with one thread or several, in a moving window.
//!
//! Threads claim files in batches, in order. The results reach the page in the same order, so the page does not
//! depend on the speed of the threads. Called by `engine`.

mod blocks;
mod file;
mod group;
mod others;
mod page;
mod parts;
mod row;
mod sink;
mod skipping;
mod stream;

pub(crate) use file::{ScanOptions, Skip};
pub(crate) use others::OtherPatterns;
pub(crate) use page::{PageBuilder, PageStart, Tally};
pub use stream::RowSink;
pub(crate) use stream::{MAX_HELD_BYTES, RowStream};

use crate::condvar::{Monitored, n_threads};
use crate::tree::{Stop, Tree};
use crate::walk::WalkResult;
use file::{FileOutcome, ScanThread};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope as Threads};
use std::time::{Duration, Instant};

/// Maximum number of files that one thread claims at once.
const MAX_BATCH: usize = 16;

/// Number of batches per thread that may be ahead of the page.
const WINDOW_PER_THREAD: usize = 8;

/// After this many files, or after `LONG`, a scan starts more threads. Starting a thread takes about 50 µs.
const MANY_FILES: usize = 32;
const LONG: Duration = Duration::from_millis(1);

/// Receives the results of the files in order.
pub(crate) trait OutcomeReceiver: Send {
    /// Takes the result of the next file. Returns false to stop the scan.
    fn take(&mut self, file: usize, outcome: FileOutcome) -> bool;
    /// Whether the receiver needs only counts from now on.
    fn only_counts(&self) -> bool;
}

/// One pass over the files of a walk.
pub(crate) struct Scan<'a> {
    pub(crate) walked: &'a WalkResult,
    pub(crate) tree: &'a dyn Tree,
    pub(crate) ask: &'a ScanOptions,
    pub(crate) stop: &'a Stop,
    /// Similar patterns, whose lines are counted until the pattern matches.
    pub(crate) others: Option<&'a OtherPatterns>,
    /// Number of the first file.
    pub(crate) from: usize,
    /// Rows to skip in the first file.
    pub(crate) skip: Skip,
}

struct Window<R> {
    next: usize,
    released: usize,
    /// Results of the batches from `released` on.
    ready: VecDeque<Option<Vec<(usize, FileOutcome)>>>,
    receiver: R,
    has_ended: bool,
    has_help: bool,
}

/// Flags that the threads check while they search.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// The scan should stop.
    ended: AtomicBool,
    /// Only counts are needed.
    only_counts: AtomicBool,
    /// Number of threads that search.
    n_working: AtomicUsize,
}

impl Flags {
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn only_counts(&self) -> bool {
        self.only_counts.load(Ordering::Relaxed)
    }

    fn n_working(&self) -> usize {
        self.n_working.load(Ordering::Relaxed)
    }

    fn begin_work(&self) {
        self.n_working.fetch_add(1, Ordering::Relaxed);
    }

    fn end_work(&self) {
        self.n_working.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Scan<'_> {
    /// Searches until all files are searched, `receiver` stops, or the deadline passes.
    pub(crate) fn run<R: OutcomeReceiver>(&self, receiver: R) -> R {
        let window = Window {
            next: 0,
            released: 0,
            ready: VecDeque::new(),
            receiver,
            has_ended: false,
            has_help: false,
        };
        let crew = ScanThreads {
            scan: self,
            window: Monitored::new(window),
            flags: Flags::default(),
            batch: (self.n_files() / 64).clamp(1, MAX_BATCH),
        };
        std::thread::scope(|threads| crew.work(Some(threads)));
        crew.window.into_inner().receiver
    }

    fn n_files(&self) -> usize {
        self.walked.len().saturating_sub(self.from)
    }
}

struct ScanThreads<'a, R> {
    scan: &'a Scan<'a>,
    window: Monitored<Window<R>>,
    flags: Flags,
    batch: usize,
}

impl<R: OutcomeReceiver> ScanThreads<'_, R> {
    fn work<'s>(&'s self, threads: Option<&'s Threads<'s, '_>>) {
        let mut worker = ScanThread::new(self.scan, &self.flags);
        let (mut n_done, mut began) = (0, None);
        while let Some(batch) = self.window.wait_for(|window| self.claim(window)) {
            let began = *began.get_or_insert_with(Instant::now);
            self.flags.begin_work();
            let outcomes = self.search(batch, &mut worker);
            self.flags.end_work();
            n_done += self.batch;
            let is_long = MANY_FILES <= n_done || LONG <= began.elapsed();
            let (tell, help) = self.window.with(|window| {
                self.release(window, batch, outcomes);
                let left = self.n_batches().saturating_sub(window.next);
                let help = is_long
                    && 2 <= left
                    && !window.has_ended
                    && !window.has_help
                    && threads.is_some();
                window.has_help |= help;
                (window.has_help, help)
            });
            if tell {
                self.window.tell();
            }
            if let Some(threads) = threads.filter(|_| help) {
                for _ in 1..n_threads() {
                    // If no thread can be started, the scan only takes longer.
                    let _no_thread = Builder::new().spawn_scoped(threads, || self.work(None));
                }
            }
        }
    }

    fn n_batches(&self) -> usize {
        self.scan.n_files().div_ceil(self.batch)
    }

    /// Returns the next batch: `Some(None)` if there are no more files, `None` if the window is full.
    fn claim(&self, window: &mut Window<R>) -> Option<Option<usize>> {
        if window.has_ended || self.n_batches() <= window.next || self.scan.stop.is_reached() {
            return Some(None);
        }
        if window.released + WINDOW_PER_THREAD * n_threads() <= window.next {
            return None;
        }
        let batch = window.next;
        window.next += 1;
        Some(Some(batch))
    }

    /// Searches the files of a batch. Returns their results, with the number of each file.
    fn search(&self, batch: usize, worker: &mut ScanThread<'_>) -> Vec<(usize, FileOutcome)> {
        let from = self.scan.from + batch * self.batch;
        let files = from..(from + self.batch).min(self.scan.walked.len());
        let mut outcomes = Vec::with_capacity(files.len());
        worker.begin_batch();
        for file in files {
            if self.flags.has_ended() || self.scan.stop.is_reached() {
                break;
            }
            let skip = if file == self.scan.from { self.scan.skip } else { Skip::default() };
            let outcome = worker.search(file, skip, &mut |part| {
                outcomes.push((file, part));
                self.hand_on(batch, &mut outcomes);
            });
            outcomes.push((file, outcome));
            if self.scan.ask.part_bytes < worker.held_bytes() {
                self.hand_on(batch, &mut outcomes);
                worker.begin_batch();
            }
        }
        outcomes
    }

    /// Passes the first results of a batch to the receiver, after those of all earlier batches. Waits for them.
    fn hand_on(&self, batch: usize, outcomes: &mut Vec<(usize, FileOutcome)>) {
        let is_turn =
            |window: &mut Window<R>| (window.has_ended || window.released == batch).then_some(());
        self.window.wait_for(is_turn);
        self.window.with(|window| self.take(window, outcomes.drain(..)));
        if self.flags.has_ended() {
            self.window.tell();
        }
    }

    fn take(
        &self,
        window: &mut Window<R>,
        outcomes: impl IntoIterator<Item = (usize, FileOutcome)>,
    ) {
        for (file, outcome) in outcomes {
            if !window.has_ended && !window.receiver.take(file, outcome) {
                window.has_ended = true;
            }
        }
        if window.receiver.only_counts() {
            self.flags.only_counts.store(true, Ordering::Relaxed);
        }
        if window.has_ended {
            self.flags.ended.store(true, Ordering::Relaxed);
        }
    }

    /// Passes the finished batches to the receiver in order.
    fn release(&self, window: &mut Window<R>, batch: usize, outcomes: Vec<(usize, FileOutcome)>) {
        let at = batch.saturating_sub(window.released);
        while window.ready.len() <= at {
            window.ready.push_back(None);
        }
        if let Some(place) = window.ready.get_mut(at) {
            *place = Some(outcomes);
        }
        while let Some(Some(outcomes)) = window.ready.front_mut().map(Option::take) {
            window.ready.pop_front();
            window.released += 1;
            self.take(window, outcomes);
        }
    }
}
