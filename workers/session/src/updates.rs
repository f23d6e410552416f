//! What running calls print, on its way to those who follow the session.
//!
//! Flow control by credits: every update costs one, and the supervisor gives them back at its own pace.
//! Without one the call goes on printing; what is not said now is part of the next update.

use crate::link::Outbox;
use quackd_protocol::CallId;
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::worker::{FromWorker, ToolUpdate};
use quackd_tools::{Update, Watch};
use serde_json::value::to_raw_value;
use std::cell::Cell;
use std::rc::Rc;

/// Updates that may be sent now, by all calls together.
#[derive(Debug, Clone)]
pub(crate) struct Credits(Rc<Cell<u32>>);

impl Default for Credits {
    fn default() -> Self {
        Self(Rc::new(Cell::new(UPDATE_CREDITS)))
    }
}

impl Credits {
    /// The supervisor has taken `n` updates.
    pub(crate) fn add(&self, n: u32) {
        self.0.set(self.0.get().saturating_add(n).min(UPDATE_CREDITS));
    }
}

/// One call's updates.
#[derive(Debug)]
pub(crate) struct CallWatch {
    call_id: CallId,
    outbox: Outbox,
    credits: Credits,
}

impl CallWatch {
    pub(crate) fn new(call_id: CallId, outbox: Outbox, credits: Credits) -> Self {
        Self { call_id, outbox, credits }
    }
}

impl Watch for CallWatch {
    fn is_ready(&self) -> bool {
        0 < self.credits.0.get() && self.outbox.has_room()
    }

    fn show(&self, update: Update) {
        if let Some(update) = frame(&self.call_id, update) {
            self.credits.0.set(self.credits.0.get().saturating_sub(1));
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
        partial: to_raw_value(&partial).ok()?,
        total_bytes,
        omitted_bytes,
    })
}
