//! The conversation of a session as updates that show it again.

use crate::tool_view::Call;
use crate::updates::{Translator, tool_update};
use quackd_agent::message::{Block, Content, Message, ToolCall, ToolResultMessage};
use quackd_agent::transcript::{EntryKind, Transcript};
use quackd_protocol::tools::{BASH, BashArguments};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Returns the messages of the current branch, also those before a compaction.
pub(crate) fn messages(transcript: &Transcript) -> Vec<Message> {
    let messages = transcript.path().into_iter().filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message.clone()),
        _ => None,
    });
    messages.collect()
}

/// The last call with its id.
struct PastCall<'a> {
    call: &'a ToolCall,
    /// Position of its update.
    at: usize,
    has_result: bool,
    /// Earlier calls with the same id.
    earlier: usize,
}

/// Updates, and the calls among them. Some model servers number the calls of each answer from 0 again.
#[derive(Default)]
struct Past<'a> {
    updates: Vec<Value>,
    calls: HashMap<&'a str, PastCall<'a>>,
}

impl<'a> Past<'a> {
    /// Adds a call. An earlier call with the same id gets another id, because clients update the call with a known id.
    fn call(&mut self, call: &'a ToolCall, update: Value) {
        let before = self.calls.get(call.id.as_str());
        let earlier = before.map_or(0, |before| before.earlier + 1);
        let renamed = before.and_then(|before| self.updates.get_mut(before.at));
        if let Some(id) = renamed.and_then(|update| update.get_mut("toolCallId")) {
            *id = format!("{}#{earlier}", call.id).into();
        }

        let past = PastCall { call, at: self.updates.len(), has_result: false, earlier };
        self.calls.insert(&call.id, past);
        self.updates.push(update);
    }

    /// Returns the call of a result, and its update.
    fn answered(&mut self, id: &str) -> Option<(&'a ToolCall, &mut Value)> {
        let past = self.calls.get_mut(id).filter(|past| !past.has_result)?;
        past.has_result = true;
        Some((past.call, self.updates.get_mut(past.at)?))
    }
}

impl Translator {
    /// Returns the updates that show these messages.
    pub(crate) fn replay(&mut self, messages: &[Message]) -> Vec<Value> {
        let mut past = Past::default();
        for message in messages {
            self.next_message();
            match message {
                Message::User(user) => {
                    past.updates.extend(self.content("user_message_chunk", &user.content));
                }
                Message::Assistant(answer) => {
                    for block in &answer.content {
                        match block {
                            Block::ToolCall(call) => past.call(call, self.past_call(call, None)),
                            block => {
                                past.updates.extend(self.past_block("agent_message_chunk", block));
                            }
                        }
                    }
                    self.add_usage(answer.usage);
                }
                Message::ToolResult(result) => {
                    if let Some((call, update)) = past.answered(&result.tool_call_id) {
                        *update = self.past_call(call, Some(result));
                    }
                }
                Message::Custom(custom) if custom.display => {
                    past.updates.extend(self.content("agent_message_chunk", &custom.content));
                }
                Message::BashExecution(run) => {
                    let is_error = run.cancelled || run.exit_code != Some(0);
                    let args = BashArguments::builder().command(run.command.as_str());
                    let args = Value::from(args.build());
                    let output = [json!({"type": "text", "text": run.output})];
                    let call = Call { tool: BASH.name, args: &args, cwd: &self.cwd };
                    let mut update = call.described();
                    update.extend(call.ended(&output, &Value::Null, is_error));
                    let id = format!("bash-{}", run.timestamp);
                    past.updates.push(tool_update("tool_call", &id, update));
                }
                _ => {}
            }
        }
        past.updates.extend(self.usage_update());
        past.updates
    }

    fn content(&self, kind: &str, content: &Content) -> Vec<Value> {
        match content {
            Content::Text(text) => {
                self.past_block(kind, &Block::text(text.as_str())).into_iter().collect()
            }
            Content::Blocks(blocks) => {
                blocks.iter().filter_map(|block| self.past_block(kind, block)).collect()
            }
        }
    }

    fn past_block(&self, kind: &str, block: &Block) -> Option<Value> {
        self.block(kind, &serde_json::to_value(block).ok()?)
    }

    /// Returns a call with its result. A call without one was interrupted.
    fn past_call(&self, known: &ToolCall, result: Option<&ToolResultMessage>) -> Value {
        let args = Value::Object(known.arguments.clone());
        let call = Call { tool: &known.name, args: &args, cwd: &self.cwd };
        let mut update: Map<String, Value> = call.described();

        update.extend(match result {
            Some(result) => {
                let content: Vec<Value> = result
                    .content
                    .iter()
                    .filter_map(|block| serde_json::to_value(block).ok())
                    .collect();
                let details = result.details.as_ref().unwrap_or(&Value::Null);
                call.ended(&content, details, result.is_error)
            }
            None => call.ended(&[], &Value::Null, true),
        });

        tool_update("tool_call", &known.id, update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_one_id_have_their_own_results() {
        let answer = |command: &str| {
            json!({"role": "assistant", "api": "a", "provider": "p", "model": "m",
                "stopReason": "toolUse", "timestamp": 1, "content": [{"type": "toolCall",
                "id": "call_0", "name": "bash", "arguments": {"command": command}}]})
        };
        let result = |text: &str| {
            json!({"role": "toolResult", "toolCallId": "call_0", "toolName": "bash",
                "content": [{"type": "text", "text": text}], "isError": false, "timestamp": 2})
        };
        let messages = json!([
            answer("a"),
            result("one"),
            result("stray"),
            answer("b"),
            result("two"),
            answer("c"),
        ]);
        let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
        let updates = Translator::default().replay(&messages);
        let shown = updates.iter().map(|update| {
            let text = |path: &str| update.pointer(path).and_then(Value::as_str);
            let result = text("/content/0/content/text").unwrap_or_default();
            (
                text("/title").unwrap(),
                text("/toolCallId").unwrap(),
                text("/status").unwrap(),
                result,
            )
        });
        let expected = [
            ("a", "call_0#1", "completed", "```\none\n```"),
            ("b", "call_0#2", "completed", "```\ntwo\n```"),
            ("c", "call_0", "failed", ""),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }
}
