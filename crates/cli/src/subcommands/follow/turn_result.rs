//! The result of one turn as one JSON object, for `quack say --result json`, and the check of an answer with a schema.
//! Takes the events of the turn.

use crate::exit::ExitCode;
use crate::output::CliOutput;
use quackd_agent::engine::route;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io;

/// Most files that are listed, and most calls that are remembered.
const MAX_FILES: usize = 10_000;
const MAX_CALLS: usize = 1_000;

/// The result so far.
#[derive(Debug, Default)]
pub(crate) struct TurnResult {
    session: String,
    /// Whether the object is the only output.
    is_alone: bool,
    has_schema: bool,
    text: String,
    changed: BTreeSet<String>,
    /// Files of the running calls that write one.
    writing: HashMap<String, String>,
    cost: f64,
    is_cost_unknown: bool,
    tokens: u64,
    stop_reason: Option<String>,
    reason: Option<String>,
    error: Option<String>,
}

impl TurnResult {
    /// Creates the result of a turn of this session.
    pub(crate) fn new(session: String, is_alone: bool, has_schema: bool) -> Self {
        Self { session, is_alone, has_schema, ..Self::default() }
    }

    /// Whether the object is the only output.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Handles an event of the turn.
    pub(super) fn happened(&mut self, name: &str, data: &Value) {
        let text = |key: &str| data.get(key).and_then(Value::as_str).map(str::to_owned);
        match name {
            "tool_execution_start" if self.writing.len() < MAX_CALLS => {
                let none = Map::new();
                let arguments = data.get("args").and_then(Value::as_object).unwrap_or(&none);
                let tool = text("toolName").unwrap_or_default();
                let writes = route(&tool, arguments).and_then(|it| it.writes);
                if let (Some(path), Some(id)) = (writes, text("toolCallId")) {
                    self.writing.insert(id, path);
                }
            }
            "tool_execution_end" => {
                let path = self.writing.remove(&text("toolCallId").unwrap_or_default());
                let has_failed = data.get("isError") == Some(&Value::Bool(true));
                let path = path.filter(|_| !has_failed && self.changed.len() < MAX_FILES);
                self.changed.extend(path);
            }
            "message_end" => self.ended(data.get("message").unwrap_or(&Value::Null)),
            "agent_end" => self.reason = text("reason"),
            "prompt_error" => self.error = text("error"),
            _ => {}
        }
    }

    fn ended(&mut self, message: &Value) {
        let text = |key: &str| message.get(key).and_then(Value::as_str).map(str::to_owned);
        if text("role").as_deref() != Some("assistant") {
            return;
        }
        let blocks = message.get("content").and_then(Value::as_array);
        let texts = blocks.into_iter().flatten().filter_map(|block| block.get("text")?.as_str());
        self.text = texts.collect();
        (self.stop_reason, self.error) = (text("stopReason"), text("errorMessage"));
        let cost = message.pointer("/usage/cost");
        let total = cost.and_then(|cost| cost.get("total")?.as_f64());
        self.cost += total.unwrap_or_default();
        let unknown = cost.and_then(|cost| cost.get("unknown")?.as_bool());
        self.is_cost_unknown |= unknown == Some(true) || total.is_none();
        let tokens = message.pointer("/usage/totalTokens").and_then(Value::as_u64);
        self.tokens = self.tokens.saturating_add(tokens.unwrap_or_default());
    }

    /// Prints the object, unless something else is the output, and checks the answer. Returns the exit code.
    pub(super) fn finish(self, exit: ExitCode, output: CliOutput) -> io::Result<ExitCode> {
        let answer = self.has_schema.then(|| serde_json::from_str::<Value>(&self.text).ok());
        let is_wrong = exit == ExitCode::Ok && answer == Some(None);
        if is_wrong {
            output.failure(
                "the answer is not JSON, although a schema was sent: the provider may ignore it",
            );
        }
        if self.is_alone {
            let cost = (!self.is_cost_unknown).then_some(self.cost);
            let mut object = json!({
                "sessionId": self.session, "text": self.text, "filesChanged": self.changed,
                "cost": cost, "tokens": self.tokens, "stopReason": self.stop_reason,
                "reason": self.reason, "error": self.error,
            });
            if let (Some(fields), Some(answer)) = (object.as_object_mut(), answer) {
                fields.insert("output".to_owned(), answer.unwrap_or_default());
            }
            output.document(&object)?;
        }
        Ok(if is_wrong { ExitCode::NoAnswer } else { exit })
    }
}
