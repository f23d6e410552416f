//! The last failure of an agent, for `doctor`.

use quackd_protocol::SessionId;
use quackd_protocol::agent::Engine;
use quackd_protocol::foreign_text::{one_line, stripped_line};
use std::cell::RefCell;

/// Maximum length of a recorded failure, in characters.
const MAX_FAILURE: usize = 400;

/// The last failure of an agent, until an agent of the same session succeeds. For `doctor`.
#[derive(Debug, Default)]
pub(crate) struct LastFailure(RefCell<Option<Failure>>);

/// Failure of a session's agent.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    session: SessionId,
    pub(crate) session_name: String,
    /// ISO 8601 UTC.
    pub(crate) at: String,
    pub(crate) why: String,
    engine: Engine,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "last failure, in {} at {}: {}", self.session_name, self.at, self.why)
    }
}

impl LastFailure {
    /// Records that a session's agent failed to start, or crashed.
    pub(super) fn note(&self, session: &SessionId, name: &str, engine: Engine, why: &str) {
        self.0.replace(Some(Failure {
            session: session.clone(),
            session_name: one_line(name),
            at: crate::clock::now_text(),
            why: stripped_line(why, MAX_FAILURE),
            engine,
        }));
    }

    /// Removes the failure, because the session's agent works or the session was deleted.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.0.borrow_mut().take_if(|failure| failure.session == *session);
    }

    /// Returns the failure if it was one of this agent.
    pub(crate) fn get(&self, engine: Engine) -> Option<Failure> {
        self.0.borrow().clone().filter(|failure| failure.engine == engine)
    }
}
