//! Calls to which a client gave an id, so that it can cancel each of them.

use std::cell::RefCell;
use std::collections::HashMap;
use tokio_util::sync::CancellationToken;

/// The named calls of one client without an answer. Bounded by the requests that a client may have in flight.
#[derive(Debug, Default)]
pub(crate) struct NamedCalls(RefCell<HashMap<String, Named>>);

#[derive(Debug)]
struct Named {
    cancel: CancellationToken,
    is_streamed: bool,
}

impl NamedCalls {
    /// Adds a call, and returns the token that cancels it. `None` if a running call has this name.
    pub(crate) fn add(&self, name: &str, is_streamed: bool) -> Option<CancellationToken> {
        let mut calls = self.0.borrow_mut();
        if calls.contains_key(name) {
            return None;
        }
        let cancel = CancellationToken::new();
        calls.insert(name.to_owned(), Named { cancel: cancel.clone(), is_streamed });
        Some(cancel)
    }

    /// Removes a call that was answered.
    pub(crate) fn remove(&self, name: &str) {
        self.0.borrow_mut().remove(name);
    }

    /// Cancels a call. Returns false if there is none with this name.
    pub(crate) fn cancel(&self, name: &str) -> bool {
        let calls = self.0.borrow();
        calls.get(name).inspect(|call| call.cancel.cancel()).is_some()
    }

    /// Cancels the streamed calls, because their client has disconnected.
    pub(crate) fn end_streams(&self) {
        for call in self.0.borrow().values().filter(|call| call.is_streamed) {
            call.cancel.cancel();
        }
    }
}
