//! What others may know of a session's Pi without asking its handle: read on the actors' thread, where nothing
//! waits in between.

use super::dialogs::Dialogs;
use quackd_protocol::client::PiInfo;
use serde_json::value::RawValue;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

/// One session's. Written by its handle.
#[derive(Debug)]
pub(crate) struct View {
    /// It has a place among those that may run: a process is there, or is about to be.
    pub(crate) is_running: Cell<bool>,
    /// It was asked to end and has not ended yet: its place is somebody else's already.
    pub(crate) is_leaving: Cell<bool>,
    /// A process is there.
    pub(crate) is_alive: Cell<bool>,
    /// A turn is under way, or somebody waits.
    pub(crate) is_busy: Cell<bool>,
    /// When it last did something.
    pub(crate) active: Cell<Instant>,
    /// Pi's own state, as it last told it; `None` without a process.
    pub(crate) state: RefCell<Option<Rc<RawValue>>>,
    /// Questions that wait for a person.
    pub(crate) dialogs: RefCell<Dialogs>,
    /// For `ps`; `None` before the first process.
    pub(crate) info: RefCell<Option<PiInfo>>,
}

impl View {
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
