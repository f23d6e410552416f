//! Web searches: a worker has no network and no key, so its supervisor performs them.
//!
//! Every search belongs to a running call, and each call has at most one. If a call ends first, its search is
//! dropped.

use crate::link::FrameSender;
use quackd_protocol::CallId;
use quackd_protocol::worker::{FromWorker, WebOutcome, WebSearch};
use quackd_tools::Web;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::oneshot;

/// Searches without a result yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Searches(Rc<RefCell<HashMap<CallId, oneshot::Sender<WebOutcome>>>>);

/// Removes a search when its call is dropped.
struct SearchGuard {
    searches: Searches,
    call_id: CallId,
}

impl Drop for SearchGuard {
    fn drop(&mut self) {
        self.searches.0.borrow_mut().remove(&self.call_id);
    }
}

impl Searches {
    /// Returns the interface for the tools.
    pub(crate) fn web(&self, outbox: FrameSender) -> Web {
        let searches = self.clone();
        Web::new(move |call_id, search| searches.clone().search(outbox.clone(), call_id, search))
    }

    async fn search(self, outbox: FrameSender, call_id: CallId, search: WebSearch) -> WebOutcome {
        let (answer, answered) = oneshot::channel();
        self.0.borrow_mut().insert(call_id.clone(), answer);
        // Removes the entry also if the call is dropped while it waits.
        let waiting = SearchGuard { searches: self, call_id: call_id.clone() };
        outbox.send(&FromWorker::WebSearch { call_id, search }).await;
        let outcome = answered.await;
        drop(waiting);
        outcome.unwrap_or_else(|_| WebOutcome::Failed { reason: "the daemon is gone".to_owned() })
    }

    /// Delivers the supervisor's result.
    pub(crate) fn done(&self, call_id: &CallId, outcome: WebOutcome) {
        let answer = self.0.borrow_mut().remove(call_id);
        if let Some(answer) = answer {
            // The call may have ended since it sent the search.
            answer.send(outcome).ok();
        }
    }
}
