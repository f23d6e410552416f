//! The only connection to the internet: web searches, posted to one configured endpoint.
//!
//! Contains the endpoint, the key, the limit of concurrent searches, and the thread with the connections. The
//! supervisor calls it for a worker. A worker sees neither the key nor the endpoint. Workers are not trusted, so this
//! crate checks each query again.
//!
//! The thread and the client start with the first search, so that a daemon that never searches pays nothing.

mod endpoint;
mod key;

mod body;
mod error_text;
mod http;
mod thread;

pub use key::Key;

use crate::endpoint::Endpoint;
use crate::thread::SearchTask;
use quackd_protocol::limits::{MAX_WEB_SEARCHES, WEB_SEARCH_TIMEOUT};
use quackd_protocol::worker::{WebOutcome, WebSearch};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore, mpsc, oneshot};

/// Default endpoint.
pub const DEFAULT_ENDPOINT: &str = "https://api.exa.ai/search";

/// Configuration of web searches.
#[derive(Debug)]
pub struct EgressConfig {
    /// The provider's URL: `https`, or `http` to this machine itself.
    pub endpoint: String,
    /// The key. Without one, every search returns [`WebOutcome::NoKey`].
    pub key: Option<Key>,
    /// Timeout of a whole search.
    pub timeout: Duration,
}

impl EgressConfig {
    /// Creates a configuration with the default timeout, [`WEB_SEARCH_TIMEOUT`].
    #[must_use]
    pub fn new(endpoint: impl Into<String>, key: Option<Key>) -> Self {
        Self { endpoint: endpoint.into(), key, timeout: WEB_SEARCH_TIMEOUT }
    }
}

/// Error of the configuration. No text contains the key, or more of the endpoint than its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// The endpoint is not a URL.
    #[error("the endpoint of web_search is not a URL: {0}")]
    NotAUrl(url::ParseError),
    /// The endpoint has another scheme than http and https.
    #[error("the endpoint of web_search must be an https URL, not {0}")]
    NotHttps(String),
    /// The connection would not be encrypted, so that the network could read the key.
    #[error(
        "the endpoint of web_search must be https: plain http would send the key to {host} unencrypted"
    )]
    InTheClear {
        /// Host of the endpoint.
        host: String,
    },
    /// An HTTP header cannot carry the key.
    #[error("the key of web_search holds characters that no HTTP header can carry")]
    UnusableKey,
}

/// Settings of the thread.
#[derive(Debug)]
struct Settings {
    endpoint: Endpoint,
    key: Key,
    timeout: Duration,
}

/// Runs web searches. One instance for the whole daemon.
///
/// Dropping it stops its thread and cancels the running searches.
#[derive(Debug)]
pub struct Egress {
    settings: Option<Arc<Settings>>,
    /// One permit per search, held from its admission until all of its resources are released.
    slots: Arc<Semaphore>,
    thread: OnceCell<mpsc::Sender<SearchTask>>,
}

impl Egress {
    /// Checks the configuration. Opens nothing and starts nothing.
    ///
    /// # Errors
    /// The endpoint is not a URL, or must not receive a key. Checked even without a key.
    pub fn start(config: EgressConfig) -> Result<Self, EgressError> {
        let endpoint = Endpoint::parse(&config.endpoint)?;
        let timeout = config.timeout;
        let settings = config.key.map(|key| Arc::new(Settings { endpoint, key, timeout }));
        let slots = Arc::new(Semaphore::new(MAX_WEB_SEARCHES));
        Ok(Self { settings, slots, thread: OnceCell::new() })
    }

    /// Returns true if the thread runs. It starts with the first search.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.initialized()
    }

    /// Searches the web. May be called from any runtime.
    ///
    /// Returns within the timeout. Dropping the future cancels the search and closes its connection. The slot is
    /// released soon after.
    pub async fn web_search(&self, search: WebSearch) -> WebOutcome {
        let Some(settings) = &self.settings else { return WebOutcome::NoKey };
        let body = match body::of(&search) {
            Ok(body) => body,
            Err(refusal) => return failed(refusal),
        };
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { return WebOutcome::Busy };
        let start = || async { thread::start(Arc::clone(settings)) };
        let jobs = match self.thread.get_or_try_init(start).await {
            Ok(jobs) => jobs,
            Err(error) => return failed(format_args!("no thread for it: {error}")),
        };
        let (answer, answered) = oneshot::channel();
        // The channel has as many entries as there are slots.
        if jobs.try_send(SearchTask { body, answer, slot }).is_err() {
            return WebOutcome::Busy;
        }
        answered.await.unwrap_or_else(|_| failed("the daemon is shutting down"))
    }
}

/// Creates the outcome of a failed search.
fn failed(reason: impl ToString) -> WebOutcome {
    WebOutcome::Failed { reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_started_before_a_search_that_can_be_made() {
        let search = |num_results| WebSearch {
            query: "rust".into(),
            num_results,
            include_text: false,
            include_domains: vec![],
            exclude_domains: vec![],
        };
        let start = |key: &str| {
            let key = Key::parse(key).unwrap();
            Egress::start(EgressConfig::new("http://127.0.0.1:1/", key)).unwrap()
        };
        let keyless = start("");
        assert_eq!(keyless.web_search(search(1)).await, WebOutcome::NoKey);
        assert!(!keyless.is_running());
        let egress = start("key");
        assert!(matches!(egress.web_search(search(0)).await, WebOutcome::Failed { .. }));
        assert!(!egress.is_running());
        drop(egress.web_search(search(1)).await);
        assert!(egress.is_running());
    }
}
