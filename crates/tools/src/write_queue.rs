//! Blocking work of the calls that change one file, which one thread does in turn. Called by [`crate::Toolbox`].
//!
//! With a thread for each call, every thread would wait for the one before it, and each turn would wake another thread.

#![expect(
    clippy::disallowed_types,
    reason = "the calls and their blocking threads share the table, and no wait holds its lock"
)]

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Longest wait for the thread of the file: it may hang on a file system that does not answer. After that, the work gets a
/// separate thread.
const PATIENCE: Duration = Duration::from_millis(100);

/// Longest time for which a result waits for the next ones. A wake for several results costs the processes on the way to the
/// client much less than one for each.
const GATHER: Duration = Duration::from_millis(1);

/// Interval at which a call looks for its result if the thread passes none on, because its next work takes longer.
const LOOK: Duration = Duration::from_millis(2);

/// Work by the path as the calls spell it. A path is in the table while a thread works on it. Other spellings of the same
/// file only cost a wait, because the file is locked while it is replaced.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteQueue(Arc<Mutex<Paths>>);

#[derive(Debug, Default)]
struct Paths {
    by_path: HashMap<String, Waiting>,
    last: u64,
}

/// Work that waits, and results that are not passed on.
#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    done: Vec<Delivery>,
}

/// Passes a result on to its call.
type Delivery = Box<dyn FnOnce() + Send>;

/// Work of one call. `None` if the call has ended.
type Work = Box<dyn FnOnce() -> Option<Delivery> + Send>;

/// Work that waits.
struct Job {
    number: u64,
    work: Work,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (jobs, done) = (self.jobs.len(), self.done.len());
        f.debug_struct("Waiting").field("jobs", &jobs).field("done", &done).finish()
    }
}

/// Removes waiting work when its call has ended.
struct Place<'a> {
    queue: &'a WriteQueue,
    path: &'a str,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Place<'_> {
    /// Takes the work out of the queue. `None` if a thread has begun it.
    fn take(&self) -> Option<Job> {
        let mut paths = self.queue.lock();
        let jobs = &mut paths.by_path.get_mut(self.path)?.jobs;
        let at = jobs.iter().position(|job| job.number == self.number)?;
        jobs.remove(at)
    }
}

impl WriteQueue {
    /// Runs `work` after the other work at `path`. Work whose future was dropped does not begin. Returns `None` if the
    /// runtime shuts down.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, mut receiver) = oneshot::channel();
        let work: Work = Box::new(move || {
            if sender.is_closed() {
                return None;
            }
            let done = work();
            let deliver = move || {
                // The call may have ended in the meantime.
                sender.send(done).ok();
            };
            Some(Box::new(deliver))
        });
        let place = Place { queue: self, path, number: self.add(path, work) };
        let (begin, mut look) = (Instant::now(), LOOK);
        loop {
            if let Ok(done) = timeout(look, &mut receiver).await {
                return done.ok();
            }
            self.deliver(path);
            if PATIENCE <= begin.elapsed() {
                look = PATIENCE;
                if let Some(job) = place.take() {
                    drop(spawn_blocking(move || (job.work)().map(|deliver| deliver())));
                }
            }
        }
    }

    /// Adds work for the thread of the path, and starts the thread if there is none. Returns the number of the work.
    fn add(&self, path: &str, work: Work) -> u64 {
        let mut paths = self.lock();
        paths.last += 1;
        let number = paths.last;
        if let Some(waiting) = paths.by_path.get_mut(path) {
            waiting.jobs.push_back(Job { number, work });
            return number;
        }
        paths.by_path.insert(path.to_owned(), Waiting::default());
        drop(paths);
        let (this, path) = (self.clone(), path.to_owned());
        drop(spawn_blocking(move || this.work_through(&path, work)));
        number
    }

    /// Does the work at `path` until none is left.
    fn work_through(&self, path: &str, first: Work) {
        let (mut next, mut since) = (Some(first), Instant::now());
        while let Some(work) = next {
            let done = work();
            let is_due = GATHER <= since.elapsed();
            next = self.next(path, done);
            if is_due {
                self.deliver(path);
                since = Instant::now();
            }
        }
    }

    /// Takes the next work at `path`, and keeps a result. Without further work, passes all results on.
    fn next(&self, path: &str, done: Option<Delivery>) -> Option<Work> {
        let mut paths = self.lock();
        let waiting = paths.by_path.get_mut(path)?;
        waiting.done.extend(done);
        if let Some(job) = waiting.jobs.pop_front() {
            return Some(job.work);
        }
        let last = paths.by_path.remove(path);
        drop(paths);
        last.into_iter().flat_map(|last| last.done).for_each(|deliver| deliver());
        None
    }

    /// Passes on the results of the work at `path` so far.
    fn deliver(&self, path: &str) {
        let mut paths = self.lock();
        let done = paths.by_path.get_mut(path).map(|waiting| std::mem::take(&mut waiting.done));
        drop(paths);
        done.into_iter().flatten().for_each(|deliver| deliver());
    }

    /// A poisoned lock has complete data: no step of a change can panic.
    fn lock(&self) -> MutexGuard<'_, Paths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use std::sync::mpsc;
    use std::thread;

    #[tokio::test]
    async fn one_thread_does_the_work_at_a_path_in_order() {
        let (queue, order) = (WriteQueue::default(), Arc::new(Mutex::new(Vec::new())));
        let (release, held) = mpsc::channel::<()>();
        let mut held = Some(held);
        let all = (0..16).map(|n| {
            let (order, held) = (Arc::clone(&order), held.take());
            queue.run("a", move || {
                // The first one waits until the others are in the queue.
                held.map(|held| held.recv());
                order.lock().unwrap().push((n, thread::current().id()));
            })
        });
        let last = queue.run("b", move || release.send(()));
        let (done, _) = tokio::join!(join_all(all), last);
        assert!(done.iter().all(Option::is_some));
        let order = order.lock().unwrap();
        let (numbers, threads): (Vec<_>, Vec<_>) = order.iter().copied().unzip();
        assert_eq!(numbers, (0..16).collect::<Vec<_>>());
        assert!(threads.iter().all(|thread| *thread == threads[0]));
        assert!(queue.lock().by_path.is_empty());
    }

    #[tokio::test]
    async fn work_behind_a_thread_that_hangs_gets_another_one() {
        let queue = WriteQueue::default();
        let (release, hang) = mpsc::channel::<()>();
        let hung = queue.run("a", move || hang.recv().is_ok());
        let second = async {
            let done = queue.run("a", || 2).await;
            release.send(()).unwrap();
            done
        };
        assert_eq!(tokio::join!(hung, second), (Some(true), Some(2)));
    }

    #[tokio::test]
    async fn a_result_does_not_wait_for_work_that_hangs() {
        let queue = WriteQueue::default();
        let ((begin, begun), (release, hang)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let first = queue.run("a", move || begun.recv().is_ok());
        let second = queue.run("a", move || hang.recv().is_ok());
        let first = async {
            let done = first.await;
            release.send(()).unwrap();
            done
        };
        let both = async { tokio::join!(first, second) };
        let begin = async { begin.send(()) };
        assert_eq!(tokio::join!(both, begin), ((Some(true), Some(true)), Ok(())));
    }

    #[tokio::test]
    async fn work_of_an_ended_call_does_not_begin_and_leaves_the_queue() {
        let queue = WriteQueue::default();
        let (release, hang) = mpsc::channel::<()>();
        let mut hung = Box::pin(queue.run("a", move || hang.recv().is_ok()));
        assert!(hung.as_mut().now_or_never().is_none());
        let ended = queue.run("a", || -> bool { panic!("it has begun") });
        assert!(ended.now_or_never().is_none(), "it waits, and its call ends");
        assert!(queue.lock().by_path["a"].jobs.is_empty());
        release.send(()).unwrap();
        assert_eq!(hung.await, Some(true));
    }
}
