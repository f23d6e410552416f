//! Heartbeat of a worker: when to send a ping, and when a worker counts as hung (P-14).
//!
//! At most one ping is outstanding. The channel is ordered and reliable, so a second ping adds no
//! information, and a stopped worker's socket does not fill up. So three missed heartbeats mean three busy
//! intervals without an answer.
//!
//! Every call returns the time of the next [`Heartbeat::poll`], which replaces earlier ones. A healthy worker
//! costs one wakeup per interval.

use std::time::{Duration, Instant};

/// Intervals and limits of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatSpec {
    /// Interval while a call is in flight.
    pub busy: Duration,
    /// Interval of an idle worker.
    pub idle: Duration,
    /// Busy intervals without an answer after which new calls are refused.
    pub missed: u32,
    /// Time without an answer after which the worker is killed. Must exceed `missed` busy intervals.
    pub kill: Duration,
}

/// Action for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Action {
    /// No action.
    Nothing,
    /// Send a ping with this number.
    Ping(u64),
    /// The worker stopped answering: refuse new calls. Returned once; a pong ends this state.
    Unresponsive,
    /// The limit has passed: kill the worker.
    Kill,
}

/// Heartbeat of one worker, from its hello to its exit.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    spec: HeartbeatSpec,
    /// Time when the worker became busy; `None` while idle.
    busy_since: Option<Instant>,
    /// Time of the last ping, or of becoming ready.
    last_sent: Instant,
    last_seq: u64,
    outstanding: Option<Outstanding>,
    /// Time of the last answer, or of becoming ready.
    heard: Instant,
    /// Time of the next poll, as last returned to the caller.
    due: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Outstanding {
    /// Start of the grace period.
    since: Instant,
    unresponsive: bool,
}

impl Heartbeat {
    /// Creates the heartbeat of an idle worker that became ready at `now`.
    #[must_use]
    pub fn new(spec: HeartbeatSpec, now: Instant) -> Self {
        Self {
            spec,
            busy_since: None,
            last_sent: now,
            last_seq: 0,
            outstanding: None,
            heard: now,
            due: now + spec.idle,
        }
    }

    /// Returns true from [`Action::Unresponsive`] to the next pong.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        self.outstanding.is_some_and(|ping| ping.unresponsive)
    }

    /// Returns the time since the last answer, or since becoming ready.
    #[must_use]
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    /// Restarts the grace period after a suspend or a stop of this process.
    #[must_use = "the next wakeup"]
    pub fn renew(&mut self, now: Instant) -> Instant {
        if let Some(ping) = &mut self.outstanding {
            ping.since = now;
            self.due = now;
        }
        self.reschedule(now)
    }

    /// Returns the latest time for the next [`Heartbeat::poll`].
    #[must_use]
    pub fn next_wakeup(&self) -> Instant {
        self.due
    }

    /// Records the first call in flight. A call that finishes within a busy interval causes no ping.
    #[must_use = "the next wakeup"]
    pub fn on_busy(&mut self, now: Instant) -> Instant {
        self.renew_if_late(now);
        self.busy_since.get_or_insert(now);
        self.reschedule(now)
    }

    /// Records the end of the last call.
    #[must_use = "the next wakeup"]
    pub fn on_idle(&mut self, now: Instant) -> Instant {
        self.renew_if_late(now);
        self.busy_since = None;
        self.reschedule(now)
    }

    /// Records an answer. Ignores a number other than that of the last ping.
    #[must_use = "the next wakeup"]
    pub fn on_pong(&mut self, seq: u64, now: Instant) -> Instant {
        self.renew_if_late(now);
        if seq == self.last_seq {
            self.outstanding = None;
            self.heard = now;
        }
        self.reschedule(now)
    }

    /// Returns the action and the time of the next poll. Polling too early is harmless.
    pub fn poll(&mut self, now: Instant) -> (Action, Instant) {
        self.renew_if_late(now);
        let action = self.act(now);
        (action, self.reschedule(now))
    }

    fn act(&mut self, now: Instant) -> Action {
        let Some(ping) = &mut self.outstanding else {
            if now < self.next_ping() {
                return Action::Nothing;
            }
            self.last_seq = self.last_seq.saturating_add(1);
            self.last_sent = now;
            self.outstanding = Some(Outstanding { since: now, unresponsive: false });
            return Action::Ping(self.last_seq);
        };

        let silent = now.saturating_duration_since(ping.since);
        if ping.unresponsive {
            return if self.spec.kill <= silent { Action::Kill } else { Action::Nothing };
        }

        // Never kill without a preceding unresponsive state. If the supervisor was stopped, the answer is
        // already in the socket and is read before the next poll.
        if self.spec.busy.saturating_mul(self.spec.missed) <= silent {
            ping.unresponsive = true;
            return Action::Unresponsive;
        }
        Action::Nothing
    }

    fn next_ping(&self) -> Instant {
        let idle = self.last_sent + self.spec.idle;
        // A busy worker gets its ping one busy interval after the call, or after the last ping if
        // that was later.
        self.busy_since.map_or(idle, |since| idle.min(self.last_sent.max(since) + self.spec.busy))
    }

    fn reschedule(&mut self, now: Instant) -> Instant {
        self.due = match self.outstanding {
            None => self.next_ping(),
            Some(Outstanding { since, unresponsive: false }) => {
                since + self.spec.busy.saturating_mul(self.spec.missed)
            }
            // Poll in busy intervals, so that a stop of the supervisor is noticed. An unexecuted kill is
            // repeated at the same rate.
            Some(Outstanding { since, unresponsive: true }) => {
                // A poll that is still due stays due: other events must not postpone it.
                let step = if now < self.due { self.due } else { now + self.spec.busy };
                let kill_at = since + self.spec.kill;
                if now < kill_at { step.min(kill_at) } else { step }
            }
        };
        self.due
    }

    /// A poll more than one busy interval late means that the supervisor or the machine was stopped. The
    /// worker may have answered since, so its grace period restarts (P-13, P-15).
    fn renew_if_late(&mut self, now: Instant) {
        if self.spec.busy < now.saturating_duration_since(self.due)
            && let Some(ping) = &mut self.outstanding
        {
            ping.since = now;
        }
    }
}

#[cfg(test)]
mod tests;
