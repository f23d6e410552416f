//! Bodies of requests to models: selects the API of the model, and the limit of the answer. Called
//! by the engine for answers and summaries.

mod anthropic;
mod completions;
mod parts;
mod responses;

pub use parts::{RequestOptions, ToolSpec};

use super::history;
use crate::message::Message;
use quackd_protocol::model::{ModelApi, ModelInfo};
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Borrow;

/// Limit of an answer in tokens, unless a request asks for another one.
const MAX_TOKENS: u64 = 32_000;

/// The body of a request, and values for the header `anthropic-beta`.
#[derive(Debug, Clone)]
pub struct ProviderRequest {
    /// The body. It may be longer than [`MAX_MODEL_REQUEST_BYTES`](quackd_protocol::model::MAX_MODEL_REQUEST_BYTES).
    pub body: Box<RawValue>,
    /// Names of features that are not generally available.
    pub betas: Vec<String>,
}

/// Returns the request that asks the model to continue these messages, in the form of its API.
#[must_use]
pub fn request<M: Borrow<Message>>(
    model: &ModelInfo,
    messages: &[M],
    options: &RequestOptions<'_>,
) -> ProviderRequest {
    let turns = history::prepare(messages.iter().map(M::borrow), model);
    let limit = options.max_tokens.unwrap_or(MAX_TOKENS).min(model.max_tokens).max(1);

    let (body, betas) = match model.api {
        ModelApi::OpenAiCompletions => {
            (completions::body(model, &turns, options, limit), Vec::new())
        }
        ModelApi::OpenAiResponses => (responses::body(model, &turns, options, limit), Vec::new()),
        ModelApi::AnthropicMessages => anthropic::body(model, &turns, options, limit),
    };
    // A value has only string keys and finite numbers, so that this cannot fail.
    let body = to_raw_value(&body).unwrap_or_else(|_| RawValue::NULL.to_owned());
    ProviderRequest { body, betas }
}
