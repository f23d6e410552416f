//! The newest events of one session, limited in number and size. Does no I/O.

use bytes::Bytes;
use quackd_protocol::limits::{RING_BYTES, RING_EVENTS};
use std::collections::VecDeque;

/// Ring buffer of events with consecutive numbers.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    lines: VecDeque<Bytes>,
    bytes: usize,
    /// Number of the newest event, 0 before the first.
    last: u64,
}

/// The requested events were dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl Ring {
    /// Creates an empty ring that continues after event `last`.
    pub(crate) fn after(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the ring contains event `next` and all later ones, or `next` is the next
    /// event.
    pub(crate) fn reaches_back_to(&self, next: u64) -> bool {
        (self.first()..=self.last.saturating_add(1)).contains(&next)
    }

    /// Returns the number of the oldest event in the ring. If it is empty, the number of the next
    /// event.
    fn first(&self) -> u64 {
        let kept = u64::try_from(self.lines.len()).unwrap_or(u64::MAX);
        self.last.saturating_add(1).saturating_sub(kept)
    }

    /// Adds the next event, and drops the oldest ones above the limits.
    pub(crate) fn push(&mut self, line: Bytes) {
        debug_assert!(line.len() <= RING_BYTES, "the sources of events limit their size");
        self.last = self.last.saturating_add(1);
        self.bytes += line.len();
        self.lines.push_back(line);

        // The newest event always stays: its size is below the limit.
        while 1 < self.lines.len() && (RING_EVENTS < self.lines.len() || RING_BYTES < self.bytes) {
            let dropped = self.lines.pop_front();
            self.bytes -= dropped.map_or(0, |line| line.len());
        }
    }

    /// Drops all events. Numbering continues.
    pub(crate) fn clear(&mut self) {
        *self = Self::after(self.last);
    }

    /// Returns the events from `next` on, with a total of about `max_bytes`.
    pub(crate) fn read(&self, next: u64, max_bytes: usize) -> Result<Vec<Bytes>, Overrun> {
        if !self.reaches_back_to(next) {
            return Err(Overrun);
        }

        let skip = usize::try_from(next - self.first()).unwrap_or(usize::MAX);
        // At least one line is read, also one that is longer than `max_bytes`.
        let mut room = max_bytes;
        let lines = self.lines.iter().skip(skip).take_while(|line| {
            let fits = room != 0;
            room = room.saturating_sub(line.len());
            fits
        });
        Ok(lines.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(n: u64) -> Ring {
        let mut ring = Ring::default();
        for i in 1..=n {
            ring.push(i.to_string().into());
        }
        ring
    }

    #[test]
    fn events_are_read_from_a_number_on() {
        let ring = ring(3);
        assert_eq!(ring.read(1, 1000).unwrap(), ["1", "2", "3"]);
        assert_eq!(ring.read(3, 1000).unwrap(), ["3"]);
        assert_eq!(ring.read(4, 1000).unwrap(), [] as [&str; 0]);
        assert_eq!(ring.read(5, 1000), Err(Overrun), "no follower has seen event 5");
        assert_eq!(ring.read(0, 1000), Err(Overrun));
        assert_eq!(ring.read(1, 2).unwrap(), ["1", "2"]);
    }

    #[test]
    fn the_oldest_are_dropped_by_number_and_by_size() {
        let n = u64::try_from(RING_EVENTS).unwrap();
        let full = ring(n + 2);
        assert!(!full.reaches_back_to(2) && full.reaches_back_to(3));
        assert_eq!(full.lines.len(), RING_EVENTS);

        let mut ring = ring(3);
        ring.push(vec![b'x'; RING_BYTES - 1].into());
        assert_eq!((ring.first(), ring.bytes()), (3, RING_BYTES));
        ring.push(vec![b'x'; RING_BYTES].into());
        assert_eq!((ring.first(), ring.last, ring.bytes()), (5, 5, RING_BYTES));
    }

    #[test]
    fn a_ring_that_was_cleared_goes_on_counting() {
        let mut ring = ring(3);
        ring.clear();
        assert_eq!(ring.bytes(), 0);
        assert_eq!(ring.read(3, 10), Err(Overrun));
        assert!(ring.read(4, 10).unwrap().is_empty());
        ring.push("4".into());
        assert_eq!(ring.read(4, 10).unwrap(), ["4"]);
    }
}
