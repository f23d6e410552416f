//! Web access of the tools. A worker has no network and asks the supervisor.

use quackd_protocol::CallId;
use quackd_protocol::worker::{WebOutcome, WebSearch};
use std::fmt;
use std::pin::Pin;

type Asking = Pin<Box<dyn Future<Output = WebOutcome>>>;

/// Client that searches the web for a call.
pub struct Web(Box<dyn Fn(CallId, WebSearch) -> Asking>);

impl Web {
    /// Wraps a function that takes the call's id and the search. It is called at most once for each call. The
    /// future is dropped if the call ends first.
    pub fn new<F>(ask: impl Fn(CallId, WebSearch) -> F + 'static) -> Self
    where
        F: Future<Output = WebOutcome> + 'static,
    {
        Self(Box::new(move |call_id, search| Box::pin(ask(call_id, search))))
    }

    pub(crate) async fn search(&self, call_id: &CallId, search: WebSearch) -> WebOutcome {
        (self.0)(call_id.clone(), search).await
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").finish_non_exhaustive()
    }
}
