//! A tiny request that shows whether a model answers, and the text of its answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::model::{ModelApi, ModelInfo};
use quackd_protocol::output::OutputPiece;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// Most tokens of the answer. A model that reasons may use all of them before its first word.
pub const PROBE_LIMIT_TOKENS: u64 = 64;

/// Most bytes of the answer that are kept.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Most characters of the text that is returned.
const MAX_TEXT: usize = 200;

/// Returns the body of the request.
#[must_use]
pub fn probe_body(model: &ModelInfo) -> Option<Box<RawValue>> {
    const PROMPT: &str = "Reply with the word: ok";
    // Without tools, a model would pass that cannot run one turn of an agent.
    const TOOL: &str = "read_file";
    const PURPOSE: &str = "Reads a file. Not needed now.";
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let id = &model.id;
    let messages = json!([{"role": "user", "content": PROMPT}]);
    let body = match model.api {
        ModelApi::OpenAiCompletions => {
            let usual =
                if model.provider == "openai" { "max_completion_tokens" } else { "max_tokens" };
            let field = model.compat.max_tokens_field.as_deref().unwrap_or(usual);
            let function = json!({"name": TOOL, "description": PURPOSE, "parameters": schema});
            json!({
                "model": id, "messages": messages, "stream": true, field: PROBE_LIMIT_TOKENS,
                "tools": [{"type": "function", "function": function}],
            })
        }
        ModelApi::OpenAiResponses => json!({
            "model": id, "input": PROMPT, "stream": true, "store": false,
            "max_output_tokens": PROBE_LIMIT_TOKENS,
            "tools": [{"type": "function", "name": TOOL, "description": PURPOSE, "parameters": schema}],
        }),
        ModelApi::AnthropicMessages => json!({
            "model": id, "messages": messages, "stream": true, "max_tokens": PROBE_LIMIT_TOKENS,
            "tools": [{"name": TOOL, "description": PURPOSE, "input_schema": schema}],
        }),
    };
    to_raw_value(&body).ok()
}

/// The beginning of an answer.
#[derive(Debug, Default)]
pub struct ProbeAnswer(Vec<u8>);

impl ProbeAnswer {
    /// Adds the next piece. Ignores it if there is enough.
    pub fn push(&mut self, piece: &OutputPiece) {
        let text = piece.bytes.get().trim_matches('"');
        if let Ok(bytes) = STANDARD.decode(text)
            && self.0.len() + bytes.len() <= MAX_ANSWER_BYTES
        {
            self.0.extend_from_slice(&bytes);
        }
    }

    /// Returns the text of the answer, which may be empty.
    ///
    /// # Errors
    /// The provider's error in the stream.
    pub fn text(&self) -> Result<String, String> {
        let answer = String::from_utf8_lossy(&self.0);
        let mut text = String::new();
        let records = answer.lines().filter_map(|line| line.strip_prefix("data:"));
        for record in records.filter_map(|record| serde_json::from_str::<Value>(record.trim()).ok())
        {
            if let Some(error) = error_in(&record) {
                return Err(error);
            }
            let is_text = kind(&record) == "response.output_text.delta";
            let delta = match is_text {
                true => record.get("delta"),
                false => record
                    .pointer("/choices/0/delta/content")
                    .or_else(|| record.pointer("/delta/text")),
            };
            text.push_str(delta.and_then(Value::as_str).unwrap_or_default());
        }
        Ok(one_line(&text))
    }

    /// Returns the text of an answer with an error status.
    #[must_use]
    pub fn error(&self) -> String {
        let found = serde_json::from_slice::<Value>(&self.0).ok().and_then(|body| error_in(&body));
        found.unwrap_or_else(|| one_line(&String::from_utf8_lossy(&self.0)))
    }
}

/// Returns the provider's error in a record or a body.
fn error_in(record: &Value) -> Option<String> {
    let error = record.get("error").or_else(|| record.pointer("/response/error"));
    let text = match error.filter(|error| !error.is_null()) {
        Some(error) => {
            let message = error.get("message").unwrap_or(error);
            message.as_str().map_or_else(|| error.to_string(), str::to_owned)
        }
        None if kind(record) == "error" => record.get("message")?.as_str()?.to_owned(),
        None => return None,
    };
    Some(one_line(&text))
}

fn kind(record: &Value) -> &str {
    record.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::output::OutputStream;

    fn answer(text: &str) -> ProbeAnswer {
        let mut answer = ProbeAnswer::default();
        for piece in text.as_bytes().chunks(7) {
            let quoted = format!("\"{}\"", STANDARD.encode(piece));
            answer.push(&OutputPiece::new(OutputStream::Stdout, quoted).unwrap());
        }
        answer
    }

    #[test]
    fn the_text_is_read_from_every_api() {
        for stream in [
            "data: {\"choices\":[{\"delta\":{\"content\":\"o\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"k\"}}]}\n\ndata: [DONE]\n",
            "event: x\ndata:{\"type\":\"response.output_text.delta\",\"delta\":\"ok\"}\r\n",
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"ok\"}}\n",
        ] {
            assert_eq!(answer(stream).text(), Ok("ok".to_owned()), "{stream}");
        }
        assert_eq!(answer("data: [DONE]\n").text(), Ok(String::new()));
    }

    #[test]
    fn an_error_is_shown_in_one_line() {
        let stream = "data: {\"type\":\"error\",\"error\":{\"message\":\"over\\nloaded\"}}\n";
        assert_eq!(answer(stream).text(), Err("over loaded".to_owned()));
        let body = "{\"error\": {\"message\": \"no such model\", \"code\": 1}}";
        assert_eq!(answer(body).error(), "no such model");
        assert_eq!(answer("<b>\u{1b}[1mno</b>").error(), "<b>[1mno</b>");
    }
}
