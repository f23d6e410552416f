//! Memory that all peers share: bytes of unfinished input, or of unread output.
//!
//! A peer alone may hold many bytes. If all peers together hold too many, the one that holds most for longest is refused,
//! so that peers that complete their lines and read their replies go on.

#![expect(
    clippy::disallowed_types,
    reason = "peers are on several threads, and no one waits with the lock"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of one peer that do not count, because the number of peers limits them.
pub const FREE_BYTES: usize = 64 * 1024;

/// Time that is added to the age of every peer's bytes. Younger ones are compared by their size.
const MIN_AGE: Duration = Duration::from_millis(100);

/// The budget of all peers. `T` refuses a peer.
#[derive(Debug)]
pub struct Budget<T> {
    max_bytes: usize,
    table: Mutex<Table<T>>,
}

#[derive(Debug)]
struct Table<T> {
    bytes: usize,
    next: u64,
    holders: BTreeMap<u64, Holder<T>>,
}

#[derive(Debug)]
struct Holder<T> {
    bytes: usize,
    since: Instant,
    refuse: T,
}

/// The part of one peer. Dropping it gives its bytes back.
#[derive(Debug)]
pub struct Share<T> {
    budget: Arc<Budget<T>>,
    refuse: T,
    /// Number in the table, after the first bytes that count.
    number: Mutex<Option<u64>>,
    bytes: AtomicUsize,
}

impl<T: Clone> Budget<T> {
    /// Creates a budget of which nothing is used.
    #[must_use]
    pub fn new(max_bytes: usize) -> Arc<Self> {
        let table = Table { bytes: 0, next: 0, holders: BTreeMap::new() };
        Arc::new(Self { max_bytes, table: Mutex::new(table) })
    }

    /// Adds a peer without bytes.
    #[must_use]
    pub fn join(self: &Arc<Self>, refuse: T) -> Share<T> {
        let (number, bytes) = (Mutex::new(None), AtomicUsize::new(0));
        Share { budget: Arc::clone(self), refuse, number, bytes }
    }

    /// Returns the bytes that count.
    #[must_use]
    pub fn bytes(&self) -> usize {
        lock(&self.table).bytes
    }
}

impl<T: Clone> Share<T> {
    /// Adds bytes. Returns the peers that must be refused, which may include this one. Their bytes no longer count.
    #[must_use]
    pub fn add(&self, bytes: usize, now: Instant) -> Vec<T> {
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if all <= FREE_BYTES { Vec::new() } else { self.count(all, now) }
    }

    /// Gives bytes back, because the peer has made progress.
    pub fn subtract(&self, bytes: usize, now: Instant) {
        // Never below zero, also if the caller gives back more than it took.
        let rest = |all: usize| Some(all.saturating_sub(bytes));
        let before = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        let (Ok(before) | Err(before)) = before;

        if FREE_BYTES < before {
            let mut table = lock(&self.budget.table);
            let rest = before.saturating_sub(bytes);
            let number = *lock(&self.number);
            table.set(number, if rest <= FREE_BYTES { 0 } else { rest });
            // Progress makes the rest young, so a peer that reads slowly is not the worst one.
            if let Some(holder) = number.and_then(|number| table.holders.get_mut(&number)) {
                holder.since = now;
            }
        }
    }

    /// Gives all bytes back.
    pub fn clear(&self, now: Instant) {
        self.subtract(self.bytes.load(Ordering::Relaxed), now);
    }

    fn count(&self, bytes: usize, now: Instant) -> Vec<T> {
        // The table's lock is always taken before the number's.
        let mut table = lock(&self.budget.table);
        let mut number = lock(&self.number);
        if !number.is_some_and(|number| table.holders.contains_key(&number)) {
            // A refused peer is removed from the table. If it holds bytes again, it gets a new
            // entry.
            let (new, next) =
                (Holder { bytes: 0, since: now, refuse: self.refuse.clone() }, table.next);
            table.holders.insert(next, new);
            table.next += 1;
            *number = Some(next);
        }

        table.set(*number, bytes);
        drop(number);

        let mut refused = Vec::new();
        while self.budget.max_bytes < table.bytes {
            let Some(worst) = table.worst(now) else { break };
            table.set(Some(worst), 0);
            refused.extend(table.holders.remove(&worst).map(|holder| holder.refuse));
        }
        refused
    }
}

impl<T> Drop for Share<T> {
    fn drop(&mut self) {
        let mut table = lock(&self.budget.table);
        if let Some(number) = *lock(&self.number) {
            table.set(Some(number), 0);
            table.holders.remove(&number);
        }
    }
}

impl<T> Table<T> {
    fn set(&mut self, number: Option<u64>, bytes: usize) {
        if let Some(holder) = number.and_then(|number| self.holders.get_mut(&number)) {
            self.bytes = self.bytes.saturating_sub(holder.bytes).saturating_add(bytes);
            holder.bytes = bytes;
        }
    }

    /// Returns the peer with the most bytes times their age, or the newest of those.
    fn worst(&self, now: Instant) -> Option<u64> {
        let cost = |holder: &Holder<T>| {
            let age = now.saturating_duration_since(holder.since).saturating_add(MIN_AGE);
            u128::try_from(holder.bytes).unwrap_or(u128::MAX).saturating_mul(age.as_millis())
        };
        self.holders.iter().max_by_key(|(_, holder)| cost(holder)).map(|(number, _)| *number)
    }
}

/// Locks a mutex. A poisoned lock has a complete table, because no step of a change can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn the_peer_that_holds_most_for_longest_is_refused() {
        let budget = Budget::new(10 * MIB);
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let slow = budget.join("slow");
        let small = budget.join("small");
        let large = budget.join("large");
        assert_eq!(slow.add(4 * MIB, at(0)), Vec::<&str>::new());
        assert_eq!(small.add(MIB, at(0)), Vec::<&str>::new());
        // Young bytes are cheap, even if they are more.
        assert_eq!(large.add(6 * MIB, at(60)), ["slow"]);
        assert_eq!(budget.bytes(), 7 * MIB);
        drop((slow, small));
        assert_eq!(budget.bytes(), 6 * MIB);
        large.clear(at(61));
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn few_bytes_do_not_count_and_progress_makes_them_young() {
        let budget = Budget::new(5 * MIB);
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let peers: Vec<_> = (0..1000).map(|n| budget.join(n)).collect();
        assert!(peers.iter().all(|peer| peer.add(FREE_BYTES, at(0)).is_empty()));
        assert_eq!(budget.bytes(), 0);
        peers[0].clear(at(0));
        peers[1].clear(at(0));
        assert!(peers[0].add(2 * MIB, at(0)).is_empty());
        assert!(peers[1].add(MIB, at(0)).is_empty());
        peers[0].subtract(1, at(100));
        assert_eq!(peers[2].add(2 * MIB, at(101)), [1], "the other one has made progress");
        peers[0].subtract(2 * MIB - 1, at(102));
        assert_eq!(budget.bytes(), 2 * MIB + FREE_BYTES);
        drop(peers);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn a_peer_alone_can_be_too_large() {
        let budget = Budget::new(MIB);
        let peer = budget.join(());
        assert_eq!(peer.add(2 * MIB, Instant::now()).len(), 1);
        assert_eq!(budget.bytes(), 0);
    }
}
