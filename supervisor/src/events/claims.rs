//! Sessions that a client has claimed for itself.

use quackd_protocol::SessionId;
use quackd_protocol::limits::MAX_CLIENT_CLAIMS;
use std::cell::RefCell;
use std::collections::HashMap;

/// The claimed sessions of one client, each with whether its background jobs continue when the client disconnects. At
/// most [`MAX_CLIENT_CLAIMS`].
#[derive(Debug, Default)]
pub(crate) struct Claims(RefCell<HashMap<SessionId, bool>>);

impl Claims {
    pub(crate) fn contains(&self, session: &SessionId) -> bool {
        self.0.borrow().contains_key(session)
    }

    pub(crate) fn is_full(&self) -> bool {
        MAX_CLIENT_CLAIMS <= self.0.borrow().len()
    }

    /// Claims a session, or changes a claim.
    pub(crate) fn set(&self, session: SessionId, keep_jobs: bool) {
        self.0.borrow_mut().insert(session, keep_jobs);
    }

    /// Removes the claims of all other sessions, which were deleted.
    pub(crate) fn retain<'a>(&self, existing: impl Iterator<Item = &'a SessionId>) {
        let mut claims = self.0.borrow_mut();
        *claims = existing.filter_map(|id| claims.remove_entry(id)).collect();
    }

    /// Returns the claimed sessions, in no order.
    pub(crate) fn all(&self) -> Vec<SessionId> {
        self.0.borrow().keys().cloned().collect()
    }

    /// Returns the sessions whose background jobs end when the client disconnects.
    pub(crate) fn ending_jobs(&self) -> Vec<SessionId> {
        let claims = self.0.borrow();
        claims.iter().filter(|(_, keep_jobs)| !**keep_jobs).map(|(id, _)| id.clone()).collect()
    }
}
