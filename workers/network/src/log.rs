//! Reports of requests to the supervisor: collected, and sent as long as there are credits.

use quackd_protocol::network::{LOG_CREDITS, LogEntry, MAX_LOG_ENTRIES};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use tokio::sync::Notify;

/// Maximum number of entries that wait for a credit. More are counted and dropped.
const MAX_WAITING: usize = 1024;

/// Number of the last waiting entries with which an equal one is merged.
const MERGED: usize = 64;

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
        if let Some(same) = waiting.iter_mut().rev().take(MERGED).find(|old| is_same(old, &entry)) {
            same.count = same.count.saturating_add(entry.count);
            same.sent = same.sent.saturating_add(entry.sent);
            same.received = same.received.saturating_add(entry.received);
            same.took_ms = same.took_ms.max(entry.took_ms);
            return;
        }

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

/// Whether two entries differ only in traffic and time.
fn is_same(a: &LogEntry, b: &LogEntry) -> bool {
    (a.port, a.path, a.verdict) == (b.port, b.path, b.verdict)
        && (&a.host, &a.rule) == (&b.host, &b.rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::network::{DenyReason, RequestPath, Verdict};

    fn entry(host: String) -> LogEntry {
        LogEntry {
            host,
            port: 443,
            path: RequestPath::Connect,
            verdict: Verdict::Denied(DenyReason::NotListed),
            rule: None,
            count: 1,
            sent: 1,
            received: 2,
            took_ms: 3,
        }
    }

    #[tokio::test]
    async fn equal_entries_are_merged_and_others_wait_for_a_credit_or_are_counted() {
        let log = Log::default();
        for _ in 0..1000 {
            log.add(entry("same.example".into()));
        }
        let (entries, dropped) = log.next().await;
        assert_eq!((entries.len(), entries[0].count, entries[0].sent, dropped), (1, 1000, 1000, 0));
        for n in 0..2000 {
            log.add(entry(format!("h{n}.example")));
        }
        let (entries, dropped) = log.next().await;
        assert_eq!((entries.len(), dropped), (MAX_LOG_ENTRIES, 976));
        assert_eq!(log.credits.get(), 0);
        let waiting = tokio::time::timeout(std::time::Duration::ZERO, log.next()).await;
        assert!(waiting.is_err(), "no third report without a credit");
        log.taken(1);
        assert_eq!(log.next().await.0.len(), MAX_LOG_ENTRIES);
    }
}
