//! What running calls print, on its way to those who follow the session.
//!
//! Flow control by credits: every update costs one, and the supervisor gives them back at its own pace.
//! Without one the call goes on printing; what is not said now is part of the next update. Calls that run
//! side by side share them: none updates more often than its share allows, and when credits come slowly, who
//! has waited for longest is the next: a call that prints a little is seen beside others that flood.

use crate::link::Outbox;
use quackd_protocol::CallId;
use quackd_protocol::limits::{CREDIT_INTERVAL, UPDATE_CREDITS};
use quackd_protocol::worker::{FromWorker, ToolUpdate};
use quackd_tools::{Update, Watch};
use serde_json::value::to_raw_value;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Updates that may be sent now, by all calls together. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Credits(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    credits: Cell<u32>,
    /// Calls that may want some.
    calls: Cell<u32>,
    /// Those that want one now, by their number: the first one has waited for longest. At most one place for
    /// each call.
    waiting: RefCell<VecDeque<u64>>,
    /// The number of the next call.
    next: Cell<u64>,
}

impl Default for Credits {
    fn default() -> Self {
        Self(Rc::new(Shared {
            credits: Cell::new(UPDATE_CREDITS),
            calls: Cell::new(0),
            waiting: RefCell::default(),
            next: Cell::new(0),
        }))
    }
}

impl Credits {
    /// The supervisor has taken `n` updates.
    pub(crate) fn add(&self, n: u32) {
        let credits = &self.0.credits;
        credits.set(credits.get().saturating_add(n).min(UPDATE_CREDITS));
    }

    /// Another call begins. Gives its number.
    fn enter(&self) -> u64 {
        let Shared { calls, next, .. } = &*self.0;
        calls.set(calls.get().saturating_add(1));
        next.replace(next.get().wrapping_add(1))
    }

    fn leave(&self, call: u64) {
        let calls = &self.0.calls;
        calls.set(calls.get().saturating_sub(1));
        self.0.waiting.borrow_mut().retain(|other| *other != call);
    }

    /// Whether there is a credit for a call that wants one, beside those that have waited for longer. It has a
    /// place among them from now on.
    fn has_one_for(&self, call: u64) -> bool {
        let mut waiting = self.0.waiting.borrow_mut();
        let ahead = waiting.iter().position(|other| *other == call).unwrap_or_else(|| {
            waiting.push_back(call);
            waiting.len() - 1
        });
        u32::try_from(ahead).is_ok_and(|ahead| ahead < self.0.credits.get())
    }

    /// The call has used one.
    fn spend(&self, call: u64) {
        let credits = &self.0.credits;
        credits.set(credits.get().saturating_sub(1));
        self.0.waiting.borrow_mut().retain(|other| *other != call);
    }

    /// How often one call may update, so that there are enough for all.
    fn share(&self) -> Duration {
        CREDIT_INTERVAL * self.0.calls.get() / UPDATE_CREDITS
    }
}

/// One call's updates.
#[derive(Debug)]
pub(crate) struct CallWatch {
    call_id: CallId,
    outbox: Outbox,
    credits: Credits,
    /// Its number among the calls that share them.
    number: u64,
    /// When the last update was sent.
    last: Cell<Option<Instant>>,
}

impl CallWatch {
    pub(crate) fn new(call_id: CallId, outbox: Outbox, credits: Credits) -> Self {
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

/// The frame of an update. A string always has a JSON form.
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
        // The floods have taken all there were, and want the next ones before anybody else looks.
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
        // One at a time comes, and each time the floods look first: whoever had one waits behind the others.
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
        // Who ends keeps nobody waiting.
        flood.iter().for_each(|call| credits.leave(*call));
        credits.add(1);
        assert!(credits.has_one_for(quiet) && credits.0.calls.get() == 1);
    }
}
