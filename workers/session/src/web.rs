//! Web searches: a worker has no network and no key, so its supervisor asks for it.
//!
//! Every search belongs to a call in flight, and there is at most one per call. A call that ends without
//! its answer is forgotten.

use crate::link::Outbox;
use quackd_protocol::CallId;
use quackd_protocol::worker::{FromWorker, WebOutcome, WebSearch};
use quackd_tools::Web;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::oneshot;

/// Searches that are not answered yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Searches(Rc<RefCell<HashMap<CallId, oneshot::Sender<WebOutcome>>>>);

/// Takes a search off the table when its call is dropped.
struct Waiting {
    searches: Searches,
    call_id: CallId,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.searches.0.borrow_mut().remove(&self.call_id));
    }
}

impl Searches {
    /// The tools' way to the web.
    pub(crate) fn web(&self, outbox: Outbox) -> Web {
        let searches = self.clone();
        Web::new(move |call_id, search| searches.clone().search(outbox.clone(), call_id, search))
    }

    async fn search(self, outbox: Outbox, call_id: String, search: WebSearch) -> WebOutcome {
        let call_id = CallId(call_id);
        let (answer, answered) = oneshot::channel();
        self.0.borrow_mut().insert(call_id.clone(), answer);
        let waiting = Waiting { searches: self, call_id: call_id.clone() };
        outbox.send(&FromWorker::WebSearch { call_id, search }).await;
        let outcome = answered.await;
        drop(waiting);
        outcome.unwrap_or_else(|_| WebOutcome::Failed { reason: "the daemon is gone".to_owned() })
    }

    /// The supervisor has an answer.
    pub(crate) fn done(&self, call_id: &CallId, outcome: WebOutcome) {
        let answer = self.0.borrow_mut().remove(call_id);
        // The call may have ended meanwhile.
        if let Some(answer) = answer {
            answer.send(outcome).ok();
        }
    }
}
