//! The history of a session: read from its file, and as updates that show it again.

use crate::tool_view::Call;
use crate::updates::{Translator, tool_update};
use quackd_agent::message::{Block, Content, Message, ToolResultMessage};
use quackd_agent::transcript::{EntryKind, Transcript};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;

/// Most bytes of a session file that are read. The rest of a longer file is not shown.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Reads the messages of a session file: those of the current branch, also before a compaction.
///
/// # Errors
/// The file cannot be read, is no session file or not a regular file.
pub(crate) fn read_blocking(path: &Path) -> io::Result<Vec<Message>> {
    // A pipe would block.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    let transcript = Transcript::read(&bytes).map_err(io::Error::other)?;
    let messages = transcript.path().into_iter().filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message.clone()),
        _ => None,
    });
    Ok(messages.collect())
}

impl Translator {
    /// Returns the updates that show these messages.
    pub(crate) fn replay(&mut self, messages: &[Message]) -> Vec<Value> {
        let results: HashMap<&str, &ToolResultMessage> = messages
            .iter()
            .filter_map(|message| match message {
                Message::ToolResult(result) => Some((result.tool_call_id.as_str(), result)),
                _ => None,
            })
            .collect();
        let mut updates = Vec::new();
        for message in messages {
            self.next_message();
            match message {
                Message::User(user) => {
                    updates.extend(self.content("user_message_chunk", &user.content));
                }
                Message::Assistant(answer) => {
                    for block in &answer.content {
                        updates.extend(match block {
                            Block::ToolCall(call) => {
                                let args = Value::Object(call.arguments.clone());
                                let result = results.get(call.id.as_str()).copied();
                                Some(self.past_call(&call.id, &call.name, &args, result))
                            }
                            block => self.past_block("agent_message_chunk", block),
                        });
                    }
                    self.add_past(answer);
                }
                Message::Custom(custom) if custom.display => {
                    updates.extend(self.content("agent_message_chunk", &custom.content));
                }
                Message::BashExecution(run) => {
                    let is_error = run.cancelled || run.exit_code != Some(0);
                    let args = json!({"command": run.command});
                    let output = [json!({"type": "text", "text": run.output})];
                    let call = Call { tool: "bash", args: &args, cwd: &self.cwd };
                    let mut update = call.described();
                    update.extend(call.ended(&output, &Value::Null, is_error));
                    let id = format!("bash-{}", run.timestamp);
                    updates.push(tool_update("tool_call", &id, update));
                }
                _ => {}
            }
        }
        updates.extend(self.usage_update());
        updates
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
    fn past_call(
        &self,
        id: &str,
        tool: &str,
        args: &Value,
        result: Option<&ToolResultMessage>,
    ) -> Value {
        let call = Call { tool, args, cwd: &self.cwd };
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
        tool_update("tool_call", id, update)
    }
}
