//! Searches the files of a walk in order, with one thread or several, in a moving window.
//!
//! Threads claim files in batches, in order. The results reach the page in the same order, so the page does not
//! depend on the speed of the threads. Called by `engine`.

mod blocks;
mod file;
mod file_outcome;
mod group;
mod options;
mod others;
mod page;
mod parts;
mod pass;
mod row;
mod searchers;
mod sink;
mod skipping;
mod stream;
mod whole;

pub(crate) use options::{ScanOptions, Skip};
pub(crate) use others::OtherPatterns;
pub(crate) use page::{PageBuilder, PageStart, Tally};
pub(crate) use pass::Scan;
pub use stream::RowSink;
pub(crate) use stream::{MAX_HELD_BYTES, RowStream};

use crate::condvar::{Monitored, n_threads};
use file::ScanThread;
use file_outcome::FileOutcome;
use pass::Flags;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
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

#[derive(Default)]
struct Window {
    next: usize,
    released: usize,
    /// Results of the batches from `released` on.
    ready: VecDeque<Option<Vec<(usize, FileOutcome)>>>,
    /// A thread passes results to the receiver. The other threads continue.
    is_passing: bool,
    has_ended: bool,
    has_help: bool,
}

impl Scan<'_> {
    /// Searches until all files are searched, `receiver` stops, or the deadline passes.
    pub(crate) fn run<R: OutcomeReceiver>(&self, receiver: R) -> R {
        let crew = ScanThreads {
            scan: self,
            window: Monitored::new(Window::default()),
            receiver: Monitored::new(receiver),
            flags: Flags::default(),
            batch: (self.n_files() / 64).clamp(1, MAX_BATCH),
        };
        std::thread::scope(|threads| crew.work(Some(threads)));
        crew.receiver.into_inner()
    }

    fn n_files(&self) -> usize {
        self.walked.len().saturating_sub(self.from)
    }
}

struct ScanThreads<'a, R> {
    scan: &'a Scan<'a>,
    window: Monitored<Window>,
    /// Locked by the thread that passes results.
    receiver: Monitored<R>,
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

            // A short search ends before further threads would help.
            let is_long = MANY_FILES <= n_done || LONG <= began.elapsed();
            self.release(batch, outcomes);

            let help = self.window.with(|window| {
                let left = self.n_batches().saturating_sub(window.next);
                let help = is_long
                    && 2 <= left
                    && !window.has_ended
                    && !window.has_help
                    && threads.is_some();
                window.has_help |= help;
                help
            });

            if let Some(threads) = threads.filter(|_| help) {
                for _ in 1..n_threads() {
                    // If no thread can be started, the scan only takes longer.
                    Builder::new().spawn_scoped(threads, || self.work(None)).ok();
                }
            }
        }
    }

    fn n_batches(&self) -> usize {
        self.scan.n_files().div_ceil(self.batch)
    }

    /// Returns the next batch: `Some(None)` if there are no more files, `None` if the window is full.
    fn claim(&self, window: &mut Window) -> Option<Option<usize>> {
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

            // The memory for rows that wait is limited.
            if self.scan.ask.part_bytes < worker.held_bytes() {
                self.hand_on(batch, &mut outcomes);
                worker.begin_batch();
            }
        }
        outcomes
    }

    /// Passes the first results of a batch to the receiver, after those of all earlier batches. Waits for them.
    fn hand_on(&self, batch: usize, outcomes: &mut Vec<(usize, FileOutcome)>) {
        self.window.wait_for(|window| {
            let is_turn = window.released == batch && !window.is_passing;
            window.is_passing |= is_turn;
            (window.has_ended || is_turn).then_some(())
        });
        self.pass(outcomes.drain(..));
    }

    /// Passes the finished batches to the receiver in order, unless another thread does.
    fn release(&self, batch: usize, outcomes: Vec<(usize, FileOutcome)>) {
        self.window.with(|window| {
            let at = batch.saturating_sub(window.released);
            // Batches finish in any order, so the places of earlier ones stay free.
            while window.ready.len() <= at {
                window.ready.push_back(None);
            }
            if let Some(place) = window.ready.get_mut(at) {
                *place = Some(outcomes);
            }
        });

        let next = |window: &mut Window| {
            let is_ready = matches!(window.ready.front(), Some(Some(_))) && !window.is_passing;
            let outcomes = is_ready.then(|| window.ready.pop_front().flatten()).flatten()?;
            window.released += 1;
            // One thread passes results on at a time, so that they stay in order.
            window.is_passing = true;
            Some(outcomes)
        };

        while let Some(outcomes) = self.window.with(next) {
            self.pass(outcomes);
        }
    }

    /// Passes results to the receiver. It may block.
    fn pass(&self, outcomes: impl IntoIterator<Item = (usize, FileOutcome)>) {
        let (has_ended, only_counts) = self.receiver.with(|receiver| {
            let mut outcomes = outcomes.into_iter();
            let has_ended = self.flags.has_ended()
                || !outcomes.all(|(file, outcome)| receiver.take(file, outcome));
            (has_ended, receiver.only_counts())
        });

        // Only hints for the other threads. The window decides, under its lock.
        self.flags.ended.fetch_or(has_ended, Ordering::Relaxed);
        self.flags.only_counts.fetch_or(only_counts, Ordering::Relaxed);

        self.window.with(|window| {
            window.is_passing = false;
            window.has_ended |= has_ended;
        });
        self.window.tell();
    }
}
