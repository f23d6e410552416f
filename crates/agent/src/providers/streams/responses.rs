//! Events of OpenAI responses.

use super::answer::{Answer, Kind};
use crate::message::{StopReason, Usage};
use crate::providers::{errors, json};
use quackd_protocol::model::ModelInfo;
use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct Reader {
    items: Vec<Item>,
}

/// An item of the output that has a block.
#[derive(Debug)]
struct Item {
    output_index: Option<u64>,
    id: String,
    /// Empty if the item is no call.
    call_id: String,
    kind: Kind,
    block: usize,
}

impl Reader {
    /// Reads an event. Returns true if it is the last one.
    pub(super) fn read(
        &mut self,
        event: &str,
        value: &Value,
        answer: &mut Answer,
        model: &ModelInfo,
    ) -> bool {
        match event.strip_prefix("response.").unwrap_or_default() {
            "created" => answer.set_response_id(json::text(value, "/response/id")),
            "output_item.added" => {
                if let Some(item) = value.get("item") {
                    self.start(item, json::count(value, "/output_index"), answer);
                }
            }
            // The parts of a summary are paragraphs.
            "reasoning_summary_part.added"
                if json::count(value, "/summary_index").unwrap_or_default() > 0 =>
            {
                self.append(Kind::Thinking, value, "\n\n", answer);
            }
            "reasoning_summary_text.delta" | "reasoning_text.delta" => {
                self.append(Kind::Thinking, value, json::text(value, "/delta"), answer);
            }
            name @ ("output_text.delta" | "refusal.delta") => {
                answer.is_refusal |= name == "refusal.delta";
                self.append(Kind::Text, value, json::text(value, "/delta"), answer);
            }
            "function_call_arguments.delta" => {
                self.append(Kind::Call, value, json::text(value, "/delta"), answer);
            }
            "function_call_arguments.done" => {
                if let Some(block) = self.block_of(value) {
                    answer.settle(block, json::text(value, "/arguments"));
                }
            }
            "output_item.done" => {
                if let Some(item) = value.get("item") {
                    self.complete(item, json::count(value, "/output_index"), answer);
                }
            }
            status @ ("completed" | "incomplete" | "failed" | "cancelled") => {
                let response = value.get("response").unwrap_or(value);
                self.end(status, response, answer, model);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Returns the block of the item that an event refers to.
    fn block_of(&self, value: &Value) -> Option<usize> {
        let index = json::count(value, "/output_index");
        let id = json::text(value, "/item_id");
        let is_meant = |item: &&Item| match index {
            Some(_) => item.output_index == index,
            None => !id.is_empty() && item.id == id,
        };
        self.items.iter().rev().find(is_meant).map(|item| item.block)
    }

    fn append(&mut self, kind: Kind, value: &Value, delta: &str, answer: &mut Answer) {
        if let Some(block) = self.block_of(value) {
            answer.append(block, delta);
        } else if kind != Kind::Call
            && let Some(block) = answer.continue_with(kind, delta)
        {
            // A server without `output_item.added`. A call would have no name.
            let output_index = json::count(value, "/output_index");
            let id = json::text(value, "/item_id").to_owned();
            self.items.push(Item { output_index, id, call_id: String::new(), kind, block });
        }
    }

    /// Starts the block of an item. Items of other kinds, such as those of tools of the provider, have none.
    fn start(
        &mut self,
        item: &Value,
        output_index: Option<u64>,
        answer: &mut Answer,
    ) -> Option<usize> {
        let id = json::text(item, "/id");
        let kind = kind_of(item)?;
        let block = match kind {
            Kind::Call => {
                let call_id = match (json::text(item, "/call_id"), id) {
                    ("", id) | (id, "") => id.to_owned(),
                    (call_id, id) => format!("{call_id}|{id}"),
                };
                answer.start_call(&call_id, json::text(item, "/name"))
            }
            kind => answer.start(kind),
        }?;

        let call_id = json::text(item, "/call_id").to_owned();
        self.items.push(Item { output_index, id: id.to_owned(), call_id, kind, block });
        Some(block)
    }

    /// Takes the final state of an item.
    fn complete(&mut self, item: &Value, output_index: Option<u64>, answer: &mut Answer) {
        let known = self.items.iter().rev().find(|known| match output_index {
            Some(_) => known.output_index == output_index,
            None => known.id == json::text(item, "/id"),
        });
        let known = known.map(|known| known.block);
        if let Some(block) = known.or_else(|| self.start(item, output_index, answer)) {
            finish(item, block, answer);
        }
    }

    /// Whether an item of the whole output was sent before. Servers may number it differently there
    /// or give it another id, so that a text or a reasoning counts as known if there was any.
    fn is_known(sent: &[Item], item: &Value, index: u64) -> bool {
        let Some(kind) = kind_of(item) else { return true };
        let (id, call_id) = (json::text(item, "/id"), json::text(item, "/call_id"));
        let is_named = |known: &Item| {
            !id.is_empty() && known.id == id || !call_id.is_empty() && known.call_id == call_id
        };

        let mut of_kind = sent.iter().filter(|known| known.kind == kind);
        of_kind
            .any(|known| kind != Kind::Call || known.output_index == Some(index) || is_named(known))
    }

    fn end(&mut self, event: &str, response: &Value, answer: &mut Answer, model: &ModelInfo) {
        answer.set_response_id(json::text(response, "/id"));
        if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
            answer.set_usage(tokens(usage, answer.usage), model);
        }

        // Some servers send the output, or a part of it, only at the end.
        let output = response.get("output").and_then(Value::as_array);
        let n_sent = self.items.len();
        for (item, index) in output.into_iter().flatten().zip(0..) {
            let sent = self.items.get(..n_sent).unwrap_or_default();
            if !Self::is_known(sent, item, index)
                && let Some(block) = self.start(item, Some(index), answer)
            {
                finish(item, block, answer);
            }
        }

        let status = json::text(response, "/status");
        match if status.is_empty() { event } else { status } {
            "completed" => answer.stop = Some(StopReason::Stop),
            "incomplete" => match json::text(response, "/incomplete_details/reason") {
                "" | "max_output_tokens" | "max_tokens" => answer.stop = Some(StopReason::Length),
                reason => answer.stopped(reason),
            },
            "failed" => answer.fail_as_reported(errors::reported(response)),
            status => answer.stopped(status),
        }
    }
}

/// Returns the kind of an item that has a block.
fn kind_of(item: &Value) -> Option<Kind> {
    match json::text(item, "/type") {
        "reasoning" => Some(Kind::Thinking),
        "message" => Some(Kind::Text),
        "function_call" => Some(Kind::Call),
        _ => None,
    }
}

/// Takes the final state of an item into its block, and ends it.
fn finish(item: &Value, block: usize, answer: &mut Answer) {
    match json::text(item, "/type") {
        "reasoning" => {
            let summary = joined(item, "/summary", "\n\n");
            let summary =
                if summary.is_empty() { joined(item, "/content", "\n\n") } else { summary };
            answer.settle(block, &summary);
            // The next request contains the whole item.
            answer.sign(block, &item.to_string());
        }
        "message" => {
            answer.is_refusal |= !joined_of(item, "/content", &["/refusal"], "").is_empty();
            answer.settle(block, &joined(item, "/content", ""));
            answer.sign(block, json::text(item, "/id"));
        }
        "function_call" => answer.settle(block, json::text(item, "/arguments")),
        _ => {}
    }

    answer.end(block);
}

/// Joins the texts of the parts of an item.
fn joined(item: &Value, at: &str, separator: &str) -> String {
    joined_of(item, at, &["/text", "/refusal"], separator)
}

fn joined_of(item: &Value, at: &str, names: &[&str], separator: &str) -> String {
    let parts = item.pointer(at).and_then(Value::as_array);
    let text = |part| -> String { names.iter().map(|name| json::text(part, name)).collect() };
    let texts: Vec<String> = parts.into_iter().flatten().map(text).collect();
    texts.join(separator)
}

/// Returns the counts of tokens. Missing ones keep the earlier value.
fn tokens(usage: &Value, earlier: Usage) -> Usage {
    let count = |at: &str| json::count(usage, at);
    let cached = count("/input_tokens_details/cached_tokens").unwrap_or(earlier.cache_read);
    // The count of the input contains the cached tokens.
    Usage {
        input: count("/input_tokens").map_or(earlier.input, |all| all.saturating_sub(cached)),
        output: count("/output_tokens").unwrap_or(earlier.output),
        cache_read: cached,
        reasoning: count("/output_tokens_details/reasoning_tokens").or(earlier.reasoning),
        ..earlier
    }
}
