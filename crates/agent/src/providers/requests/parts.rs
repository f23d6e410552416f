//! Input of a request, and parts that several bodies have.

use crate::providers::history::Part;
use quackd_protocol::model::ThinkingLevel;
use serde_json::Value;

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Unique in a request. At most 64 characters, which every provider accepts.
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
    /// Tools that the model may call. None for a summary.
    pub tools: &'a [ToolSpec],
    /// A level that the model has. See [`clamp`](crate::providers::clamp).
    pub thinking: ThinkingLevel,
    /// Most tokens of the answer. `None` means 32,000 or the model's limit, whichever is less.
    pub max_tokens: Option<u64>,
    /// Id of the session, by which a provider finds its cache.
    pub cache_key: &'a str,
    /// JSON schema of the answer. See [`has_schemas`](crate::providers::has_schemas).
    pub schema: Option<&'a Value>,
}

/// Name of the schema of an answer, which OpenAI requires.
pub(super) const SCHEMA_NAME: &str = "answer";

/// Whether OpenAI accepts the schema as strict: each object lists all its members as required, and allows no others.
pub(super) fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().all(is_strict),
        Value::Object(fields) => {
            let members = fields.get("properties").and_then(Value::as_object);
            let is_whole = members.is_none_or(|members| {
                let required = fields.get("required").and_then(Value::as_array);
                let has = |name: &String| {
                    required.is_some_and(|names| {
                        names.iter().any(|required_name| required_name == name.as_str())
                    })
                };

                fields.get("additionalProperties") == Some(&Value::Bool(false))
                    && members.keys().all(has)
            });
            is_whole && fields.values().all(is_strict)
        }
        _ => true,
    }
}

pub(super) fn data_url(data: &str, mime_type: &str) -> String {
    format!("data:{mime_type};base64,{data}")
}

/// Returns the texts of parts, joined.
pub(super) fn text_of(parts: &[Part<'_>]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

pub(super) fn has_image(parts: &[Part<'_>]) -> bool {
    parts.iter().any(|part| matches!(part, Part::Image { .. }))
}
