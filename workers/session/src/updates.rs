//! What running calls print, on its way to those who follow the session.
//!
//! Flow control by credits: every update costs one, and the supervisor gives them back at its own pace.
//! Without one the call goes on printing; what is not said now is part of the next update. Calls that run
//! side by side share them: none updates more often than its share allows.

use crate::link::Outbox;
use quackd_protocol::CallId;
use quackd_protocol::limits::{CREDIT_INTERVAL, UPDATE_CREDITS};
use quackd_protocol::worker::{FromWorker, ToolUpdate};
use quackd_tools::{Update, Watch};
use serde_json::value::to_raw_value;
use std::cell::Cell;
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
}

impl Default for Credits {
    fn default() -> Self {
        Self(Rc::new(Shared { credits: Cell::new(UPDATE_CREDITS), calls: Cell::new(0) }))
    }
}

impl Credits {
    /// The supervisor has taken `n` updates.
    pub(crate) fn add(&self, n: u32) {
        let credits = &self.0.credits;
        credits.set(credits.get().saturating_add(n).min(UPDATE_CREDITS));
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
    /// When the last update was sent.
    last: Cell<Option<Instant>>,
}

impl CallWatch {
    pub(crate) fn new(call_id: CallId, outbox: Outbox, credits: Credits) -> Self {
        credits.0.calls.set(credits.0.calls.get().saturating_add(1));
        Self { call_id, outbox, credits, last: Cell::new(None) }
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        let calls = &self.credits.0.calls;
        calls.set(calls.get().saturating_sub(1));
    }
}

impl Watch for CallWatch {
    fn is_ready(&self) -> bool {
        let is_due = self.last.get().is_none_or(|last| self.credits.share() <= last.elapsed());
        is_due && 0 < self.credits.0.credits.get() && self.outbox.has_room()
    }

    fn show(&self, update: Update) {
        if let Some(update) = frame(&self.call_id, update) {
            let credits = &self.credits.0.credits;
            credits.set(credits.get().saturating_sub(1));
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
