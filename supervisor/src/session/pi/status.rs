//! State of a session's Pi that other modules read without asking its handle. Used only on the actors' thread, so no
//! update happens during a read.

use super::dialogs::Dialogs;
use quackd_protocol::client::PiInfo;
use serde_json::value::RawValue;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

/// State of one session's Pi. Its handle updates it.
#[derive(Debug)]
pub(crate) struct PiStatus {
    /// Whether it holds a slot: its process runs or is starting.
    pub(crate) is_running: Cell<bool>,
    /// Whether it was asked to stop and still runs. Its slot may already be in use again.
    pub(crate) is_leaving: Cell<bool>,
    /// Whether a process runs.
    pub(crate) is_alive: Cell<bool>,
    /// Whether a turn runs, or a caller or a dialog waits.
    pub(crate) is_busy: Cell<bool>,
    /// Time of the last activity.
    pub(crate) active: Cell<Instant>,
    /// Pi's last reported state. `None` without a process.
    pub(crate) state: RefCell<Option<Rc<RawValue>>>,
    /// Open dialogs.
    pub(crate) dialogs: RefCell<Dialogs>,
    /// Row for `ps`. `None` before the first process.
    pub(crate) info: RefCell<Option<PiInfo>>,
}

impl PiStatus {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            is_running: Cell::new(false),
            is_leaving: Cell::new(false),
            is_alive: Cell::new(false),
            is_busy: Cell::new(false),
            active: Cell::new(now),
            state: RefCell::default(),
            dialogs: RefCell::default(),
            info: RefCell::default(),
        }
    }
}
