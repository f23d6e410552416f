//! Requests to models and tool calls of quackd's own agent that have no answer yet. `work.rs` begins and ends them.

use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Requests and calls whose answers the agent's process waits for.
#[derive(Debug, Default)]
pub(in crate::session::agent) struct NativeWork {
    pub(super) requests: HashMap<u64, OpenRequest>,
    pub(super) calls: HashMap<u64, CancellationToken>,
    /// Requests since the last message of a client.
    pub(super) n_requests: u32,
}

/// A request to a model.
#[derive(Debug)]
pub(super) struct OpenRequest {
    /// Has a permit for each piece that may be sent to the agent.
    pub(super) credits: Rc<Semaphore>,
    pub(super) cancel: CancellationToken,
}

impl NativeWork {
    /// Cancels a request. Ignores a request that has ended: the agent may not have received its end yet.
    pub(in crate::session::agent) fn cancel_request(&mut self, number: u64) {
        if let Some(request) = self.requests.remove(&number) {
            request.cancel.cancel();
        }
    }

    /// Cancels a call. Ignores a call that has ended.
    pub(in crate::session::agent) fn cancel_call(&mut self, number: u64) {
        if let Some(cancel) = self.calls.get(&number) {
            cancel.cancel();
        }
    }

    /// Allows the requests for one more message of a client.
    pub(in crate::session::agent) fn refill(&mut self) {
        self.n_requests = 0;
    }

    /// Cancels all requests and calls, because the process has exited.
    pub(in crate::session::agent) fn end(&mut self) {
        self.refill();
        self.requests.drain().for_each(|(_, request)| request.cancel.cancel());
        self.calls.drain().for_each(|(_, cancel)| cancel.cancel());
    }
}
