//! Reports of requests to the supervisor: collected, and sent as long as there are credits.

use quackd_protocol::network::{LOG_CREDITS, LogEntry, MAX_LOG_ENTRIES};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use tokio::sync::Notify;

/// Most entries that wait for a credit. More are counted and dropped.
const MAX_WAITING: usize = 1024;

/// Entries that were not sent yet.
#[derive(Debug)]
pub(crate) struct Log {
    waiting: RefCell<VecDeque<LogEntry>>,
    dropped: Cell<u64>,
    credits: Cell<u32>,
    changed: Notify,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            waiting: RefCell::default(),
            dropped: Cell::new(0),
            credits: Cell::new(LOG_CREDITS),
            changed: Notify::new(),
        }
    }
}

impl Log {
    pub(crate) fn add(&self, entry: LogEntry) {
        let mut waiting = self.waiting.borrow_mut();
        if MAX_WAITING <= waiting.len() {
            self.dropped.set(self.dropped.get().saturating_add(1));
            return;
        }
        waiting.push_back(entry);
        self.changed.notify_one();
    }

    /// Returns credits.
    pub(crate) fn taken(&self, n: u32) {
        self.credits.set(self.credits.get().saturating_add(n).min(LOG_CREDITS));
        self.changed.notify_one();
    }

    /// Waits for entries and a credit, and takes them. Cancel-safe.
    pub(crate) async fn next(&self) -> (Vec<LogEntry>, u64) {
        loop {
            if self.credits.get() != 0 && !self.waiting.borrow().is_empty() {
                self.credits.set(self.credits.get() - 1);
                let mut waiting = self.waiting.borrow_mut();
                let n = waiting.len().min(MAX_LOG_ENTRIES);
                return (waiting.drain(..n).collect(), self.dropped.replace(0));
            }
            self.changed.notified().await;
        }
    }
}
