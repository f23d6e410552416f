//! Chunks of OpenAI chat completions, and whole completions.

use super::answer::{Answer, Kind};
use crate::message::{StopReason, Usage};
use crate::providers::json;
use quackd_protocol::model::ModelInfo;
use serde_json::Value;
use std::borrow::Cow;

/// Names of the field with the reasoning. A server uses one of them; the first that is not empty
/// counts.
pub(in crate::providers) const REASONING_FIELDS: [&str; 3] =
    ["reasoning_content", "reasoning", "reasoning_text"];

#[derive(Debug, Default)]
pub(super) struct Reader {
    calls: Vec<Call>,
}

/// A call, as later chunks refer to it.
#[derive(Debug)]
struct Call {
    /// Empty if the server has given none.
    id: String,
    index: Option<u64>,
    block: usize,
}

impl Reader {
    pub(super) fn read(&mut self, chunk: &Value, answer: &mut Answer, model: &ModelInfo) {
        answer.set_response_id(json::text(chunk, "/id"));
        // Some servers have the usage in the choice.
        for usage in ["/usage", "/choices/0/usage"] {
            if let Some(usage) = chunk.pointer(usage).filter(|usage| usage.is_object()) {
                answer.reported_cost = reported_cost(usage).or(answer.reported_cost);
                answer.set_usage(tokens(usage, answer.usage), model);
            }
        }

        let choices = chunk.get("choices").and_then(Value::as_array);
        let is_first = |choice: &&Value| json::count(choice, "/index").unwrap_or_default() == 0;
        let Some(choice) = choices.and_then(|choices| choices.iter().find(is_first)) else {
            return;
        };

        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) {
            self.read_delta(delta, answer);
        }

        let reason = json::text(choice, "/finish_reason");
        // Gateways pass on the words of Gemini (`STOP`), Bedrock and Cohere as they are.
        match reason.to_ascii_lowercase().replace('-', "_").as_str() {
            "" | "null" => {}
            "stop" | "end" | "end_turn" | "eos" | "stop_sequence" | "complete" | "completed"
            | "finish" | "normal" => {
                answer.stop.get_or_insert(StopReason::Stop);
            }
            "tool_calls" | "tool_call" | "tool_use" | "function_call" => {
                answer.stop.get_or_insert(StopReason::ToolUse);
            }
            "length" | "max_tokens" | "max_output_tokens" => {
                answer.stop.get_or_insert(StopReason::Length);
            }
            _ => answer.stopped(reason),
        }
    }

    fn read_delta(&mut self, delta: &Value, answer: &mut Answer) {
        let reasoning = REASONING_FIELDS.iter().find_map(|field| {
            let text = delta.get(field).and_then(Value::as_str)?;
            (!text.is_empty()).then_some((field, text))
        });

        if let Some((field, text)) = reasoning {
            let is_new = answer.open_of(Kind::Thinking).is_none();
            let block = answer.continue_with(Kind::Thinking, text);
            // The next request must have the reasoning in the same field.
            if let Some(block) = block.filter(|_| is_new) {
                answer.sign(block, field);
            }
        }

        let details = delta.get("reasoning_details").and_then(Value::as_array);
        details.into_iter().flatten().for_each(|detail| answer.add_detail(detail));

        match delta.get("content") {
            Some(Value::String(text)) => {
                answer.continue_with(Kind::Text, text);
            }
            Some(Value::Array(items)) => {
                for item in items {
                    answer.continue_with(Kind::Text, json::text(item, "/text"));
                }
            }
            _ => {}
        }

        let refusal = json::text(delta, "/refusal");
        answer.is_refusal |= !refusal.trim().is_empty();
        answer.continue_with(Kind::Text, refusal);

        let calls = delta.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            self.read_call(call, answer);
        }
    }

    fn read_call(&mut self, call: &Value, answer: &mut Answer) {
        let arguments = match call.pointer("/function/arguments") {
            Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
            Some(object @ Value::Object(_)) => Cow::Owned(object.to_string()),
            _ => Cow::Borrowed(""),
        };

        let signature = json::text(call, "/extra_content/google/thought_signature");
        if let Some(known) = self.repeated(call, &arguments, answer) {
            answer.sign(known, signature);
            return;
        }

        let Some(block) = self.block_of(call, answer) else { return };
        answer.name_call(block, json::text(call, "/function/name"));
        answer.sign(block, signature);
        answer.append(block, &arguments);
    }

    /// Returns the block of a complete call that this part names once more, without arguments or with all of them. Some
    /// servers repeat the name in every part, and end with an empty one.
    fn repeated(&self, call: &Value, arguments: &str, answer: &Answer) -> Option<usize> {
        let (id, name) = (json::text(call, "/id"), json::text(call, "/function/name"));
        let index = json::count(call, "/index");

        let is_same = |known: &&Call| {
            let has_id = !known.id.is_empty() && (id.is_empty() || known.id == id);
            let has_index = index.is_none() || known.index == index;
            let is_known = if id.is_empty() { index.is_some() } else { has_id };
            let is_repeated = arguments.trim().is_empty()
                || has_id && arguments.trim() == answer.text_of(known.block).trim();
            is_known && has_index && is_repeated && answer.has_arguments(known.block)
        };

        let last = self.calls.iter().rev().find(is_same)?;
        let known_name = answer.call_name(last.block);
        (name.is_empty() || name == known_name).then_some(last.block)
    }

    /// Returns the block of a part of a call. A new id starts a new call, also with an index that is in use, and so does
    /// another index with a known id. Parts without an id belong to the last call of their index. Some servers give all
    /// calls one id or none, and one index: a name then starts a new call if the last one has another name or is
    /// complete.
    fn block_of(&mut self, call: &Value, answer: &mut Answer) -> Option<usize> {
        let (id, name) = (json::text(call, "/id"), json::text(call, "/function/name"));
        let index = json::count(call, "/index");

        let continues = |known: &&mut Call| {
            let known_name = answer.call_name(known.block);
            name.is_empty()
                || known_name.is_empty()
                || known_name == name && !answer.has_arguments(known.block)
        };

        let mut calls = self.calls.iter_mut().rev();
        let known = match (id, index) {
            ("", Some(_)) => calls.find(|call| call.index == index).filter(|call| continues(call)),
            ("", None) => {
                let last = calls.next();
                last.filter(|call| name.is_empty() || answer.call_name(call.block).is_empty())
            }
            (id, Some(_)) => {
                let has_index = |it: &&mut Call| it.index == index || it.index.is_none();
                calls
                    .find(|it| (it.id == id || it.id.is_empty()) && has_index(it))
                    .filter(|it| continues(it))
            }
            (id, None) => calls.find(|it| it.id == id).filter(|it| continues(it)),
        };

        if let Some(known) = known {
            id.clone_into(&mut known.id);
            return Some(known.block);
        }

        let block = answer.start_call(id, name)?;
        self.calls.push(Call { id: id.to_owned(), index, block });
        Some(block)
    }
}

/// Returns the cost in US dollars, of providers that send it. OpenRouter has the cost of a key of
/// the user's own at another provider next to its own fee.
fn reported_cost(usage: &Value) -> Option<f64> {
    let number = |at: &str| usage.pointer(at).and_then(Value::as_f64);
    let is_own_key = usage.get("is_byok").and_then(Value::as_bool).unwrap_or_default();
    let upstream = number("/cost_details/upstream_inference_cost").filter(|_| is_own_key);
    let cost = number("/cost")? + upstream.unwrap_or_default();
    (cost.is_finite() && 0.0 <= cost).then_some(cost)
}

/// Returns the counts of tokens. Missing ones keep the earlier value.
fn tokens(usage: &Value, earlier: Usage) -> Usage {
    let count = |at: &str| json::count(usage, at);
    let cache_read = count("/prompt_tokens_details/cached_tokens")
        .or_else(|| count("/prompt_cache_hit_tokens"))
        .unwrap_or(earlier.cache_read);
    let cache_write =
        count("/prompt_tokens_details/cache_write_tokens").unwrap_or(earlier.cache_write);

    // The count of the prompt contains the cached tokens.
    let input = count("/prompt_tokens")
        .map_or(earlier.input, |all| all.saturating_sub(cache_read).saturating_sub(cache_write));

    Usage {
        input,
        output: count("/completion_tokens").unwrap_or(earlier.output),
        cache_read,
        cache_write,
        reasoning: count("/completion_tokens_details/reasoning_tokens").or(earlier.reasoning),
        ..earlier
    }
}
