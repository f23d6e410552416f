//! Events of Anthropic messages.

use super::answer::{Answer, Kind};
use crate::message::{StopReason, Usage};
use crate::providers::json;
use quackd_protocol::model::ModelInfo;
use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The provider's index and ours of each block.
    blocks: Vec<(u64, usize)>,
    /// Inputs of calls at the start of their blocks. If a server repeats them in the deltas, the
    /// deltas count.
    inputs: Vec<(usize, String)>,
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
        match event {
            "message_start" => {
                answer.set_response_id(json::text(value, "/message/id"));
                set_usage(value.pointer("/message/usage"), answer, model);
            }
            "content_block_start" => {
                if let Some(block) = value.get("content_block") {
                    self.start(json::count(value, "/index"), block, answer);
                }
            }
            "content_block_delta" => {
                if let (Some(block), Some(delta)) = (self.block_of(value), value.get("delta")) {
                    read_delta(block, delta, answer);
                }
            }
            "content_block_stop" => {
                if let Some(block) = self.block_of(value) {
                    self.take_inputs(Some(block), answer);
                    answer.end(block);
                }
            }
            "message_delta" => {
                self.take_inputs(None, answer);
                set_usage(value.get("usage"), answer, model);
                match json::text(value, "/delta/stop_reason") {
                    "" => {}
                    "end_turn" | "stop_sequence" | "pause_turn" => {
                        answer.stop = Some(StopReason::Stop);
                    }
                    "max_tokens" => answer.stop = Some(StopReason::Length),
                    "tool_use" => answer.stop = Some(StopReason::ToolUse),
                    reason => answer.stopped(reason),
                }
            }
            "message_stop" => {
                self.take_inputs(None, answer);
                answer.stop.get_or_insert(StopReason::Stop);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Takes the inputs of one block, or of all, that no delta has repeated.
    fn take_inputs(&mut self, of: Option<usize>, answer: &mut Answer) {
        self.inputs.retain(|(block, input)| {
            if of.is_some_and(|of| of != *block) {
                return true;
            }
            if answer.text_of(*block).is_empty() {
                answer.append(*block, input);
            }
            false
        });
    }

    fn block_of(&self, value: &Value) -> Option<usize> {
        let index = json::count(value, "/index")?;
        self.blocks.iter().rev().find(|(theirs, _)| *theirs == index).map(|(_, ours)| *ours)
    }

    /// Starts a block. Blocks of other kinds, such as those of tools of the provider, are ignored.
    fn start(&mut self, index: Option<u64>, block: &Value, answer: &mut Answer) {
        let kind = json::text(block, "/type");
        let ours = match kind {
            "text" => answer.start(Kind::Text),
            "thinking" | "redacted_thinking" => answer.start(Kind::Thinking),
            "tool_use" => answer.start_call(json::text(block, "/id"), json::text(block, "/name")),
            _ => None,
        };

        let (Some(ours), Some(index)) = (ours, index) else { return };
        self.blocks.push((index, ours));
        answer.append(ours, json::text(block, "/text"));
        answer.append(ours, json::text(block, "/thinking"));
        answer.sign(ours, json::text(block, "/signature"));
        // Hidden reasoning has its encrypted content in place of a signature.
        if kind == "redacted_thinking" {
            answer.redact(ours);
            answer.sign(ours, json::text(block, "/data"));
        }

        // Empty, unless the server does not stream the arguments.
        let input = block.get("input").filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
        if let Some(input) = input {
            self.inputs.push((ours, input.to_string()));
        }
    }
}

fn read_delta(block: usize, delta: &Value, answer: &mut Answer) {
    match json::text(delta, "/type") {
        "text_delta" => answer.append(block, json::text(delta, "/text")),
        "thinking_delta" => answer.append(block, json::text(delta, "/thinking")),
        "signature_delta" => answer.sign(block, json::text(delta, "/signature")),
        "input_json_delta" => answer.append(block, json::text(delta, "/partial_json")),
        _ => {}
    }
}

/// Sets the counts of tokens, which are totals. Missing ones keep the earlier value.
fn set_usage(usage: Option<&Value>, answer: &mut Answer, model: &ModelInfo) {
    let Some(usage) = usage else { return };
    let count = |at: &str, earlier: u64| json::count(usage, at).unwrap_or(earlier);
    let earlier = answer.usage;

    let counted = Usage {
        input: count("/input_tokens", earlier.input),
        output: count("/output_tokens", earlier.output),
        cache_read: count("/cache_read_input_tokens", earlier.cache_read),
        cache_write: count("/cache_creation_input_tokens", earlier.cache_write),
        ..earlier
    };
    answer.set_usage(counted, model);
}
