//! Asks a provider for its models: one GET request of bounded time and size.

use super::{Route, failure};
use crate::error_text::reason;
use quackd_protocol::model::{MAX_MODELS, ModelFailure, ModelFailureKind};
use reqwest::Client;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

/// Timeout of the whole request.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of the answer. Lists of large providers have about 1 MiB.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;

/// Longest id of a model, in bytes.
const MAX_ID_BYTES: usize = 256;

/// One request for a list in flight.
#[derive(Debug)]
pub(crate) struct ListTask {
    pub(crate) route: Arc<Route>,
    /// Closed by the caller when it no longer needs the result.
    pub(crate) answer: oneshot::Sender<Result<Vec<String>, ModelFailure>>,
    /// Held until all resources of the request are released.
    pub(crate) slot: OwnedSemaphorePermit,
}

impl ListTask {
    /// Runs the request until the result, the timeout, or the cancellation by the caller.
    pub(crate) async fn run(self, client: Client) {
        let Self { route, mut answer, slot } = self;
        let list = tokio::select! {
            list = timeout(LIST_TIMEOUT, list(&client, &route)) => list.unwrap_or_else(|_late| {
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
}

async fn list(client: &Client, route: &Route) -> Result<Vec<String>, ModelFailure> {
    let headers = route.headers(route.api(), &[]);
    let kind = |error: &reqwest::Error| match error.is_connect() {
        true => ModelFailureKind::NotConnected,
        false => ModelFailureKind::Broken,
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
    let list: List = serde_json::from_slice(&body)
        .map_err(|_error| broken("the answer is not a list of models"))?;
    let is_sound =
        |id: &String| !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.contains(char::is_control);
    let entries = list.data.or(list.models);
    let entries = entries.ok_or_else(|| broken("the answer is not a list of models"))?;
    let ids = entries.into_iter().filter_map(|it| it.id.or(it.name));
    Ok(ids.filter(is_sound).take(MAX_MODELS).collect())
}

fn failed(route: &Route, kind: ModelFailureKind, text: &str) -> ModelFailure {
    failure(kind, format!("{}: {text}", route.host()))
}
