//! A tiny request that shows whether a model answers. Its answer is judged in [`super::verdict`].

use super::verdict::{self, Body, error_in, one_line};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::model::{ModelApi, ModelInfo};
use quackd_protocol::output::OutputPiece;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// Maximum number of tokens of the answer. A model that reasons may use all of them before its
/// first word.
pub const PROBE_LIMIT_TOKENS: u64 = 64;

/// Maximum number of bytes of the answer that are kept.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

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
pub struct ProbeAnswer {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl ProbeAnswer {
    /// Adds the next piece. Ignores it if there is enough.
    pub fn push(&mut self, piece: &OutputPiece) {
        // A piece is base64 between quotation marks.
        let text = piece.bytes.get().trim_matches('"');
        let bytes = STANDARD.decode(text).unwrap_or_default();
        self.is_cut |= MAX_ANSWER_BYTES < self.bytes.len() + bytes.len();
        if !self.is_cut {
            self.bytes.extend_from_slice(&bytes);
        }
    }

    /// Returns the text of an answer with a status of success, or says that the model calls a tool.
    ///
    /// # Errors
    /// The provider's error, or a description of what came instead of an answer that quackd's own agent accepts.
    pub fn judge(&self, api: ModelApi, content_type: Option<&str>) -> Result<String, String> {
        verdict::judge(&Body { api, content_type, bytes: &self.bytes, is_cut: self.is_cut })
    }

    /// Returns the text of an answer with an error status.
    #[must_use]
    pub fn error(&self) -> String {
        let error =
            serde_json::from_slice::<Value>(&self.bytes).ok().and_then(|body| error_in(&body));
        error.unwrap_or_else(|| one_line(&String::from_utf8_lossy(&self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::output::OutputStream;

    fn answer(text: &[u8]) -> ProbeAnswer {
        let mut answer = ProbeAnswer::default();
        for piece in text.chunks(7) {
            let quoted = format!("\"{}\"", STANDARD.encode(piece));
            answer.push(&OutputPiece::new(OutputStream::Stdout, quoted).unwrap());
        }
        answer
    }

    #[test]
    fn pieces_are_joined_up_to_a_limit() {
        let body = br#"{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}"#;
        let text = |body: &[u8]| answer(body).judge(ModelApi::OpenAiCompletions, None);
        assert_eq!(text(body), Ok("ok".to_owned()));
        let long = [&body[..], &vec![b' '; MAX_ANSWER_BYTES]].concat();
        assert!(answer(&long).is_cut);
    }

    #[test]
    fn an_error_status_is_shown_in_one_line() {
        let body = br#"{"error": {"message": "no such model", "code": 1}}"#;
        assert_eq!(answer(body).error(), "no such model");
        assert_eq!(answer(b"<b>\x1b[1mno</b>").error(), "<b>[1mno</b>");
    }
}
