//! Counters that several actors update, and that `quack.ps` and `quack.metrics` read. This is the only shared state.

pub(crate) mod call_latency;
pub(crate) mod endpoint;
pub(crate) mod listening_ports;
pub(crate) mod process_usage;
pub(crate) mod prometheus_text;

use crate::metrics::call_latency::CallLatencies;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// All counters. One instance per daemon, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Clients connected now.
    pub(crate) clients: Gauge,
    /// Clients refused because there were too many or because they run as another user.
    pub(crate) refused_clients: Counter,
    /// Clients disconnected because they did not read.
    pub(crate) slow_clients: Counter,
    /// Bytes of lines that clients have not read yet.
    pub(crate) queued_bytes: Gauge,
    /// Lines that were too long or not JSON.
    pub(crate) bad_lines: Counter,
    /// Processes that had to be killed after the monitor above them was gone.
    pub(crate) strays_killed: Counter,
    /// Processes of commands that could not be killed.
    pub(crate) survivors: Counter,
    /// Spill files that were deleted because of their total size or age.
    pub(crate) spills_deleted: Counter,
    /// Idle processes that were evicted.
    pub(crate) evictions: Counter,
    /// Requests of commands for hosts that were forwarded.
    pub(crate) network_allowed: Counter,
    /// Requests of commands for hosts that were refused.
    pub(crate) network_denied: Counter,
    /// Requests of commands for hosts that were allowed and failed.
    pub(crate) network_failed: Counter,
    /// Bytes from commands to hosts, and back.
    pub(crate) network_sent: Counter,
    pub(crate) network_received: Counter,
    /// Questions to the user about denied operations, and their ends.
    pub(crate) approvals_asked: Counter,
    pub(crate) approvals_allowed: Counter,
    pub(crate) approvals_denied: Counter,
    pub(crate) approvals_expired: Counter,
    /// Replies to clients that had disconnected.
    pub(crate) unread_answers: Counter,
    pub(crate) calls: CallLatencies,
}

/// A value that only grows, and starts at 0 with the daemon.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of existing things, or their size in bytes.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicUsize);

impl Gauge {
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts `n`. The caller must not subtract more than was added.
    pub(crate) fn subtract(&self, n: usize) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
