//! Bodies of requests to models.

mod anthropic;
mod completions;
mod responses;

use super::history::{self, Part};
use crate::message::Message;
use quackd_protocol::model::{ModelApi, ModelInfo, ThinkingLevel};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Borrow;

/// Most tokens of an answer, unless a request asks for more.
const MAX_TOKENS: u64 = 32_000;

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Unique name.
    pub name: String,
    /// Purpose and use.
    pub description: String,
    /// JSON schema of the arguments, which are an object.
    pub parameters: Value,
}

/// Everything of a request except the model and the messages.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions<'a> {
    /// The system prompt. May be empty.
    pub system: &'a str,
    /// The tools.
    pub tools: &'a [ToolSpec],
    /// A level that the model has. See [`clamp`](super::clamp).
    pub thinking: ThinkingLevel,
    /// Most tokens of the answer. `None` means 32,000 or the model's limit, whichever is less.
    pub max_tokens: Option<u64>,
    /// Id of the session, by which a provider finds its cache.
    pub cache_key: &'a str,
    /// JSON schema of the answer. See [`has_schemas`](super::has_schemas).
    pub schema: Option<&'a Value>,
}

/// Name of the schema of an answer, which OpenAI requires.
const SCHEMA_NAME: &str = "answer";

/// Whether OpenAI accepts the schema as strict: each object lists all its members as required, and allows no others.
fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().all(is_strict),
        Value::Object(fields) => {
            let members = fields.get("properties").and_then(Value::as_object);
            let is_whole = members.is_none_or(|members| {
                let required = fields.get("required").and_then(Value::as_array);
                let has = |name: &String| {
                    required.is_some_and(|names| names.iter().any(|it| it == name.as_str()))
                };
                fields.get("additionalProperties") == Some(&Value::Bool(false))
                    && members.keys().all(has)
            });
            is_whole && fields.values().all(is_strict)
        }
        _ => true,
    }
}

/// The body of a request, and values for the header `anthropic-beta`.
#[derive(Debug, Clone)]
pub struct ProviderRequest {
    /// The body. It may be longer than [`MAX_MODEL_REQUEST_BYTES`](quackd_protocol::model::MAX_MODEL_REQUEST_BYTES).
    pub body: Box<RawValue>,
    /// Names of features that are not generally available.
    pub betas: Vec<String>,
}

/// Returns the request for these messages.
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

fn data_url(data: &str, mime_type: &str) -> String {
    format!("data:{mime_type};base64,{data}")
}

/// Returns the texts of parts, joined.
fn text_of(parts: &[Part<'_>]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

fn has_image(parts: &[Part<'_>]) -> bool {
    parts.iter().any(|part| matches!(part, Part::Image { .. }))
}
