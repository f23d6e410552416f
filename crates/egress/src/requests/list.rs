//! Asks a provider for its models: one GET request of bounded time and size.

use super::{Route, failure};
use crate::error_text::reason;
use quackd_protocol::foreign_text::first_unsafe;
use quackd_protocol::model::{MAX_MODELS, ModelFailure, ModelFailureKind};
use quackd_protocol::surrogates;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

/// Timeout of the whole request.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of the answer, in bytes. Lists of large providers have about 1 MiB.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;

/// Maximum length of a model's id, in bytes.
const MAX_ID_BYTES: usize = 256;

/// One request for a list in flight.
#[derive(Debug)]
pub(crate) struct ListTask {
    pub(crate) route: Arc<Route>,
    /// A model of Ollama whose settings are wanted too, because its list has no facts.
    pub(crate) show: Option<String>,
    /// Closed by the caller when it no longer needs the result.
    pub(crate) answer: oneshot::Sender<Result<Vec<ListedModel>, ModelFailure>>,
    /// Held until all resources of the request are released.
    pub(crate) slot: OwnedSemaphorePermit,
}

impl ListTask {
    /// Runs the request until the result, the timeout, or the cancellation by the caller.
    pub(crate) async fn run(self, client: Client) {
        let Self { route, show, mut answer, slot } = self;
        let listing = async {
            let mut models = list(&client, &route).await?;
            let shown = show.and_then(|id| models.iter_mut().find(|listed| listed.is_called(&id)));
            if let Some(model) = shown.filter(|listed| listed.window.is_none()) {
                model.window = shown_window(&client, &route, &model.id).await;
            }
            Ok(models)
        };

        let list = tokio::select! {
            list = timeout(LIST_TIMEOUT, listing) => list.unwrap_or_else(|_late| {
                let text = format!("no answer within {} s", LIST_TIMEOUT.as_secs());
                Err(failed(&route, ModelFailureKind::Idle, &text))
            }),
            () = answer.closed() => return,
        };

        drop(slot);
        // A caller that disconnected at this point no longer needs the result.
        answer.send(list).ok();
    }

    /// Reports that there is no client for the request.
    pub(crate) fn fail(self, text: String) {
        // The caller may be gone by now.
        self.answer.send(Err(failure(ModelFailureKind::NotConnected, text))).ok();
    }
}

/// OpenAI's and Anthropic's lists have `data`, Ollama's has `models`, and that of llama.cpp has both.
#[derive(Deserialize)]
struct List {
    data: Option<Vec<Entry>>,
    models: Option<Vec<Entry>>,
}

/// Some servers give an id and a name, others only one of them.
#[derive(Deserialize)]
struct Entry {
    id: Option<String>,
    name: Option<String>,
    #[serde(flatten)]
    facts: Map<String, Value>,
}

/// A model in the list of its provider, with the facts that the provider states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedModel {
    /// The provider's name of the model.
    pub id: String,
    /// Maximum number of tokens of input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Maximum number of tokens of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

impl ListedModel {
    /// Whether a request with this id gets the model. Ollama's list has the tag that it assumes.
    #[must_use]
    pub fn is_called(&self, id: &str) -> bool {
        self.id == id || self.id.strip_suffix(":latest") == Some(id)
    }

    /// Reads an entry. `None` without a usable id.
    fn read(entry: Entry) -> Option<Self> {
        // In this order: vLLM; llama.cpp with its setting; LM Studio; OpenRouter; Groq; Anthropic; Mistral.
        const WINDOWS: [&[&str]; 7] = [
            &["max_model_len"],
            &["meta", "n_ctx"],
            &["loaded_context_length"],
            &["context_length"],
            &["context_window"],
            &["max_input_tokens"],
            &["max_context_length"],
        ];
        const LIMITS: [&[&str]; 3] = [
            &["top_provider", "max_completion_tokens"],
            &["max_completion_tokens"],
            &["max_tokens"],
        ];

        let facts = Value::Object(entry.facts);
        let first = |paths: &[&[&str]]| {
            let at = |path: &&[&str]| {
                let value = path.iter().try_fold(&facts, |value, name| value.get(name))?;
                value.as_u64().filter(|tokens| (MIN_TOKENS..=MAX_TOKENS).contains(tokens))
            };
            paths.iter().find_map(at)
        };

        let (window, max_tokens) = (first(&WINDOWS), first(&LIMITS));
        let id = entry.id.or(entry.name)?;
        let is_sound = !id.is_empty() && id.len() <= MAX_ID_BYTES && first_unsafe(&id).is_none();
        is_sound.then_some(Self { id, window, max_tokens })
    }
}

/// Smallest and largest number of tokens that is believed.
const MIN_TOKENS: u64 = 256;
const MAX_TOKENS: u64 = 100_000_000;

/// Maximum size of an answer of Ollama, in bytes.
const MAX_SHOW_BYTES: usize = 1024 * 1024;

/// Asks Ollama for the window of a model: `num_ctx` of its settings, else the window with which it is loaded, else the
/// longest one of the model. Without the first two, the server decides by its memory when it loads the model
/// (<https://docs.ollama.com/context-length>).
async fn shown_window(client: &Client, route: &Route, id: &str) -> Option<u64> {
    let is_sound = |tokens: &u64| (MIN_TOKENS..=MAX_TOKENS).contains(tokens);

    // <https://docs.ollama.com/api-reference/show-model-details>
    let body = serde_json::json!({ "model": id }).to_string();
    let shown = ollama(route, client.post(route.ollama_url("show")).body(body)).await;

    let settings = shown.as_ref().and_then(|shown| shown.get("parameters")?.as_str());
    let mut settings = settings.unwrap_or_default().lines();
    let setting = settings.find_map(|line| line.trim().strip_prefix("num_ctx"));
    if let Some(tokens) = setting.and_then(|value| value.trim().parse().ok()).filter(is_sound) {
        return Some(tokens);
    }

    // <https://docs.ollama.com/api/ps>
    let loaded = ollama(route, client.get(route.ollama_url("ps"))).await;
    let loaded = loaded.as_ref().and_then(|loaded| loaded.get("models")?.as_array());
    let is_requested = |model: &&Value| {
        ["name", "model"].iter().any(|key| model.get(key).and_then(Value::as_str) == Some(id))
    };
    let model = loaded.into_iter().flatten().find(is_requested);
    let of_loaded = model.and_then(|model| model.get("context_length")?.as_u64());

    let facts = shown.as_ref().and_then(|shown| shown.get("model_info")?.as_object());
    let of_model = facts.into_iter().flatten().find(|(key, _)| key.ends_with(".context_length"));
    of_loaded.filter(is_sound).or_else(|| of_model?.1.as_u64().filter(is_sound))
}

/// Sends a request to Ollama's own API. `None` if it fails.
async fn ollama(route: &Route, request: reqwest::RequestBuilder) -> Option<Value> {
    let sent = request.headers(route.headers(route.api(), &[])).send().await;
    let mut response = sent.ok().filter(|response| response.status().is_success())?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if MAX_SHOW_BYTES < body.len() {
            return None;
        }
    }
    surrogates::parse(&body).ok()
}

async fn list(client: &Client, route: &Route) -> Result<Vec<ListedModel>, ModelFailure> {
    let headers = route.headers(route.api(), &[]);
    let kind = |error: &reqwest::Error| {
        if error.is_connect() { ModelFailureKind::NotConnected } else { ModelFailureKind::Broken }
    };
    let sent = client.get(route.models_url()).headers(headers).send().await;
    let mut response = sent.map_err(|error| failed(route, kind(&error), &reason(&error)))?;

    let status = response.status();
    if !status.is_success() {
        let text = format!("the list of models failed with status {}", status.as_u16());
        return Err(failed(route, ModelFailureKind::Refused, &text));
    }

    let broken = |text: &str| failed(route, ModelFailureKind::Broken, text);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken(&reason(&error)))? {
        body.extend_from_slice(&chunk);
        if MAX_LIST_BYTES < body.len() {
            return Err(broken("the list of models is too long"));
        }
    }

    let list: List =
        surrogates::parse(&body).map_err(|_error| broken("the answer is not a list of models"))?;
    let entries = list.data.or(list.models);
    let entries = entries.ok_or_else(|| broken("the answer is not a list of models"))?;
    Ok(entries.into_iter().filter_map(ListedModel::read).take(MAX_MODELS).collect())
}

fn failed(route: &Route, kind: ModelFailureKind, text: &str) -> ModelFailure {
    failure(kind, format!("{}: {text}", route.host()))
}
