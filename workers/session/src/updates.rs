//! Sends the output of running calls to clients that follow the session.
//!
//! Flow control by credits: every update costs one credit, and the supervisor returns credits at its own pace.
//! Without a credit, the call continues to print, and the next update contains the output. Concurrent calls share the
//! credits. No call updates more often than its share allows. When credits are scarce, the call that has waited
//! longest is next, so a call that prints little stays visible among others that flood.

use crate::link::FrameSender;
use quackd_protocol::CallId;
use quackd_protocol::limits::{CREDIT_INTERVAL, UPDATE_CREDITS};
use quackd_protocol::worker::{FromWorker, ToolUpdate};
use quackd_tools::{Update, Watch};
use serde_json::value::to_raw_value;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Number of updates that all calls together may send now. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credits(Rc<CreditState>);

#[derive(Debug, Default)]
struct CreditState {
    /// Used credits that the supervisor has not returned, at most [`UPDATE_CREDITS`].
    used: Cell<u32>,
    /// Number of running calls.
    calls: Cell<u32>,
    /// Numbers of the calls that wait for a credit, longest wait first. At most one entry per call.
    waiting: RefCell<VecDeque<u64>>,
    /// Number of the next call.
    next: Cell<u64>,
}

impl Credits {
    /// Adds `n` credits, one for each update that the supervisor has taken.
    pub(crate) fn add(&self, n: u32) {
        self.0.used.update(|used| used.saturating_sub(n));
    }

    /// Adds a call. Returns its number.
    fn enter(&self) -> u64 {
        let CreditState { calls, next, .. } = &*self.0;
        calls.update(|calls| calls.saturating_add(1));
        next.replace(next.get().wrapping_add(1))
    }

    fn leave(&self, call: u64) {
        self.0.calls.update(|calls| calls.saturating_sub(1));
        self.0.waiting.borrow_mut().retain(|other| *other != call);
    }

    /// Returns true if a credit is left for this call after those that have waited longer. Adds the call to the
    /// queue.
    fn has_one_for(&self, call: u64) -> bool {
        let mut waiting = self.0.waiting.borrow_mut();
        let ahead = waiting.iter().position(|other| *other == call).unwrap_or_else(|| {
            waiting.push_back(call);
            waiting.len() - 1
        });
        let left = UPDATE_CREDITS - self.0.used.get();
        u32::try_from(ahead).is_ok_and(|ahead| ahead < left)
    }

    /// Uses one credit of the call.
    fn spend(&self, call: u64) {
        self.0.used.update(|used| (used + 1).min(UPDATE_CREDITS));
        // For its next credit, the call waits behind the others.
        self.0.waiting.borrow_mut().retain(|other| *other != call);
    }

    /// Returns the minimum interval between updates of one call, so that the credits suffice for all calls.
    fn share(&self) -> Duration {
        CREDIT_INTERVAL * self.0.calls.get() / UPDATE_CREDITS
    }
}

/// Sends the updates of one call.
#[derive(Debug)]
pub(crate) struct CallWatch {
    call_id: CallId,
    outbox: FrameSender,
    credits: Credits,
    /// Number of the call in `credits`.
    number: u64,
    /// Time of the last update.
    last: Cell<Option<Instant>>,
}

impl CallWatch {
    pub(crate) fn new(call_id: CallId, outbox: FrameSender, credits: Credits) -> Self {
        let number = credits.enter();
        Self { call_id, outbox, credits, number, last: Cell::new(None) }
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        self.credits.leave(self.number);
    }
}

impl Watch for CallWatch {
    fn is_ready(&self) -> bool {
        let is_due = self.last.get().is_none_or(|last| self.credits.share() <= last.elapsed());
        is_due && self.credits.has_one_for(self.number) && self.outbox.has_room()
    }

    fn show(&self, update: Update) {
        if let Some(update) = frame(&self.call_id, update) {
            self.credits.spend(self.number);
            self.last.set(Some(Instant::now()));
            self.outbox.offer(&FromWorker::ToolUpdate(update));
        }
    }
}

/// Builds the frame of an update. Always `Some`, because a string always has a JSON form.
pub(crate) fn frame(call_id: &CallId, update: Update) -> Option<ToolUpdate> {
    let Update { delta, partial, total_bytes, omitted_bytes } = update;
    Some(ToolUpdate {
        call_id: call_id.clone(),
        delta: to_raw_value(&delta).ok()?,
        partial: partial.map(|partial| to_raw_value(&partial)).transpose().ok()?,
        total_bytes,
        omitted_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_waited_for_longest_gets_the_next_credit() {
        let credits = Credits::default();
        let flood: Vec<u64> = (0..12).map(|_| credits.enter()).collect();
        let quiet = credits.enter();
        // The flooding calls have used all credits, and ask for the next ones before any other call.
        let mut sent = 0;
        for call in &flood {
            if credits.has_one_for(*call) {
                credits.spend(*call);
                sent += 1;
            }
        }
        assert_eq!(sent, UPDATE_CREDITS);
        assert!(flood.iter().all(|call| !credits.has_one_for(*call)));
        assert!(!credits.has_one_for(quiet), "there is none for anybody");
        // Credits return one at a time, and the flooding calls ask first each time. A call that got one waits behind
        // the others.
        let mut rounds = 0;
        while !credits.has_one_for(quiet) {
            for call in &flood {
                if credits.has_one_for(*call) {
                    credits.spend(*call);
                }
            }
            rounds += 1;
            assert!(rounds <= flood.len() + 1, "it never has its turn");
            credits.add(1);
        }
        credits.spend(quiet);
        assert!(!credits.0.waiting.borrow().contains(&quiet));
        // A finished call does not keep others waiting.
        flood.iter().for_each(|call| credits.leave(*call));
        credits.add(1);
        assert!(credits.has_one_for(quiet) && credits.0.calls.get() == 1);
    }
}
