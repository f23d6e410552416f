//! Turns of the threads of this process that replace the same file. Called by `target`.
//!
//! The lock of [`crate::lock`] is for other processes. Threads that polled it for each other would find it unlocked only
//! by chance: 32 of them replaced a file at a quarter of the rate of one.

#![expect(
    clippy::disallowed_types,
    reason = "blocking threads wait for each other here, which no actor does"
)]

use crate::WriteError;
use rustix::fs::fstat;
use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time until a waiting thread sees that it has to give up.
const LOOK: Duration = Duration::from_millis(100);

/// A name in an open directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NameAt {
    directory: (u64, u64),
    name: OsString,
}

impl NameAt {
    /// Returns the name of an entry, regardless of the path of its directory.
    pub(crate) fn of(directory: impl AsFd, name: &OsStr) -> std::io::Result<Self> {
        let stat = fstat(directory)?;
        // The types differ between systems.
        #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "as the comment says")]
        let directory = (stat.st_dev as u64, stat.st_ino as u64);
        Ok(Self { directory, name: name.to_owned() })
    }
}

/// The threads that replace one file, or wait to do so.
#[derive(Debug, Default)]
struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    is_taken: bool,
    next_ticket: u64,
    /// Tickets in the order of their arrival, each with the condition that wakes its thread.
    tickets: VecDeque<(u64, Arc<Condvar>)>,
    /// The ticket whose turn it is, until its thread has seen that.
    called: Option<u64>,
}

static QUEUES: LazyLock<Mutex<HashMap<NameAt, Arc<Queue>>>> = LazyLock::new(Mutex::default);

/// The turn of a thread. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    name: NameAt,
    queue: Arc<Queue>,
}

impl Turn {
    /// Waits for the turn to replace the file at a name. Threads get their turn in the order of their arrival.
    ///
    /// # Errors
    /// [`WriteError::Locked`] if another thread still has it at `until`; [`WriteError::GivenUp`].
    pub(crate) fn wait(
        name: NameAt,
        until: Instant,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Self, WriteError> {
        let queue = Arc::clone(lock(&QUEUES).entry(name.clone()).or_default());

        match queue.wait(until, give_up) {
            Ok(()) => Ok(Self { name, queue }),
            Err(error) => {
                forget_if_idle(&name, &queue);
                Err(error)
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.queue.0).call_next();
        forget_if_idle(&self.name, &self.queue);
    }
}

/// Removes a queue from the table if no other thread has it.
fn forget_if_idle(name: &NameAt, queue: &Arc<Queue>) {
    let mut queues = lock(&QUEUES);
    // The table has one handle, and the caller.
    if Arc::strong_count(queue) == 2 {
        queues.remove(name);
    }
}

impl Queue {
    fn wait(&self, until: Instant, give_up: &dyn Fn() -> bool) -> Result<(), WriteError> {
        let mut waiting = lock(&self.0);
        if !waiting.is_taken {
            waiting.is_taken = true;
            return Ok(());
        }

        let ticket = waiting.next_ticket;
        waiting.next_ticket += 1;
        let condition = Arc::new(Condvar::new());
        waiting.tickets.push_back((ticket, Arc::clone(&condition)));

        loop {
            let left = until.saturating_duration_since(Instant::now()).min(LOOK);
            let woken = condition.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;

            let is_called = waiting.called == Some(ticket);
            let error = match () {
                () if give_up() => WriteError::GivenUp,
                () if is_called => {
                    waiting.called = None;
                    return Ok(());
                }
                () if until <= Instant::now() => WriteError::Locked,
                () => continue,
            };
            // A turn that this thread does not use goes to the next one.
            if is_called {
                waiting.call_next();
            }
            waiting.tickets.retain(|(other, _)| *other != ticket);
            return Err(error);
        }
    }
}

impl Waiting {
    /// Ends a turn, and begins that of the first waiting thread.
    fn call_next(&mut self) {
        let next = self.tickets.pop_front();
        self.called = next.as_ref().map(|(ticket, _)| *ticket);
        self.is_taken = next.is_some();
        if let Some((_, condition)) = next {
            condition.notify_one();
        }
    }
}

/// A poisoned lock has complete data: no step of a change can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn name(directory: &tempfile::TempDir, name: &str) -> NameAt {
        NameAt::of(std::fs::File::open(directory.path()).unwrap(), OsStr::new(name)).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn one_thread_at_a_time_has_the_turn_and_all_get_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let turn = Turn::wait(name(&directory, "a"), soon(), &|| false).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 16 * 200);
        assert!(!lock(&QUEUES).contains_key(&name(&directory, "a")));
    }

    #[test]
    fn a_thread_that_gives_up_passes_its_turn_on() {
        let directory = tempfile::tempdir().unwrap();
        let at = name(&directory, "a");
        let turn = Turn::wait(at.clone(), soon(), &|| false).unwrap();
        let other = Turn::wait(name(&directory, "b"), soon(), &|| false);
        assert!(other.is_ok(), "another name has another queue");
        let given_up = Turn::wait(at.clone(), soon(), &|| true);
        assert!(matches!(given_up, Err(WriteError::GivenUp)));
        let late = Turn::wait(at.clone(), Instant::now(), &|| false);
        assert!(matches!(late, Err(WriteError::Locked)));
        let waiting = {
            let at = at.clone();
            std::thread::spawn(move || Turn::wait(at, soon(), &|| false).is_ok())
        };
        while lock(&lock(&QUEUES).get(&at).unwrap().0).tickets.is_empty() {
            std::thread::yield_now();
        }
        drop(turn);
        assert!(waiting.join().unwrap());
        drop(other);
        assert!(lock(&QUEUES).keys().all(|known| known.directory != at.directory));
    }
}
