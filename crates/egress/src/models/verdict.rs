//! Judges the answer to the tiny request of [`super::probe`]. An answer passes if quackd's own agent would accept it.

use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::model::ModelApi;
use serde_json::Value;

/// Maximum length of a text that is returned, in characters.
const MAX_TEXT: usize = 200;

/// Maximum length of what is shown of a body without the form of the API, in characters.
const MAX_SHOWN: usize = 100;

/// A body with a status of success.
pub(super) struct Body<'a> {
    pub(super) api: ModelApi,
    pub(super) content_type: Option<&'a str>,
    pub(super) bytes: &'a [u8],
    /// Whether the body has more than these bytes.
    pub(super) is_cut: bool,
}

/// Contents of an answer.
#[derive(Debug, Default)]
struct Seen {
    text: String,
    /// Name of the tool that the model calls.
    call: Option<String>,
    has_reasoning: bool,
    /// The provider's name of the reason of the end.
    finish: Option<String>,
    /// Whether a record has the form of the API.
    fits: bool,
}

/// Returns the text of an answer, or says that the model calls a tool.
///
/// # Errors
/// The provider's error, or a description of what came instead of an answer.
pub(super) fn judge(body: &Body<'_>) -> Result<String, String> {
    // An event stream may have any line end, and a byte order mark.
    let text = String::from_utf8_lossy(body.bytes).replace("\r\n", "\n").replace('\r', "\n");
    let text = text.trim_start_matches(|c: char| c == '\u{feff}' || c.is_ascii_whitespace());
    let records = records(text);

    let error = records.iter().find_map(|(kind, record)| {
        error_in(record).or_else(|| (kind == "error").then(|| one_line(&record.to_string())))
    });
    if let Some(error) = error {
        return Err(error);
    }

    let seen = Seen::of(body.api, &records);
    if seen.fits {
        return seen.verdict(body);
    }

    Err(instead(body, text, &records))
}

/// Describes a body that does not have the form of the API.
fn instead(body: &Body<'_>, text: &str, records: &[(String, Value)]) -> String {
    let shown: String = one_line(text).chars().take(MAX_SHOWN).collect();
    let other = ModelApi::ALL.into_iter().find(|api| Seen::of(*api, records).fits);

    let shape = match text.bytes().next() {
        None => "an empty body".to_owned(),
        Some(b'<') => match title(text) {
            Some(title) => format!("an HTML page ({title})"),
            None => format!("a page: {shown}"),
        },
        Some(_) if other.is_some() => "one of another API".to_owned(),
        Some(b'{' | b'[') => format!("other JSON: {shown}"),
        Some(_) => format!("other text: {shown}"),
    };

    let stated =
        body.content_type.map_or_else(String::new, |kind| format!(" ({})", one_line(kind)));
    let remedy = match other {
        Some(other) => format!("set model.api = \"{}\"", other.name()),
        None => "check model.base_url, model.api, a proxy, or the login of the network".to_owned(),
    };

    format!("no answer of {}, but {shape}{stated}; {remedy}", body.api.name())
}

impl Seen {
    fn of(api: ModelApi, records: &[(String, Value)]) -> Self {
        let mut seen = Self::default();
        for (kind, record) in records {
            match api {
                ModelApi::OpenAiCompletions => seen.read_chunk(record),
                ModelApi::OpenAiResponses => seen.read_event(kind, record),
                ModelApi::AnthropicMessages => seen.read_block(kind, record),
            }
        }
        seen
    }

    fn read_chunk(&mut self, record: &Value) {
        let Some(choices) = record.get("choices").filter(|value| value.is_array()) else { return };
        self.fits = true;
        let Some(choice) = choices.get(0) else { return };
        self.finish(choice, "/finish_reason");
        // A stream has deltas, a whole document has a message.
        let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) else { return };

        match delta.get("content") {
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.add(part, "/text")),
            _ => self.add(delta, "/content"),
        }
        self.add(delta, "/refusal");
        for name in ["/reasoning_content", "/reasoning", "/reasoning_text"] {
            self.has_reasoning |= !text_at(delta, name).is_empty();
        }

        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.call(text_at(call, "/function/name"));
        }
    }

    fn read_event(&mut self, kind: &str, record: &Value) {
        let Some(kind) = kind.strip_prefix("response.") else { return };
        self.fits = true;

        match kind {
            "output_text.delta" | "refusal.delta" => self.add(record, "/delta"),
            "output_item.done" => {
                if let Some(item) = record.get("item") {
                    self.read_item(item);
                }
            }
            "completed" | "incomplete" | "failed" | "cancelled" => {
                let output = record.pointer("/response/output").and_then(Value::as_array);
                output.into_iter().flatten().for_each(|item| self.read_item(item));
                self.finish(record, "/response/incomplete_details/reason");
                self.finish(record, "/response/status");
                self.finish.get_or_insert_with(|| kind.to_owned());
            }
            _ => {}
        }
    }

    /// Reads an item of a response. Its text counts if no delta had one.
    fn read_item(&mut self, item: &Value) {
        match text_at(item, "/type") {
            "message" if self.text.is_empty() => {
                for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                    self.add(part, "/text");
                    self.add(part, "/refusal");
                }
            }
            "function_call" => self.call(text_at(item, "/name")),
            "reasoning" => self.has_reasoning = true,
            _ => {}
        }
    }

    fn read_block(&mut self, kind: &str, record: &Value) {
        match kind {
            "message_start" => self.fits = true,
            "content_block_start" => {
                self.fits = true;
                self.add(record, "/content_block/text");
                self.call(text_at(record, "/content_block/name"));
                self.has_reasoning |= text_at(record, "/content_block/type").contains("thinking");
            }
            "content_block_delta" => {
                self.fits = true;
                self.add(record, "/delta/text");
            }
            "message_delta" => self.finish(record, "/delta/stop_reason"),
            // Some servers give no reason.
            "message_stop" => drop(self.finish.get_or_insert_with(|| "end_turn".to_owned())),
            _ => {}
        }
    }

    fn add(&mut self, record: &Value, at: &str) {
        self.text.push_str(text_at(record, at));
    }

    fn call(&mut self, name: &str) {
        if !name.is_empty() {
            self.call.get_or_insert_with(|| name.to_owned());
        }
    }

    fn finish(&mut self, record: &Value, at: &str) {
        let reason = text_at(record, at);
        if !reason.is_empty() {
            self.finish.get_or_insert_with(|| reason.to_owned());
        }
    }

    /// Decides about an answer of the API.
    fn verdict(self, body: &Body<'_>) -> Result<String, String> {
        let text = one_line(&self.text);
        let Some(finish) = self.finish else {
            let name = match body.api {
                ModelApi::OpenAiCompletions => "finish_reason",
                ModelApi::OpenAiResponses => "response.completed",
                ModelApi::AnthropicMessages => "stop_reason",
            };
            let shown =
                if text.is_empty() { "without text".to_owned() } else { format!("({text})") };
            return Err(if body.is_cut {
                format!("the answer has more than {} bytes", body.bytes.len())
            } else {
                format!("the answer {shown} ends without {name}: agents take it for cut")
            });
        };

        let is_limit = ["length", "max_tokens", "max_output_tokens"].contains(&&*finish);
        let is_usual = [
            "stop",
            "end",
            "end_turn",
            "eos",
            "stop_sequence",
            "pause_turn",
            "tool_calls",
            "function_call",
            "tool_use",
            "completed",
            "incomplete",
        ];

        match (self.call, &*text) {
            _ if !is_limit && !is_usual.contains(&&*finish) => {
                Err(one_line(&format!("the provider stopped the answer: {finish}")))
            }
            (Some(call), _) => Ok(format!("a call of {}", one_line(&call))),
            // A model that reasons may use all tokens before its first word.
            (None, "") if is_limit => {
                Ok("cut in its reasoning, as the request allows few tokens".to_owned())
            }
            (None, "") if self.has_reasoning => {
                Err("the answer has reasoning but no text".to_owned())
            }
            (None, "") => Err("the answer has neither text nor a call".to_owned()),
            (None, _) => Ok(text),
        }
    }
}

/// Returns the records of a body with the names of their events: those of a stream, or the one of a JSON document.
/// Records that are not JSON are left out.
fn records(text: &str) -> Vec<(String, Value)> {
    if text.starts_with(['{', '[']) {
        let document = serde_json::from_str::<Value>(text).ok();

        // Google has its error in an array.
        let document = document
            .map(|value| value.get(0).filter(|value| value.is_object()).cloned().unwrap_or(value));

        // quackd's own agent reads whole documents of chat completions only.
        return document.map(|value| (String::new(), value)).into_iter().collect();
    }

    let read = |record: &str| {
        let (mut event, mut data) = ("", Vec::new());
        for line in record.lines() {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "data" => data.push(value),
                "event" => event = value,
                // Old versions of llama.cpp report errors in a field of this name.
                "error" => {
                    event = name;
                    data.push(value);
                }
                _ => {}
            }
        }

        let data = data.join("\n");
        let record = serde_json::from_str::<Value>(&data);
        // A character that is cut between two records is shown as its escape.
        let record =
            record.or_else(|_| serde_json::from_str(&data.replace("\\u", "\\\\u"))).ok()?;
        let kind = Some(text_at(&record, "/type")).filter(|kind| !kind.is_empty()).unwrap_or(event);
        Some((kind.to_owned(), record))
    };

    text.split("\n\n").filter_map(read).collect()
}

/// Returns the provider's error in a record or a body.
pub(super) fn error_in(record: &Value) -> Option<String> {
    let error = record.get("error").or_else(|| record.pointer("/response/error"));
    let text = match error.filter(|error| !error.is_null()) {
        Some(error) => {
            let message = error.get("message").unwrap_or(error);
            message.as_str().map_or_else(|| error.to_string(), str::to_owned)
        }
        None if text_at(record, "/type") == "error" => record.get("message")?.as_str()?.to_owned(),
        None => return None,
    };
    Some(one_line(&text))
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the title of an HTML page.
fn title(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("<title>")?;
    Some(one_line(rest.split_once("</title>")?.0))
}

/// Makes one line of a text: no control characters, single spaces, at most [`MAX_TEXT`].
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(MAX_TEXT).collect();
    stripped_line(&words.join(" "), MAX_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: ModelApi = ModelApi::OpenAiCompletions;
    const RESPONSES: ModelApi = ModelApi::OpenAiResponses;
    const MESSAGES: ModelApi = ModelApi::AnthropicMessages;

    fn judged(api: ModelApi, bytes: &str) -> Result<String, String> {
        let bytes = bytes.as_bytes();
        judge(&Body { api, content_type: Some("text/x"), bytes, is_cut: false })
    }

    fn stream(records: &[&str]) -> String {
        records.iter().map(|record| format!("data: {record}\n\n")).collect()
    }

    /// Answers with the text about them.
    const ANSWERS: [(ModelApi, &[&str], &str); 10] = [
        (
            CHAT,
            &[
                r#"{"choices":[{"delta":{"content":"o"}}]}"#,
                r#"{"choices":[{"delta":{"content":"k"},"finish_reason":"stop"}]}"#,
                "[DONE]",
            ],
            "ok",
        ),
        (
            CHAT,
            &[r#"{"choices":[{"message":{"content":[{"text":"ok"}]},"finish_reason":"stop"}]}"#],
            "ok",
        ),
        (
            CHAT,
            &[
                r#"{"choices":[]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"read_file"}}]},"finish_reason":"tool_calls"}]}"#,
            ],
            "a call of read_file",
        ),
        (
            CHAT,
            &[r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#],
            "cut in its reasoning, as the request allows few tokens",
        ),
        (
            RESPONSES,
            &[
                r#"{"type":"response.output_text.delta","delta":"ok"}"#,
                r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"text":"ok"}]}]}}"#,
            ],
            "ok",
        ),
        (
            RESPONSES,
            &[
                r#"{"type":"response.completed","response":{"output":[{"type":"message","content":[{"text":"ok"}]}]}}"#,
            ],
            "ok",
        ),
        (
            RESPONSES,
            &[
                r#"{"type":"response.output_item.done","item":{"type":"function_call","name":"read_file"}}"#,
                r#"{"type":"response.completed"}"#,
            ],
            "a call of read_file",
        ),
        (
            RESPONSES,
            &[
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
            ],
            "cut in its reasoning, as the request allows few tokens",
        ),
        (
            MESSAGES,
            &[
                r#"{"type":"content_block_delta","delta":{"text":"ok"}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
            ],
            "ok",
        ),
        (
            MESSAGES,
            &[
                r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"read_file"}}"#,
                r#"{"type":"message_stop"}"#,
            ],
            "a call of read_file",
        ),
    ];

    #[test]
    fn an_answer_with_text_or_a_call_passes_in_every_api() {
        for (api, records, expected) in ANSWERS {
            let body = stream(records);
            let event = format!(": x\nevent: y\n{body}");
            for body in [body.clone(), body.replace('\n', "\r\n"), body.replace('\n', "\r"), event]
            {
                assert_eq!(judged(api, &body), Ok(expected.to_owned()), "{body:?}");
            }
        }
        let document = r#"{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}"#;
        assert_eq!(judged(CHAT, document), Ok("ok".to_owned()));
    }

    #[test]
    fn a_body_that_is_no_answer_fails_in_every_api() {
        for (body, part) in [
            ("<!doctype html><title>Log\nin</title>", "an HTML page (Log in) (text/x)"),
            ("<p>x", "a page: <p>x"),
            ("", "an empty body"),
            (" \n", "an empty body"),
            ("{}", "other JSON: {}"),
            ("[]", "other JSON: []"),
            ("{\"a\":", "other JSON: {\"a\":"),
            ("null", "other text: null"),
            ("Ollama is running", "other text: Ollama is running"),
            ("data: hello\n\n", "other text: data: hello"),
            ("data: {}\n\ndata: [DONE]\n\n", "other text: data: {}"),
            (
                "data: {\"choices\":null,\"error_type\":\"x\"}\n\n",
                "other text: data: {\"choices\":null",
            ),
            ("data: [DONE]\n\n", "other text: data: [DONE]"),
            ("\u{0}\u{1}PNG", "other text: PNG"),
            (r#"{"code":1,"message":"bad key"}"#, r#"other JSON: {"code":1,"message":"bad key"}"#),
            (r#"{"error":{"message":"bad key"}}"#, "bad key"),
            (r#"{"error":"bad key"}"#, "bad key"),
            (r#"[{"error":{"message":"bad key"}}]"#, "bad key"),
            ("data: {\"error\":{\"message\":\"over\\nloaded\"}}\n\n", "over loaded"),
            ("event: error\ndata: {\"why\":1}\n\n", r#"{"why":1}"#),
            ("error: {\"code\":500}\n\n", r#"{"code":500}"#),
        ] {
            for api in ModelApi::ALL {
                let error = judged(api, body).unwrap_err();
                assert!(error.contains(part), "{body:?}: {error}");
                assert!(!error.contains('\n'));
            }
        }
    }

    #[test]
    fn an_answer_without_an_end_or_content_fails() {
        for (api, record, part) in [
            (CHAT, r#"{"choices":[]}"#, "without text ends without finish_reason"),
            (
                CHAT,
                r#"{"choices":[{"delta":{"content":"hi"}}]}"#,
                "(hi) ends without finish_reason",
            ),
            (
                CHAT,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                "neither text nor a call",
            ),
            (
                CHAT,
                r#"{"choices":[{"delta":{"reasoning":"x"},"finish_reason":"stop"}]}"#,
                "reasoning but no text",
            ),
            (
                CHAT,
                r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"content_filter"}]}"#,
                "content_filter",
            ),
            (
                RESPONSES,
                r#"{"type":"response.output_text.delta","delta":"hi"}"#,
                "(hi) ends without response.completed",
            ),
            (
                RESPONSES,
                r#"{"type":"response.completed","response":{"output":[]}}"#,
                "neither text nor a call",
            ),
            (
                RESPONSES,
                r#"{"type":"response.failed","response":{"error":{"message":"broke"}}}"#,
                "broke",
            ),
            (RESPONSES, r#"{"type":"response.failed","response":{"status":"failed"}}"#, "failed"),
            (
                MESSAGES,
                r#"{"type":"content_block_delta","delta":{"text":"hi"}}"#,
                "(hi) ends without stop_reason",
            ),
            (
                MESSAGES,
                r#"{"type":"message_start","message":{}}"#,
                "without text ends without stop_reason",
            ),
            (MESSAGES, r#"{"type":"message_stop"}"#, "no answer of anthropic-messages"),
        ] {
            let error = judged(api, &stream(&[record])).unwrap_err();
            assert!(error.contains(part), "{record}: {error}");
        }
        let cut =
            Body { api: CHAT, content_type: None, bytes: br#"data: {"choices":[]}"#, is_cut: true };
        assert!(judge(&cut).unwrap_err().contains("more than 20 bytes"));
    }

    #[test]
    fn an_answer_of_another_api_names_the_api() {
        let answers = [
            (CHAT, r#"{"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}"#),
            (RESPONSES, r#"{"type":"response.completed","response":{}}"#),
            (MESSAGES, r#"{"type":"message_start","message":{}}"#),
        ];
        for (sent, record) in answers {
            for api in ModelApi::ALL.into_iter().filter(|api| *api != sent) {
                let error = judged(api, &stream(&[record])).unwrap_err();
                let named = format!("set model.api = \"{}\"", sent.name());
                assert!(error.contains(&named), "{error}");
            }
        }
    }
}
