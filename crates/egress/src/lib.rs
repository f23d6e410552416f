//! The only way from here to the internet: web searches, posted to one configured endpoint.
//!
//! Owns: the endpoint, the key, the number of searches at the same time, and the thread that talks.
//! Called by: the supervisor, for a worker that asked. A worker sees neither the key nor the endpoint, and is
//! not believed: what it asks is checked again here.
//!
//! Nothing of this exists before the first search, so that a daemon that never searches pays nothing.

mod endpoint;
mod key;

mod body;
mod exchange;
mod reason;
mod thread;

pub use key::Key;

use crate::endpoint::Endpoint;
use crate::thread::Job;
use quackd_protocol::limits::{MAX_WEB_SEARCHES, WEB_SEARCH_TIMEOUT};
use quackd_protocol::worker::{WebOutcome, WebSearch};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore, mpsc, oneshot};

/// The endpoint that is used if no other is configured.
pub const DEFAULT_ENDPOINT: &str = "https://api.exa.ai/search";

/// Where searches go, and with what.
#[derive(Debug)]
pub struct EgressConfig {
    /// The provider's URL: `https`, or `http` to this machine itself.
    pub endpoint: String,
    /// The key; without one every search is answered with [`WebOutcome::NoKey`].
    pub key: Option<Key>,
    /// How long a search may take in all.
    pub timeout: Duration,
}

impl EgressConfig {
    /// A configuration with the usual time limit, [`WEB_SEARCH_TIMEOUT`].
    #[must_use]
    pub fn new(endpoint: impl Into<String>, key: Option<Key>) -> Self {
        Self { endpoint: endpoint.into(), key, timeout: WEB_SEARCH_TIMEOUT }
    }
}

/// Why a configuration was refused. No text holds the key, or more of the endpoint than its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// The endpoint cannot be read.
    #[error("the endpoint of web_search is not a URL: {0}")]
    NotAUrl(url::ParseError),
    /// The endpoint has another scheme than http and https.
    #[error("the endpoint of web_search must be an https URL, not {0}")]
    NotHttps(String),
    /// Everybody on the way would read the key.
    #[error(
        "the endpoint of web_search must be https: plain http would send the key to {host} for everybody \
         to read"
    )]
    InTheClear {
        /// The host of the endpoint.
        host: String,
    },
    /// The key cannot be sent.
    #[error("the key of web_search holds characters that no HTTP header can carry")]
    UnusableKey,
}

/// What the thread needs to know.
#[derive(Debug)]
struct Settings {
    endpoint: Endpoint,
    key: Key,
    timeout: Duration,
}

/// The way to the internet. One for the whole daemon.
///
/// Dropping it ends its thread, and with it what still runs.
#[derive(Debug)]
pub struct Egress {
    settings: Option<Arc<Settings>>,
    /// One permit for each search, from its admission until nothing of it runs any more.
    slots: Arc<Semaphore>,
    thread: OnceCell<mpsc::Sender<Job>>,
}

impl Egress {
    /// Checks the configuration. Opens nothing and starts nothing.
    ///
    /// # Errors
    /// An endpoint that is no URL, or one to which a key must not be sent; also without a key.
    pub fn start(config: EgressConfig) -> Result<Self, EgressError> {
        let endpoint = Endpoint::parse(&config.endpoint)?;
        let timeout = config.timeout;
        let settings = config.key.map(|key| Arc::new(Settings { endpoint, key, timeout }));
        let slots = Arc::new(Semaphore::new(MAX_WEB_SEARCHES));
        Ok(Self { settings, slots, thread: OnceCell::new() })
    }

    /// Whether its thread runs: it begins with the first search.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.initialized()
    }

    /// Searches the web. May be called from any runtime.
    ///
    /// Answers within the time limit. Dropping the future ends the search and its connection; its place
    /// is free again a moment later.
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
        // There is room for as many jobs as there are slots.
        if jobs.try_send(Job { body, answer, slot }).is_err() {
            return WebOutcome::Busy;
        }
        answered.await.unwrap_or_else(|_| failed("the daemon is going down"))
    }
}

/// No answer came.
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
