//! When to ask a worker whether it is alive, and what its silence means (P-14).
//!
//! One ping is outstanding at a time: the link keeps order and loses nothing, so a second ping would
//! tell no more than the first, and a stopped worker's socket does not fill up. "Three missed" is
//! therefore the time of three busy intervals.
//!
//! Every call answers with the point in time at which [`Heartbeat::poll`] wants to be called next;
//! the latest answer holds. A healthy worker costs one wakeup per interval.

use std::time::{Duration, Instant};

/// The intervals and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatSpec {
    /// Interval while a call is in flight.
    pub busy: Duration,
    /// Interval of an idle worker.
    pub idle: Duration,
    /// Busy intervals without an answer after which new calls are refused.
    pub missed: u32,
    /// Time without an answer after which the worker is killed. More than `missed` busy intervals.
    pub kill: Duration,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Send a ping with this number.
    Ping(u64),
    /// The worker stopped answering: refuse new calls. Said once; a pong takes it back.
    Unresponsive,
    /// The worker has had its time: kill it.
    Kill,
}

/// The heartbeat of one worker, from its hello to its end.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    spec: HeartbeatSpec,
    /// When the worker became busy, if it is.
    busy_since: Option<Instant>,
    /// When the last ping was sent, or the worker became ready.
    last_sent: Instant,
    last_seq: u64,
    outstanding: Option<Outstanding>,
    /// When it last answered, or became ready.
    heard: Instant,
    /// What the caller was told last.
    due: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Outstanding {
    /// When its grace began.
    since: Instant,
    unresponsive: bool,
}

impl Heartbeat {
    /// The heartbeat of an idle worker that became ready at `now`.
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

    /// True from [`Action::Unresponsive`] to the next pong.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        self.outstanding.is_some_and(|ping| ping.unresponsive)
    }

    /// How long ago it last answered, or became ready.
    #[must_use]
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    /// The machine slept, or this process was stopped: the worker has its grace anew.
    #[must_use = "the next wakeup"]
    pub fn renew(&mut self, now: Instant) -> Instant {
        if let Some(ping) = &mut self.outstanding {
            ping.since = now;
            self.due = now;
        }
        self.reschedule(now)
    }

    /// When [`Heartbeat::poll`] wants to be called, at the latest.
    #[must_use]
    pub fn next_wakeup(&self) -> Instant {
        self.due
    }

    /// The first call is in flight. A call that ends within a busy interval is proof enough of life
    /// and causes no ping.
    #[must_use = "the next wakeup"]
    pub fn on_busy(&mut self, now: Instant) -> Instant {
        self.renew_if_late(now);
        self.busy_since.get_or_insert(now);
        self.reschedule(now)
    }

    /// The last call has ended.
    #[must_use = "the next wakeup"]
    pub fn on_idle(&mut self, now: Instant) -> Instant {
        self.renew_if_late(now);
        self.busy_since = None;
        self.reschedule(now)
    }

    /// The worker answered. A number other than the outstanding one proves nothing and is ignored.
    #[must_use = "the next wakeup"]
    pub fn on_pong(&mut self, seq: u64, now: Instant) -> Instant {
        self.renew_if_late(now);
        if seq == self.last_seq {
            self.outstanding = None;
            self.heard = now;
        }
        self.reschedule(now)
    }

    /// What to do now, and when to ask again. Too early is harmless.
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
        // Never killed without having been unresponsive for a while: if the supervisor was stopped,
        // the answer is already there and read before the next poll.
        if self.spec.busy.saturating_mul(self.spec.missed) <= silent {
            ping.unresponsive = true;
            return Action::Unresponsive;
        }
        Action::Nothing
    }

    fn next_ping(&self) -> Instant {
        let idle = self.last_sent + self.spec.idle;
        self.busy_since.map_or(idle, |since| idle.min(self.last_sent.max(since) + self.spec.busy))
    }

    fn reschedule(&mut self, now: Instant) -> Instant {
        self.due = match self.outstanding {
            None => self.next_ping(),
            Some(Outstanding { since, unresponsive: false }) => {
                since + self.spec.busy.saturating_mul(self.spec.missed)
            }
            // In steps of a busy interval, so that a supervisor that is stopped now is noticed. A
            // kill that was not carried out yet is repeated at the same pace.
            Some(Outstanding { since, unresponsive: true }) => {
                let step = if now < self.due { self.due } else { now + self.spec.busy };
                let kill_at = since + self.spec.kill;
                if now < kill_at { step.min(kill_at) } else { step }
            }
        };
        self.due
    }

    /// A supervisor that comes back more than a busy interval after its time was stopped, or the
    /// machine was. What the worker did meanwhile is not known, so its grace begins anew (P-13, P-15).
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
