//! Requests of Anthropic messages.

use super::parts::RequestOptions;
use crate::providers::history::{Part, Said, Turn};
use crate::providers::models;
use quackd_protocol::model::{ModelInfo, ThinkingLevel};
use serde_json::{Map, Value, json};

/// The API accepts no smaller budget of reasoning.
const MIN_BUDGET: u64 = 1024;

/// Streams arguments before they are complete. Otherwise a long argument has a silence before it.
const EARLY_ARGUMENTS: &str = "fine-grained-tool-streaming-2025-05-14";

/// Reasoning also between calls.
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// Returns the body, and the betas that it needs.
pub(super) fn body(
    model: &ModelInfo,
    turns: &[Turn<'_>],
    options: &RequestOptions<'_>,
    max_tokens: u64,
) -> (Value, Vec<String>) {
    let mut betas = Vec::new();
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    set("model", json!(model.id));
    set("messages", messages(turns));
    set("stream", json!(true));

    if !options.system.trim().is_empty() {
        // The cache also covers the tools, which come before.
        let text = json!({"type": "text", "text": options.system, "cache_control": mark()});
        set("system", json!([text]));
    }

    if !options.tools.is_empty() {
        let tool = |tool: &super::ToolSpec| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.parameters,
            })
        };
        set("tools", options.tools.iter().map(tool).collect());
        betas.push(EARLY_ARGUMENTS.to_owned());
    }

    // <https://platform.claude.com/docs/en/build-with-claude/structured-outputs>
    let mut output = Map::new();
    if let Some(schema) = options.schema {
        output.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
    }

    let mut max_tokens = max_tokens;
    if model.reasoning && options.thinking != ThinkingLevel::Off {
        if models::is_adaptive(model) {
            set("thinking", json!({"type": "adaptive"}));
            output.insert("effort".to_owned(), json!(effort(options.thinking)));
        } else {
            // The budget is a part of the limit, so that the limit grows by it where the model allows.
            let level_budget = budget(options.thinking);
            max_tokens = max_tokens.saturating_add(level_budget).min(model.max_tokens).max(1);
            // The answer itself needs a part of the limit.
            let budget = level_budget.min(max_tokens.saturating_sub(MIN_BUDGET));
            if budget >= MIN_BUDGET {
                set("thinking", json!({"type": "enabled", "budget_tokens": budget}));
                betas.push(INTERLEAVED.to_owned());
            }
        }
    }

    if !output.is_empty() {
        set("output_config", Value::Object(output));
    }
    set("max_tokens", json!(max_tokens));
    (Value::Object(body), betas)
}

/// Returns the budget of a level, in tokens of reasoning.
fn budget(level: ThinkingLevel) -> u64 {
    match level {
        ThinkingLevel::Off => 0,
        ThinkingLevel::Minimal => 1024,
        ThinkingLevel::Low => 2048,
        ThinkingLevel::Medium => 8192,
        ThinkingLevel::High | ThinkingLevel::Xhigh => 16_384,
    }
}

fn effort(level: ThinkingLevel) -> &'static str {
    match level {
        ThinkingLevel::Off | ThinkingLevel::Minimal | ThinkingLevel::Low => "low",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High => "high",
        ThinkingLevel::Xhigh => "max",
    }
}

/// Returns the mark that ends the part of a request that the provider keeps in its cache.
fn mark() -> Value {
    json!({"type": "ephemeral"})
}

fn messages(turns: &[Turn<'_>]) -> Value {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for turn in turns {
        let (role, blocks) = match turn {
            Turn::User(parts) => ("user", content(parts)),
            Turn::Assistant(said) => ("assistant", said.iter().map(block).collect()),
            Turn::ToolResult { call_id, parts, is_error, .. } => {
                let none = [Part::Text("(no output)".into())];
                let parts = if parts.is_empty() { &none[..] } else { parts };
                let result = json!({
                    "type": "tool_result",
                    "tool_use_id": call_id,
                    "content": content(parts),
                    "is_error": is_error,
                });
                ("user", vec![result])
            }
        };
        // All results of a message, and the words of the user after them, are one message.
        match messages.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            _ => messages.push((role, blocks)),
        }
    }

    // The next request begins with everything up to here.
    let last = messages.iter_mut().rev().find(|(role, _)| *role == "user");
    let last = last.and_then(|(_, blocks)| blocks.last_mut()?.as_object_mut());
    if let Some(block) = last {
        block.insert("cache_control".to_owned(), mark());
    }

    let message = |(role, blocks)| json!({"role": role, "content": Value::Array(blocks)});
    messages.into_iter().map(message).collect()
}

fn content(parts: &[Part<'_>]) -> Vec<Value> {
    let part = |part: &Part<'_>| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { data, mime_type } => json!({
            "type": "image",
            "source": {"type": "base64", "media_type": mime_type, "data": data},
        }),
    };
    parts.iter().map(part).collect()
}

fn block(said: &Said<'_>) -> Value {
    match said {
        Said::Text { text, .. } => json!({"type": "text", "text": text}),
        Said::Thinking { signature, is_redacted: true, .. } => {
            json!({"type": "redacted_thinking", "data": signature})
        }
        Said::Thinking { text, signature, .. } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        Said::Call { id, name, arguments, .. } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": arguments})
        }
    }
}
