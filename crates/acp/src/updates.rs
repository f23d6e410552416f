//! Events of a session as `session/update` notifications. Pure: one [`Translator`] for each session keeps what later
//! events need.

use crate::rpc::RpcError;
use crate::tool_view::Call;
use crate::turns::{Outcome, StopReason};
use quackd_agent::message::Usage;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::PathBuf;

/// Tool calls that are remembered. Further ones lose the arguments of the oldest turn.
const MAX_CALLS: usize = 1024;

/// Optional updates that the client displays.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Displays {
    pub(crate) notices: bool,
    pub(crate) compaction: bool,
}

/// Translates the events of one session.
#[derive(Debug, Default)]
pub(crate) struct Translator {
    /// Directory of relative paths in tool calls.
    pub(crate) cwd: PathBuf,
    workspace: PathBuf,
    displays: Displays,
    /// Whether a prompt of this client runs, whose text the client already shows.
    pub(crate) is_prompting: bool,
    /// Size of the model's context, in tokens. `None` if it is not known.
    pub(crate) window: Option<u64>,
    usage: Option<Usage>,
    /// Cost of the session. `None` if earlier messages are not known, or the cost of one.
    pub(crate) cost: Option<f64>,
    n_messages: u64,
    n_compactions: u64,
    /// Whether the text of the current message came in parts.
    is_streamed: bool,
    calls: HashMap<String, KnownCall>,
    last: Option<Outcome>,
}

#[derive(Debug)]
struct KnownCall {
    tool: String,
    args: Value,
}

/// The updates of an event, and the turn that it ends.
#[derive(Debug, Default)]
pub(crate) struct Translated {
    pub(crate) updates: Vec<Value>,
    pub(crate) ended: Option<(u64, Outcome)>,
}

impl Translator {
    /// Creates the translator of a session without events.
    pub(crate) fn new(displays: Displays) -> Self {
        Self { displays, ..Self::default() }
    }

    /// Sets the workspace of the session, against which relative paths are resolved.
    pub(crate) fn set_workspace(&mut self, path: &str) {
        self.workspace = PathBuf::from(path);
        self.cwd.clone_from(&self.workspace);
    }

    /// Translates an event. `turn`: the turn of the event.
    pub(crate) fn event(&mut self, name: &str, data: &Value, turn: Option<u64>) -> Translated {
        let ended = match name {
            "agent_end" => {
                let last = self.last.take().unwrap_or(Ok(StopReason::EndTurn));
                match text(data, "reason") {
                    "max_turns" => Some(Ok(StopReason::MaxTurnRequests)),
                    _ => Some(last),
                }
            }
            "prompt_error" => {
                let code = data.get("code").and_then(Value::as_str);
                Some(Err(RpcError::internal(text(data, "error")).with_code(code)))
            }
            "message_end" => {
                self.note_end(&data["message"]);
                None
            }
            _ => None,
        };

        let updates = self.updates(name, data);
        Translated { updates, ended: turn.zip(ended) }
    }

    fn updates(&mut self, name: &str, data: &Value) -> Vec<Value> {
        let message = &data["message"];
        match name {
            "agent_start" => {
                let directory = data.get("cwd").and_then(Value::as_str);
                self.cwd = directory
                    .map_or_else(|| self.workspace.clone(), |path| self.workspace.join(path));
                Vec::new()
            }
            "message_start" => {
                self.next_message();
                Vec::new()
            }
            "message_update" => self.part(&data["assistantMessageEvent"]),
            "message_end" => self.message(message),
            "tool_execution_start" => vec![self.tool_call(
                text(data, "toolCallId"),
                text(data, "toolName"),
                &data["args"],
                "in_progress",
            )],
            "tool_execution_update" => {
                let content = data.pointer("/partialResult/content").and_then(Value::as_array);
                content.map(|content| self.tool_output(data, content)).into_iter().collect()
            }
            "tool_execution_end" => vec![self.tool_end(data)],
            "session_info_changed" => {
                let title = data.get("name").and_then(Value::as_str);
                title.map(session_info).into_iter().collect()
            }
            _ => self.extras(name, data),
        }
    }

    /// Begins a message, whose parts have a common id from now on.
    pub(crate) fn next_message(&mut self) {
        self.n_messages += 1;
        self.is_streamed = false;
    }

    /// Returns a chunk of the current message.
    pub(crate) fn chunk(&self, kind: &str, content: Value) -> Value {
        let id = format!("m{}", self.n_messages);
        json!({"sessionUpdate": kind, "messageId": id, "content": content})
    }

    fn part(&mut self, part: &Value) -> Vec<Value> {
        let kind = match text(part, "type") {
            "text_delta" => "agent_message_chunk",
            "thinking_delta" => "agent_thought_chunk",
            "toolcall_start" => {
                let (id, tool) = (text(part, "id"), text(part, "toolName"));
                if id.is_empty() || self.calls.contains_key(id) {
                    return Vec::new();
                }
                return vec![self.tool_call(id, tool, &Value::Null, "pending")];
            }
            "toolcall_end" => {
                let call = &part["toolCall"];
                let (id, tool) = (text(call, "id"), text(call, "name"));
                if id.is_empty() {
                    return Vec::new();
                }
                return vec![self.tool_call(id, tool, &call["arguments"], "pending")];
            }
            _ => return Vec::new(),
        };

        let delta = text(part, "delta");
        if delta.is_empty() {
            return Vec::new();
        }

        // The end of the message then repeats no text.
        self.is_streamed = true;
        vec![self.chunk(kind, json!({"type": "text", "text": delta}))]
    }

    /// Returns the updates for the end of a message: all that was not sent in parts.
    fn message(&mut self, message: &Value) -> Vec<Value> {
        match text(message, "role") {
            "user" if !self.is_prompting => self.blocks("user_message_chunk", message),
            "assistant" => {
                let mut updates = if self.is_streamed {
                    Vec::new()
                } else {
                    self.blocks("agent_message_chunk", message)
                };
                let usage = message.get("usage").cloned();
                if let Some(usage) = usage.and_then(|usage| serde_json::from_value(usage).ok()) {
                    self.add_usage(usage);
                    updates.extend(self.usage_update());
                }
                updates
            }
            "custom" if message.get("display") == Some(&Value::Bool(true)) => {
                self.blocks("agent_message_chunk", message)
            }
            _ => Vec::new(),
        }
    }

    fn blocks(&self, kind: &str, message: &Value) -> Vec<Value> {
        let content = match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            Value::Array(blocks) => blocks.clone(),
            _ => Vec::new(),
        };
        content.iter().filter_map(|block| self.block(kind, block)).collect()
    }

    /// Returns a text, an image or a thought as a chunk.
    pub(crate) fn block(&self, kind: &str, block: &Value) -> Option<Value> {
        let plain = |text: &str| json!({"type": "text", "text": text});
        match text(block, "type") {
            "text" if !text(block, "text").is_empty() => {
                Some(self.chunk(kind, plain(text(block, "text"))))
            }
            "thinking" if !text(block, "thinking").is_empty() => {
                Some(self.chunk("agent_thought_chunk", plain(text(block, "thinking"))))
            }
            "image" => {
                let (data, mime) = (block.get("data")?.as_str()?, block.get("mimeType")?.as_str()?);
                Some(self.chunk(kind, json!({"type": "image", "data": data, "mimeType": mime})))
            }
            _ => None,
        }
    }

    /// Returns the first description of a call, or an update of it.
    pub(crate) fn tool_call(&mut self, id: &str, tool: &str, args: &Value, status: &str) -> Value {
        let is_new = !self.calls.contains_key(id);
        if MAX_CALLS <= self.calls.len() {
            self.calls.clear();
        }

        let known = KnownCall { tool: tool.to_owned(), args: args.clone() };
        let call = Call { tool: &known.tool, args: &known.args, cwd: &self.cwd };
        let mut update = call.described();
        self.calls.insert(id.to_owned(), known);

        let kind = if is_new { "tool_call" } else { "tool_call_update" };
        update.insert("status".to_owned(), status.into());
        tool_update(kind, id, update)
    }

    fn tool_output(&self, data: &Value, content: &[Value]) -> Value {
        let call = Call { tool: text(data, "toolName"), args: &data["args"], cwd: &self.cwd };
        let update = Map::from_iter([
            ("status".to_owned(), "in_progress".into()),
            ("content".to_owned(), call.content(content).into()),
        ]);
        tool_update("tool_call_update", text(data, "toolCallId"), update)
    }

    fn tool_end(&mut self, data: &Value) -> Value {
        let id = text(data, "toolCallId");
        let known = self.calls.remove(id);
        let args = known.as_ref().map_or(&Value::Null, |known| &known.args);
        let tool = known.as_ref().map_or_else(|| text(data, "toolName"), |known| &known.tool);
        let call = Call { tool, args, cwd: &self.cwd };

        let result = &data["result"];
        let content = result.get("content").and_then(Value::as_array);
        let is_error = data.get("isError").and_then(Value::as_bool).unwrap_or_default();
        let content = content.map_or(&[][..], Vec::as_slice);
        let mut update = call.ended(content, &result["details"], is_error);

        if known.is_some() {
            return tool_update("tool_call_update", id, update);
        }

        // Its start was before this client followed.
        update.extend(call.described());
        tool_update("tool_call", id, update)
    }

    /// Whether the client has seen the start of this call, and not its end.
    pub(crate) fn is_open(&self, call: &str) -> bool {
        self.calls.contains_key(call)
    }

    /// Counts the tokens of an answer.
    pub(crate) fn add_usage(&mut self, usage: Usage) {
        self.cost = self.cost.map(|cost| cost + usage.cost.total).filter(|_| !usage.cost.unknown);
        // A failed request has none.
        if usage.total_tokens != 0 {
            self.usage = Some(usage);
        }
    }

    /// Returns the used part of the context, if its size is known.
    pub(crate) fn usage_update(&self) -> Option<Value> {
        let (usage, size) = (self.usage?, self.window?);
        let mut update =
            json!({"sessionUpdate": "usage_update", "used": usage.total_tokens, "size": size});
        if let (Some(cost), Some(update)) = (self.cost, update.as_object_mut()) {
            update.insert("cost".to_owned(), json!({"amount": cost, "currency": "USD"}));
        }
        Some(update)
    }

    /// Remembers how the last message of the model ended, which is how its turn ends.
    fn note_end(&mut self, message: &Value) {
        if text(message, "role") != "assistant" {
            return;
        }

        let error = || message.get("errorMessage").and_then(Value::as_str);
        self.last = Some(match (text(message, "rawStopReason"), text(message, "stopReason")) {
            ("refusal" | "content_filter", _) => Ok(StopReason::Refusal),
            (_, "length") => Ok(StopReason::MaxTokens),
            (_, "aborted") => Ok(StopReason::Cancelled),
            (_, "error") => {
                Err(RpcError::internal(error().unwrap_or("the request to the model failed")))
            }
            _ => Ok(StopReason::EndTurn),
        });
    }

    /// Returns the updates that only some clients display.
    fn extras(&mut self, name: &str, data: &Value) -> Vec<Value> {
        let notice = |severity: &str, title: &str| json!({"sessionUpdate": "notice", "severity": severity, "title": title});
        match name {
            "auto_retry_start" if self.displays.notices => {
                let title = format!("The model is asked again: {}", text(data, "errorMessage"));
                vec![notice("warning", &title)]
            }
            "extension_ui_request" if self.displays.notices && text(data, "method") == "notify" => {
                let severity = match text(data, "notifyType") {
                    known @ ("warning" | "error") => known,
                    _ => "info",
                };
                vec![notice(severity, text(data, "message"))]
            }
            "auto_compaction_start" if self.displays.compaction => {
                self.n_compactions += 1;
                vec![self.compaction("in_progress", None)]
            }
            "auto_compaction_end" if self.displays.compaction => {
                let summary = data.pointer("/result/summary").and_then(Value::as_str);
                let is_aborted = data.get("aborted") == Some(&Value::Bool(true));
                let status = match summary {
                    _ if is_aborted => "cancelled",
                    Some(_) => "completed",
                    None => "failed",
                };
                vec![self.compaction(status, summary)]
            }
            _ => Vec::new(),
        }
    }

    fn compaction(&self, status: &str, summary: Option<&str>) -> Value {
        let id = format!("c{}", self.n_compactions);
        let mut update =
            json!({"sessionUpdate": "compaction_update", "compactionId": id, "status": status});
        if let (Some(summary), Some(update)) = (summary, update.as_object_mut()) {
            update.insert("summary".to_owned(), json!([{"type": "text", "text": summary}]));
        }
        update
    }
}

/// Returns an update of the session's title.
pub(crate) fn session_info(title: &str) -> Value {
    json!({"sessionUpdate": "session_info_update", "title": title})
}

/// Adds kind and id to the members of an update of a tool call.
pub(crate) fn tool_update(kind: &str, id: &str, mut members: Map<String, Value>) -> Value {
    members.insert("sessionUpdate".to_owned(), kind.into());
    members.insert("toolCallId".to_owned(), id.into());
    Value::Object(members)
}

fn text<'a>(data: &'a Value, name: &str) -> &'a str {
    data.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stop: &str, tokens: u64) -> Value {
        let usage = json!({"totalTokens": tokens, "cost": {"total": 0.5}});
        json!({"message": {"role": "assistant", "content": [], "stopReason": stop, "usage": usage}})
    }

    #[test]
    fn usage_is_reported_when_the_size_of_the_context_is_known() {
        let mut translator = Translator::new(Displays::default());
        let usage = |translator: &mut Translator, tokens: u64| {
            translator.event("message_end", &answer("stop", tokens), Some(1)).updates
        };
        assert_eq!(usage(&mut translator, 10), [] as [Value; 0]);
        translator.window = Some(100);
        let expected = json!({"sessionUpdate": "usage_update", "used": 20, "size": 100});
        assert_eq!(usage(&mut translator, 20), [expected]);
        translator.cost = Some(1.0);
        // A failed request has no tokens, and the context stays as it is.
        let last = usage(&mut translator, 0);
        assert_eq!((&last[0]["used"], &last[0]["cost"]["amount"]), (&json!(20), &json!(1.5)));
        let mut unknown = answer("stop", 30);
        unknown["message"]["usage"]["cost"] = json!({"total": 0, "unknown": true});
        let last = translator.event("message_end", &unknown, Some(1)).updates;
        assert_eq!((&last[0]["used"], &last[0]["cost"]), (&json!(30), &Value::Null));
    }

    #[test]
    fn a_turn_ends_as_its_last_answer_and_events_without_a_turn_end_nothing() {
        let mut translator = Translator::new(Displays::default());
        let mut end = |stops: &[&str], turn: Option<u64>| {
            for stop in stops {
                translator.event("message_end", &answer(stop, 1), turn);
            }
            translator.event("agent_end", &Value::Null, turn).ended
        };
        assert_eq!(end(&[], Some(1)), Some((1, Ok(StopReason::EndTurn))));
        assert_eq!(end(&["error", "stop"], Some(2)), Some((2, Ok(StopReason::EndTurn))));
        assert_eq!(end(&["length"], Some(3)), Some((3, Ok(StopReason::MaxTokens))));
        assert_eq!(end(&["aborted"], Some(4)), Some((4, Ok(StopReason::Cancelled))));
        assert!(matches!(end(&["error"], Some(5)), Some((5, Err(_)))));
        assert_eq!(end(&["stop"], None), None);
        let limited = json!({"reason": "max_turns"});
        let ended = translator.event("agent_end", &limited, Some(6)).ended;
        assert_eq!(ended, Some((6, Ok(StopReason::MaxTurnRequests))));
    }

    #[test]
    fn notices_and_compactions_are_for_clients_that_display_them() {
        let retry = json!({"errorMessage": "overloaded"});
        let all = Displays { notices: true, compaction: true };
        for (displays, expected) in [(Displays::default(), 0), (all, 1)] {
            let mut translator = Translator::new(displays);
            let mut updates = |name: &str, data: &Value| translator.event(name, data, None).updates;
            assert_eq!(updates("auto_retry_start", &retry).len(), expected);
            let begun = updates("auto_compaction_start", &Value::Null);
            let done = updates("auto_compaction_end", &json!({"result": {"summary": "s"}}));
            assert_eq!((begun.len(), done.len()), (expected, expected));
            if let ([begun], [done]) = (begun.as_slice(), done.as_slice()) {
                assert_eq!(begun["compactionId"], done["compactionId"]);
                assert_eq!(
                    (&done["status"], &done["summary"][0]["text"]),
                    (&json!("completed"), &json!("s"))
                );
            }
        }
    }

    #[test]
    fn a_result_without_its_start_is_a_whole_call() {
        let mut translator = Translator::new(Displays::default());
        let data = json!({"toolCallId": "c", "toolName": "bash", "result": {"content": []}, "isError": false});
        let updates = translator.event("tool_execution_end", &data, None).updates;
        assert_eq!(
            (&updates[0]["sessionUpdate"], &updates[0]["status"], &updates[0]["title"]),
            (&json!("tool_call"), &json!("completed"), &json!("bash"))
        );
    }
}
