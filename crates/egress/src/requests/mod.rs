//! Requests to model providers: the endpoints that may get one, and the checks before a request leaves.
//!
//! The agent worker is not trusted. It names a provider, and this module decides about address, key and headers.

mod exchange;
mod head;
mod list;
mod route;

use quackd_protocol::foreign_text::stripped_line;
pub use route::{Route, RouteError, RouteSettings};

pub(crate) use exchange::ModelTask;
pub(crate) use list::ListTask;
pub use list::ListedModel;

use quackd_protocol::model::{
    MAX_MODEL_REQUEST_BYTES, ModelFailure, ModelFailureKind, ModelPart, ModelRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Model requests at the same time, of all sessions.
pub(crate) const MAX_MODEL_STREAMS: usize = 64;

/// Default of the longest pause of a provider.
pub const MODEL_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Maximum number of values of `anthropic-beta`, and maximum length of one in bytes.
const MAX_BETAS: usize = 16;
const MAX_BETA_BYTES: usize = 100;

/// The endpoints that may get requests.
#[derive(Debug, Clone)]
pub struct ModelEndpoints {
    providers: BTreeMap<String, ProviderRoutes>,
    /// Maximum time without a byte of the provider.
    pub(crate) idle: Duration,
}

#[derive(Debug, Clone)]
struct ProviderRoutes {
    usual: Arc<Route>,
    models: BTreeMap<String, Arc<Route>>,
}

impl Default for ModelEndpoints {
    fn default() -> Self {
        Self::new(MODEL_IDLE_TIMEOUT)
    }
}

impl ModelEndpoints {
    /// Creates an empty list. Every request to it fails with [`ModelFailureKind::NotConfigured`].
    #[must_use]
    pub fn new(idle: Duration) -> Self {
        Self { providers: BTreeMap::new(), idle }
    }

    /// Adds a provider, with the routes of the models that do not use its usual one.
    pub fn insert(&mut self, provider: &str, usual: Route, models: Vec<(String, Route)>) {
        let models = models.into_iter().map(|(id, route)| (id, Arc::new(route))).collect();
        let routes = ProviderRoutes { usual: Arc::new(usual), models };
        self.providers.insert(provider.to_owned(), routes);
    }

    /// Returns the route of a provider, or the one of a model if it has its own.
    pub(crate) fn route(
        &self,
        provider: &str,
        model: Option<&str>,
    ) -> Result<Arc<Route>, ModelFailure> {
        let Some(routes) = self.providers.get(provider) else {
            let shown = stripped_line(provider, 60);
            let text = format!("the provider {shown} is not configured or has no key");
            return Err(failure(ModelFailureKind::NotConfigured, text));
        };

        let own = model.and_then(|model| routes.models.get(model));
        let route = own.unwrap_or(&routes.usual);
        match route.refusal() {
            Some(text) => Err(failure(ModelFailureKind::Refused, text)),
            None => Ok(Arc::clone(route)),
        }
    }

    /// Checks a request and returns its route.
    pub(crate) fn admit(&self, request: &ModelRequest) -> Result<Arc<Route>, ModelFailure> {
        if MAX_MODEL_REQUEST_BYTES < request.body.get().len() {
            let text = format!("the request is larger than {MAX_MODEL_REQUEST_BYTES} bytes");
            return Err(failure(ModelFailureKind::Refused, text));
        }

        // The values become a header.
        let is_word = |word: &String| {
            let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !word.is_empty() && word.len() <= MAX_BETA_BYTES && word.bytes().all(is_character)
        };
        if MAX_BETAS < request.betas.len() || !request.betas.iter().all(is_word) {
            let text = "the request has an invalid value of anthropic-beta";
            return Err(failure(ModelFailureKind::Refused, text));
        }

        self.route(&request.provider, Some(&request.model))
    }
}

/// Creates a failure.
pub(crate) fn failure(kind: ModelFailureKind, text: impl Into<String>) -> ModelFailure {
    ModelFailure { kind, text: text.into() }
}

/// Returns the parts of a request that was not sent.
pub(crate) fn not_sent(failure: ModelFailure) -> mpsc::Receiver<ModelPart> {
    let (parts, receiver) = mpsc::channel(1);
    // The channel is new, so it has room.
    parts.try_send(ModelPart::Failed(failure)).ok();
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::model::ModelApi;
    use serde_json::value::RawValue;

    fn request(provider: &str, body: String, betas: &[&str]) -> ModelRequest {
        ModelRequest {
            number: 1,
            provider: provider.to_owned(),
            api: ModelApi::OpenAiCompletions,
            model: "m".to_owned(),
            betas: betas.iter().map(|&beta| beta.to_owned()).collect(),
            body: RawValue::from_string(body).unwrap(),
        }
    }

    #[test]
    fn a_request_of_a_hostile_worker_is_refused() {
        let route = |base_url: &str| {
            let key = crate::Key::parse("k").unwrap();
            Route::new(RouteSettings { base_url: base_url.into(), key, ..RouteSettings::default() })
                .unwrap()
        };
        let mut endpoints = ModelEndpoints::default();
        endpoints.insert("p", route("https://a"), vec![("m".to_owned(), route("https://own"))]);
        endpoints.insert("lan", route("http://10.0.0.1"), Vec::new());
        let admit = |request: &ModelRequest| {
            endpoints.admit(request).map(|route| route.host().to_owned()).map_err(|it| it.kind)
        };
        assert_eq!(admit(&request("p", "{}".into(), &["a-1"])), Ok("own".to_owned()));
        let other = ModelRequest { model: "other".into(), ..request("p", "{}".into(), &[]) };
        assert_eq!(admit(&other), Ok("a".to_owned()));
        let long = format!("\"{}\"", "x".repeat(MAX_MODEL_REQUEST_BYTES));
        let many = ["a"; MAX_BETAS + 1];
        for (request, kind) in [
            (request("q", "{}".into(), &[]), ModelFailureKind::NotConfigured),
            (request("lan", "{}".into(), &[]), ModelFailureKind::Refused),
            (request("p", long, &[]), ModelFailureKind::Refused),
            (request("p", "{}".into(), &["a,b"]), ModelFailureKind::Refused),
            (request("p", "{}".into(), &["a\r\nb"]), ModelFailureKind::Refused),
            (request("p", "{}".into(), &[""]), ModelFailureKind::Refused),
            (request("p", "{}".into(), &many), ModelFailureKind::Refused),
        ] {
            assert_eq!(admit(&request), Err(kind));
        }
    }
}
