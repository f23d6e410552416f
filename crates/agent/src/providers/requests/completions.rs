//! Requests of OpenAI chat completions.

use super::parts::{RequestOptions, SCHEMA_NAME, data_url, has_image, is_strict, text_of};
use crate::providers::history::{Part, Said, Turn};
use crate::providers::models::{Quirks, ThinkingFormat, lowest_effort, needs_signatures};
use crate::providers::streams::REASONING_FIELDS;
use quackd_protocol::model::{ModelInfo, ThinkingLevel};
use serde_json::{Map, Value, json};

/// The signature that Google accepts for a call that another model made
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn body(
    model: &ModelInfo,
    turns: &[Turn<'_>],
    options: &RequestOptions<'_>,
    max_tokens: u64,
) -> Value {
    let quirks = Quirks::of(model);
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));

    set("model", json!(model.id));
    set("messages", messages(model, turns, options, quirks));
    set("stream", json!(true));

    if quirks.usage_in_stream {
        set("stream_options", json!({"include_usage": true}));
    }

    // Otherwise OpenAI keeps the conversation.
    if quirks.store {
        set("store", json!(false));
    }

    let limit = if quirks.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    set(limit, json!(max_tokens));

    if !options.tools.is_empty() {
        let tool = |tool: &super::ToolSpec| {
            json!({"type": "function", "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }})
        };
        set("tools", options.tools.iter().map(tool).collect());
    }

    if let Some(schema) = options.schema {
        let strict = is_strict(schema);
        let schema = json!({"name": SCHEMA_NAME, "schema": schema, "strict": strict});
        set("response_format", json!({"type": "json_schema", "json_schema": schema}));
    }

    if model.reasoning {
        thinking(&mut body, model, options.thinking, quirks);
    }
    Value::Object(body)
}

/// Switches the thinking of a model that reasons, in the words of its server.
fn thinking(
    body: &mut Map<String, Value>,
    model: &ModelInfo,
    level: ThinkingLevel,
    quirks: Quirks,
) {
    let is_on = level != ThinkingLevel::Off;
    let mut set = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    let kind = if is_on { "enabled" } else { "disabled" };

    match quirks.thinking_format {
        ThinkingFormat::Zai | ThinkingFormat::DeepSeek => set("thinking", json!({"type": kind})),
        ThinkingFormat::Together => set("reasoning", json!({"enabled": is_on})),
        ThinkingFormat::OpenRouter => {
            set("reasoning", json!({"effort": if is_on { level.name() } else { "none" }}));
        }
        ThinkingFormat::Qwen => set("enable_thinking", json!(is_on)),
        ThinkingFormat::QwenTemplate => {
            set("chat_template_kwargs", json!({"enable_thinking": is_on}));
        }
        // Only OpenAI's own models are known to accept the lowest effort.
        ThinkingFormat::OpenAi if !is_on => {
            if let Some(effort) = lowest_effort(model).filter(|_| quirks.is_openai) {
                set("reasoning_effort", json!(effort));
            }
        }
        ThinkingFormat::OpenAi => {}
    }

    let takes_effort = matches!(
        quirks.thinking_format,
        ThinkingFormat::OpenAi | ThinkingFormat::DeepSeek | ThinkingFormat::Together
    );
    if is_on && takes_effort && quirks.reasoning_effort {
        set("reasoning_effort", json!(level.name()));
    }
}

fn messages(
    model: &ModelInfo,
    turns: &[Turn<'_>],
    options: &RequestOptions<'_>,
    quirks: Quirks,
) -> Value {
    let mut messages = Vec::new();
    if !options.system.trim().is_empty() {
        let is_developer = model.reasoning && quirks.developer_role;
        let role = if is_developer { "developer" } else { "system" };
        messages.push(json!({"role": role, "content": options.system}));
    }

    // Results cannot have images, so that they follow in a message of the user.
    let mut images: Vec<Part<'_>> = Vec::new();

    let mut turns = turns.iter().peekable();
    while let Some(turn) = turns.next() {
        match turn {
            Turn::User(parts) => {
                images.extend(parts.iter().cloned());
                messages.push(user(&std::mem::take(&mut images)));
            }
            Turn::Assistant(said) => messages.push(assistant(said, quirks, model)),
            Turn::ToolResult { call_id, name, parts, .. } => {
                let text = match text_of(parts) {
                    text if !text.is_empty() => text,
                    _ if has_image(parts) => "(see the image below)".to_owned(),
                    _ => "(no output)".to_owned(),
                };
                let mut message = json!({"role": "tool", "tool_call_id": call_id, "content": text});

                if quirks.tool_result_name
                    && let Some(message) = message.as_object_mut()
                {
                    message.insert("name".to_owned(), json!(name));
                }
                messages.push(message);
                if has_image(parts) {
                    images.push(Part::Text(format!("Image from the tool {name}:").into()));
                    let is_image = |part: &&Part<'_>| matches!(part, Part::Image { .. });
                    images.extend(parts.iter().filter(is_image).cloned());
                }

                let next = turns.peek();
                // The results of one message follow directly after each other.
                if matches!(next, Some(Turn::ToolResult { .. })) {
                    continue;
                }

                let has_user = !images.is_empty() || matches!(next, Some(Turn::User(_)));
                if quirks.assistant_after_tool_result && has_user {
                    let text = "I have received the results of the tools.";
                    messages.push(json!({"role": "assistant", "content": text}));
                }
                if !images.is_empty() && !matches!(next, Some(Turn::User(_))) {
                    messages.push(user(&std::mem::take(&mut images)));
                }
            }
        }
    }

    if quirks.cache_marks {
        mark_last_text(&mut messages);
    }
    Value::Array(messages)
}

/// Returns a message of the user. Its content is a string, which every server accepts, unless it
/// has images.
fn user(parts: &[Part<'_>]) -> Value {
    if !has_image(parts) {
        return json!({"role": "user", "content": text_of(parts)});
    }

    let part = |part: &Part<'_>| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { data, mime_type } => {
            json!({"type": "image_url", "image_url": {"url": data_url(data, mime_type)}})
        }
    };
    json!({"role": "user", "content": parts.iter().map(part).collect::<Value>()})
}

fn assistant(said: &[Said<'_>], quirks: Quirks, model: &ModelInfo) -> Value {
    let (mut texts, mut calls, mut message) = (Vec::new(), Vec::new(), Map::new());
    for part in said {
        match part {
            Said::Text { text, .. } => texts.push(*text),
            // OpenRouter's details, which it wants back unchanged.
            Said::Thinking { signature, .. } if signature.starts_with('[') => {
                if let Ok(details @ Value::Array(_)) = serde_json::from_str(signature) {
                    message.insert("reasoning_details".to_owned(), details);
                }
            }
            Said::Thinking { text, signature, .. }
                if !quirks.thinking_as_text && REASONING_FIELDS.contains(signature) =>
            {
                let field = message.entry(*signature).or_insert_with(|| json!(""));
                let joined = match field.as_str() {
                    Some(before) if !before.is_empty() => format!("{before}\n{text}"),
                    _ => (*text).to_owned(),
                };
                *field = json!(joined);
            }
            Said::Thinking { text, .. } => texts.push(*text),
            Said::Call { id, name, arguments, signature, .. } => {
                let arguments = Value::Object((*arguments).clone()).to_string();
                let function = json!({"name": name, "arguments": arguments});
                let mut call = json!({"id": id, "type": "function", "function": function});
                // Only the first of several calls has a signature. One of another model has none.
                let replaced =
                    (calls.is_empty() && needs_signatures(model)).then_some(NO_SIGNATURE);
                if let (Some(call), Some(signature)) =
                    (call.as_object_mut(), signature.or(replaced))
                {
                    let google = json!({"google": {"thought_signature": signature}});
                    call.insert("extra_content".to_owned(), google);
                }
                calls.push(call);
            }
        }
    }

    texts.retain(|text| !text.trim().is_empty());
    let no_text = if quirks.assistant_after_tool_result { json!("") } else { Value::Null };
    let content = if texts.is_empty() { no_text } else { json!(texts.join("\n\n")) };

    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), content);
    if quirks.reasoning_content && model.reasoning && !calls.is_empty() {
        message.entry("reasoning_content").or_insert_with(|| json!(""));
    }

    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(message)
}

/// Marks the last text of the conversation as the end of what the provider may cache.
fn mark_last_text(messages: &mut [Value]) {
    for content in messages.iter_mut().rev().filter_map(|message| message.get_mut("content")) {
        let mark = json!({"type": "ephemeral"});

        match content {
            Value::String(text) => {
                *content = json!([{"type": "text", "text": text, "cache_control": mark}]);
                return;
            }
            Value::Array(parts) => {
                let is_text = |part: &&mut Value| part.get("type") == Some(&json!("text"));
                let part = parts.iter_mut().rev().find(is_text).and_then(Value::as_object_mut);
                if let Some(part) = part {
                    part.insert("cache_control".to_owned(), mark);
                    return;
                }
            }
            _ => {}
        }
    }
}
