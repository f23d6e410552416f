//! The only connection to the internet: web searches and requests to model providers, to configured endpoints only, and
//! remote control of other daemons ([`RemoteAddress`]), for the command line.
//!
//! Contains the endpoints, the keys, the limits of concurrent requests, and the thread with the connections. The
//! supervisor calls it for a worker. A worker sees no key. Workers are not trusted, so this crate checks each query and
//! each request again. [`models`] finds the models and their keys.
//!
//! The thread and the clients start with the first task, so that a daemon without one pays nothing.

mod endpoint;
mod error;
mod key;
pub mod models;
mod remote_control;
mod requests;

mod body;
mod error_text;
mod http;
mod settings;
mod thread;

pub use error::EgressError;
pub use key::Key;
pub use remote_control::{RemoteAddress, RemoteControlError};
pub use requests::{
    ListedModel, MODEL_IDLE_TIMEOUT, ModelEndpoints, Route, RouteError, RouteSettings,
};

use crate::endpoint::Endpoint;
use crate::requests::{ListTask, MAX_MODEL_STREAMS, ModelTask, failure, not_sent};
use crate::settings::{Settings, failed};
use crate::thread::{SearchTask, Task};
use quackd_protocol::limits::{MAX_WEB_SEARCHES, WEB_SEARCH_TIMEOUT};
use quackd_protocol::model::{
    MODEL_PIECES, ModelFailure, ModelFailureKind, ModelPart, ModelRequest,
};
use quackd_protocol::worker::{WebOutcome, WebSearch};
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

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

/// Runs web searches and model requests. One instance for the whole daemon.
///
/// Dropping it stops its thread and cancels everything that runs.
#[derive(Debug)]
pub struct Egress {
    settings: Option<Arc<Settings>>,
    /// One permit per search, held from its admission until all of its resources are released.
    slots: Arc<Semaphore>,
    /// Like `slots`, for model requests.
    model_slots: Arc<Semaphore>,
    endpoints: watch::Sender<Arc<ModelEndpoints>>,
    /// Reason why the certificates of the machine must not be read.
    distrust: watch::Sender<Option<String>>,
    thread: OnceLock<mpsc::Sender<Task>>,
}

impl Egress {
    /// Checks the configuration of web searches. Opens nothing and starts nothing.
    ///
    /// # Errors
    /// The endpoint is not a URL, or must not receive a key. Checked even without a key.
    pub fn start(config: EgressConfig) -> Result<Self, EgressError> {
        let endpoint = Endpoint::parse(&config.endpoint)?;
        let timeout = config.timeout;
        let settings = config.key.map(|key| Arc::new(Settings { endpoint, key, timeout }));
        Ok(Self {
            settings,
            slots: Arc::new(Semaphore::new(MAX_WEB_SEARCHES)),
            model_slots: Arc::new(Semaphore::new(MAX_MODEL_STREAMS)),
            endpoints: watch::Sender::default(),
            distrust: watch::Sender::default(),
            thread: OnceLock::new(),
        })
    }

    /// Returns true if the thread runs. It starts with the first search or request.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.get().is_some()
    }

    /// Searches the web. May be called from any runtime.
    ///
    /// Returns within the timeout. Dropping the future cancels the search and closes its connection. The slot is
    /// released soon after.
    pub async fn web_search(&self, search: WebSearch) -> WebOutcome {
        let Some(settings) = self.settings.clone() else { return WebOutcome::NoKey };

        let body = match body::of(&search) {
            Ok(body) => body,
            Err(refusal) => return failed(refusal),
        };

        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { return WebOutcome::Busy };
        let tasks = match self.tasks() {
            Ok(tasks) => tasks,
            Err(error) => return failed(format_args!("no thread for it: {error}")),
        };

        let (answer, answered) = oneshot::channel();
        if tasks.try_send(Task::Search(SearchTask { settings, body, answer, slot })).is_err() {
            return WebOutcome::Busy;
        }
        answered.await.unwrap_or_else(|_| failed("the daemon is shutting down"))
    }

    /// Reads no certificates from now on: encrypted requests fail with `reason`, except on open connections. For
    /// variables that name certificates that commands of sessions could change.
    pub fn distrust_certificates(&self, reason: String) {
        self.distrust.send_replace(Some(reason));
    }

    /// Replaces the endpoints of model requests. Running requests go on.
    pub fn set_models(&self, endpoints: ModelEndpoints) {
        self.endpoints.send_replace(Arc::new(endpoints));
    }

    /// Sends a request to a model. May be called from any runtime, and does not block.
    ///
    /// Returns the parts of the answer, of which [`MODEL_PIECES`] are read ahead: a slow reader slows the provider down.
    /// The last part is [`ModelPart::Done`] or [`ModelPart::Failed`]. If none of them came, the daemon is shutting down.
    /// Dropping the receiver closes the connection.
    #[must_use]
    pub fn model(&self, request: ModelRequest) -> mpsc::Receiver<ModelPart> {
        // The endpoints at the time of the request: a later change does not affect it.
        let endpoints = Arc::clone(&self.endpoints.borrow());

        let sent = endpoints.admit(&request).and_then(|route| {
            let slot = self.model_slot()?;
            let (parts, receiver) = mpsc::channel(MODEL_PIECES);
            let idle = endpoints.idle;
            let task = ModelTask { route, request, idle, parts, slot };
            self.begin(Task::Model(Box::new(task)))?;
            Ok(receiver)
        });
        sent.unwrap_or_else(not_sent)
    }

    /// Asks a provider for its models: at most [`quackd_protocol::model::MAX_MODELS`], within 10 s. `show`: a model of
    /// Ollama whose settings are wanted too.
    ///
    /// # Errors
    /// The provider is not configured, or has no such list.
    pub async fn list_models(
        &self,
        provider: &str,
        show: Option<String>,
    ) -> Result<Vec<ListedModel>, ModelFailure> {
        let route = self.endpoints.borrow().route(provider, None)?;
        let slot = self.model_slot()?;
        let (answer, answered) = oneshot::channel();
        self.begin(Task::List(ListTask { route, show, answer, slot }))?;
        answered.await.unwrap_or_else(|_| {
            Err(failure(ModelFailureKind::NotConnected, "the daemon is shutting down"))
        })
    }

    fn model_slot(&self) -> Result<tokio::sync::OwnedSemaphorePermit, ModelFailure> {
        Arc::clone(&self.model_slots).try_acquire_owned().map_err(|_none| {
            let text = format!("{MAX_MODEL_STREAMS} model requests are already running");
            failure(ModelFailureKind::Busy, text)
        })
    }

    fn begin(&self, task: Task) -> Result<(), ModelFailure> {
        let tasks = self.tasks().map_err(|error| {
            failure(ModelFailureKind::NotConnected, format!("no thread for it: {error}"))
        })?;
        tasks.try_send(task).map_err(|_full| failure(ModelFailureKind::Busy, "too many requests"))
    }

    /// Returns the queue of the thread, and starts the thread if necessary.
    fn tasks(&self) -> io::Result<&mpsc::Sender<Task>> {
        if let Some(tasks) = self.thread.get() {
            return Ok(tasks);
        }
        // If another caller starts one at the same time, the other thread exits, because its only sender is dropped.
        let tasks = thread::start(self.distrust.subscribe())?;
        Ok(self.thread.get_or_init(|| tasks))
    }
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
