//! The identity of a session, which its actors share.

use quackd_protocol::SessionId;
use std::cell::RefCell;
use std::rc::Rc;

/// Identity of one session, on the actors' thread.
#[derive(Debug)]
pub(crate) struct SessionIdentity {
    pub(crate) id: SessionId,
    /// Label when the actors started.
    pub(crate) label: String,
    /// Path of the workspace, `unknown` without one.
    pub(crate) workspace: String,
    /// Text that the engine's `create` printed. `None` if nothing was created for the session.
    pub(crate) created: Option<String>,
    name: RefCell<Rc<str>>,
}

impl SessionIdentity {
    pub(crate) fn new(
        id: SessionId,
        name: &str,
        label: String,
        workspace: String,
        created: Option<String>,
    ) -> Self {
        Self { id, label, workspace, created, name: RefCell::new(name.into()) }
    }

    /// Newest name that the agent's actor got from the registry.
    pub(crate) fn name(&self) -> Rc<str> {
        Rc::clone(&self.name.borrow())
    }

    pub(crate) fn set_name(&self, name: &str) {
        if *self.name() != *name {
            self.name.replace(name.into());
        }
    }
}
