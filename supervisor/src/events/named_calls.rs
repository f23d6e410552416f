//! Calls to which a client gave an id, so that it can cancel each of them.

use super::call_input::InputSender;
use std::cell::RefCell;
use std::collections::HashMap;
use tokio_util::sync::CancellationToken;

/// The named calls of one client without an answer. Bounded by the requests that a client may have in flight.
#[derive(Debug, Default)]
pub(crate) struct NamedCalls(RefCell<HashMap<String, Named>>);

#[derive(Debug)]
struct Named {
    cancel: CancellationToken,
    /// Whether the call ends with its client.
    is_bound: bool,
    input: Option<InputSender>,
}

impl NamedCalls {
    /// Adds a call, and returns the token that cancels it. `None` if a running call has this name. A call that is streamed
    /// or has an input ends with its client.
    pub(crate) fn add(
        &self,
        name: &str,
        is_streamed: bool,
        input: Option<InputSender>,
    ) -> Option<CancellationToken> {
        let mut calls = self.0.borrow_mut();
        if calls.contains_key(name) {
            return None;
        }

        let cancel = CancellationToken::new();
        let is_bound = is_streamed || input.is_some();
        calls.insert(name.to_owned(), Named { cancel: cancel.clone(), is_bound, input });
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

    /// Returns the sender of the input of a call.
    pub(crate) fn input(&self, name: &str) -> Option<InputSender> {
        self.0.borrow().get(name)?.input.clone()
    }

    /// Cancels the streamed calls and those with an input, because their client has disconnected.
    pub(crate) fn end_streams(&self) {
        for call in self.0.borrow().values().filter(|call| call.is_bound) {
            call.cancel.cancel();
        }
    }
}
