//! Searching the files of a walk in their order: by one thread or several, in a window that moves on.
//!
//! Files are claimed in batches, in order; what was found is handed to the page in the same order, so the
//! page does not depend on which thread was quicker. Called by `engine`.

mod file;
mod group;
mod page;
mod row;
mod sink;

pub(crate) use file::{Ask, Skip};
pub(crate) use page::{Page, Seek, Tally};

use crate::share::{Shared, n_threads};
use crate::tree::{Stop, Tree};
use crate::walk::Walked;
use file::{Outcome, Worker};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope as Threads};
use std::time::{Duration, Instant};

/// Files that one thread claims at once, if there are many.
const MAX_BATCH: usize = 16;

/// Batches that may be ahead of the page, for each thread.
const WINDOW_PER_THREAD: usize = 8;

/// Whoever has searched so many files, or for so long, gets help: a thread takes some 50 µs to start.
const MANY_FILES: usize = 32;
const LONG: Duration = Duration::from_millis(1);

/// Takes what files gave, in their order.
pub(crate) trait Receive: Send {
    /// Takes the next file. False if no more are wanted.
    fn take(&mut self, file: usize, outcome: Outcome) -> bool;
    /// Whether only numbers are wanted from now on.
    fn only_counts(&self) -> bool;
}

/// One pass over files.
pub(crate) struct Scan<'a> {
    pub(crate) walked: &'a Walked,
    pub(crate) tree: &'a dyn Tree,
    pub(crate) ask: &'a Ask,
    pub(crate) stop: &'a Stop,
    /// The first file.
    pub(crate) from: usize,
    /// Rows left out of it.
    pub(crate) skip: Skip,
}

struct Window<R> {
    next: usize,
    released: usize,
    /// Batches from `released` on.
    ready: VecDeque<Option<Vec<Outcome>>>,
    receiver: R,
    has_ended: bool,
    has_help: bool,
}

/// What threads look at while they search.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// Nothing more is wanted.
    ended: AtomicBool,
    /// Rows are not wanted any more, numbers are.
    only_counts: AtomicBool,
}

impl Flags {
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn only_counts(&self) -> bool {
        self.only_counts.load(Ordering::Relaxed)
    }
}

impl Scan<'_> {
    /// Searches until the files or the wishes of `receiver` end, or it is time to stop.
    pub(crate) fn run<R: Receive>(&self, receiver: R) -> R {
        let window = Window {
            next: 0,
            released: 0,
            ready: VecDeque::new(),
            receiver,
            has_ended: false,
            has_help: false,
        };
        let crew = Crew {
            scan: self,
            window: Shared::new(window),
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

struct Crew<'a, R> {
    scan: &'a Scan<'a>,
    window: Shared<Window<R>>,
    flags: Flags,
    batch: usize,
}

impl<R: Receive> Crew<'_, R> {
    fn work<'s>(&'s self, threads: Option<&'s Threads<'s, '_>>) {
        let mut worker = Worker::new(self.scan, &self.flags);
        let (mut n_done, mut began) = (0, None);
        while let Some(batch) = self.window.wait_for(|window| self.claim(window)) {
            let began = *began.get_or_insert_with(Instant::now);
            let outcomes = self.search(batch, &mut worker);
            n_done += outcomes.len();
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
                    // Without help it only takes longer.
                    let _no_thread = Builder::new().spawn_scoped(threads, || self.work(None));
                }
            }
        }
    }

    fn n_batches(&self) -> usize {
        self.scan.n_files().div_ceil(self.batch)
    }

    /// The next batch; `Some(None)` if there is none, `None` if it is not yet time for it.
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

    fn search(&self, batch: usize, worker: &mut Worker<'_>) -> Vec<Outcome> {
        let from = self.scan.from + batch * self.batch;
        let files = from..(from + self.batch).min(self.scan.walked.len());
        let mut outcomes = Vec::with_capacity(files.len());
        worker.begin_batch();
        for file in files {
            if self.flags.has_ended() || self.scan.stop.is_reached() {
                break;
            }
            let skip = if file == self.scan.from { self.scan.skip } else { Skip::default() };
            outcomes.push(worker.search(file, skip));
        }
        outcomes
    }

    /// Hands over what is ready in order.
    fn release(&self, window: &mut Window<R>, batch: usize, outcomes: Vec<Outcome>) {
        let at = batch.saturating_sub(window.released);
        while window.ready.len() <= at {
            window.ready.push_back(None);
        }
        if let Some(place) = window.ready.get_mut(at) {
            *place = Some(outcomes);
        }
        while let Some(Some(outcomes)) = window.ready.front_mut().map(Option::take) {
            let first = self.scan.from + window.released * self.batch;
            window.ready.pop_front();
            window.released += 1;
            for (n, outcome) in outcomes.into_iter().enumerate() {
                if !window.has_ended && !window.receiver.take(first + n, outcome) {
                    window.has_ended = true;
                }
            }
        }
        if window.receiver.only_counts() {
            self.flags.only_counts.store(true, Ordering::Relaxed);
        }
        if window.has_ended {
            self.flags.ended.store(true, Ordering::Relaxed);
        }
    }
}
