//! Requests of OpenAI responses.

use super::parts::{RequestOptions, SCHEMA_NAME, data_url, has_image, is_strict, text_of};
use crate::providers::history::{Part, Said, Turn};
use crate::providers::models::{Quirks, lowest_effort};
use quackd_protocol::model::{ModelInfo, ThinkingLevel};
use serde_json::{Map, Value, json};

/// The API accepts no smaller limit of an answer.
const MIN_OUTPUT: u64 = 16;

/// Maximum length of a cache key and of an item's id, in characters.
const MAX_KEY: usize = 64;

pub(super) fn body(
    model: &ModelInfo,
    turns: &[Turn<'_>],
    options: &RequestOptions<'_>,
    max_tokens: u64,
) -> Value {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    set("model", json!(model.id));
    set("input", input(model, turns, options));
    set("stream", json!(true));
    // The session file has the conversation: the provider need not keep it.
    set("store", json!(false));
    set("max_output_tokens", json!(max_tokens.max(MIN_OUTPUT)));

    let cache_key: String = options.cache_key.chars().take(MAX_KEY).collect();
    if !cache_key.is_empty() {
        set("prompt_cache_key", json!(cache_key));
    }

    if !options.tools.is_empty() {
        let tool = |tool: &super::ToolSpec| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": false,
            })
        };
        set("tools", options.tools.iter().map(tool).collect());
    }

    if let Some(schema) = options.schema {
        let strict = is_strict(schema);
        let format =
            json!({"type": "json_schema", "name": SCHEMA_NAME, "schema": schema, "strict": strict});
        set("text", json!({"format": format}));
    }

    if model.reasoning {
        match options.thinking {
            ThinkingLevel::Off => {
                if let Some(effort) = lowest_effort(model) {
                    set("reasoning", json!({"effort": effort}));
                }
            }
            level => set("reasoning", json!({"effort": level.name(), "summary": "auto"})),
        }
        // Without it, a provider that stores nothing does not know its reasoning in the next request.
        set("include", json!(["reasoning.encrypted_content"]));
    }
    Value::Object(body)
}

fn input(model: &ModelInfo, turns: &[Turn<'_>], options: &RequestOptions<'_>) -> Value {
    let mut items = Vec::new();
    if !options.system.trim().is_empty() {
        let is_developer = model.reasoning && Quirks::of(model).developer_role;
        let role = if is_developer { "developer" } else { "system" };
        items.push(json!({"role": role, "content": options.system}));
    }

    for turn in turns {
        match turn {
            Turn::User(parts) => items.push(json!({"role": "user", "content": content(parts)})),
            Turn::Assistant(said) => items.extend(said_items(said)),
            Turn::ToolResult { call_id, parts, .. } => {
                let output = match text_of(parts) {
                    _ if has_image(parts) => content(parts),
                    text if text.is_empty() => json!("(no output)"),
                    text => json!(text),
                };
                items.push(json!({
                    "type": "function_call_output",
                    "call_id": call_id,
                    "output": output,
                }));
            }
        }
    }
    Value::Array(items)
}

fn content(parts: &[Part<'_>]) -> Value {
    let part = |part: &Part<'_>| match part {
        Part::Text(text) => json!({"type": "input_text", "text": text}),
        Part::Image { data, mime_type } => {
            json!({"type": "input_image", "detail": "auto", "image_url": data_url(data, mime_type)})
        }
    };
    parts.iter().map(part).collect()
}

/// Returns the items of a message of the model. Reasoning without its encrypted content is left
/// out, because a provider that stores nothing does not know its id. Then the items after it lose
/// theirs too, which would refer to it.
fn said_items(said: &[Said<'_>]) -> Vec<Value> {
    let mut items: Vec<Value> = said.iter().filter_map(item).collect();
    let is_reasoning = |item: &Value| item.get("type") == Some(&json!("reasoning"));
    let is_known = |item: &Value| {
        let content = item.get("encrypted_content").and_then(Value::as_str);
        !is_reasoning(item) || content.is_some_and(|content| !content.is_empty())
    };

    if !items.iter().all(is_known) {
        items.retain(is_known);
        items
            .iter_mut()
            .filter(|item| !is_reasoning(item))
            .filter_map(Value::as_object_mut)
            .for_each(|item| {
                item.remove("id");
            });
    }
    items
}

fn item(said: &Said<'_>) -> Option<Value> {
    Some(match said {
        Said::Text { text, signature } => message(text, signature.and_then(message_id)),
        Said::Thinking { text, signature, .. } => {
            let item = serde_json::from_str::<Value>(signature).ok();
            let is_reasoning = |item: &Value| item.get("type") == Some(&json!("reasoning"));
            match item.filter(is_reasoning) {
                Some(item) => item,
                None if text.trim().is_empty() => return None,
                None => message(text, None),
            }
        }
        Said::Call { id, item_id, name, arguments, .. } => {
            let arguments = Value::Object((*arguments).clone()).to_string();
            let mut item = json!({
                "type": "function_call",
                "call_id": id,
                "name": name,
                "arguments": arguments,
            });
            // The API refuses ids that another provider has made.
            let item_id = item_id.filter(|id| id.starts_with("fc") && id.len() <= MAX_KEY);
            insert_id(&mut item, item_id);
            item
        }
    })
}

fn message(text: &str, id: Option<String>) -> Value {
    let mut item = json!({
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    });
    insert_id(&mut item, id.as_deref());
    item
}

fn insert_id(item: &mut Value, id: Option<&str>) {
    if let (Some(item), Some(id)) = (item.as_object_mut(), id) {
        item.insert("id".to_owned(), json!(id));
    }
}

/// Reads the id of a message from its signature. Newer Pis have it in an object.
fn message_id(signature: &str) -> Option<String> {
    let id = match serde_json::from_str::<Value>(signature) {
        Ok(Value::Object(object)) => object.get("id").and_then(Value::as_str).map(str::to_owned),
        _ => Some(signature.to_owned()),
    };
    id.filter(|id| id.starts_with("msg") && id.len() <= MAX_KEY)
}
