//! Streams of providers: bytes, cut anywhere, to deltas and to the content of a message.

mod answer;
mod anthropic;
mod completions;
mod delta;
mod responses;
mod sse;

pub(super) use completions::REASONING_FIELDS;
pub use delta::{Delta, Finished};

use super::errors::{self, ErrorKind, ProviderError};
use super::json;
use answer::Answer;
use quackd_protocol::model::{ModelApi, ModelInfo};

/// End of the bytes of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// The body is complete.
    Complete,
    /// The rest is lost, with the reason.
    Broken(String),
    /// The user aborted.
    Aborted,
}

/// State machine from the bytes of a body to deltas.
#[derive(Debug)]
pub struct Stream {
    model: ModelInfo,
    dialect: Dialect,
    body: Body,
    answer: Answer,
    any_bytes: bool,
    has_end_marker: bool,
}

#[derive(Debug)]
enum Dialect {
    Completions(completions::Reader),
    Responses(responses::Reader),
    Anthropic(anthropic::Reader),
}

#[derive(Debug)]
enum Body {
    /// Only white space and a byte order mark so far.
    Empty,
    /// Server-sent events.
    Events(sse::Reader),
    /// One JSON document, as servers send that ignore `stream`, and for some errors.
    Document(Vec<u8>),
    /// The beginning of something else, such as a page.
    Other(Vec<u8>),
}

/// Maximum size of the start of a body that is no answer, in bytes. Its title is searched in it.
const MAX_OTHER_BYTES: usize = 8 * 1024;

/// Whether a line can be one of server-sent events. A prefix of such a line can.
fn is_event_line(line: &[u8]) -> bool {
    // Old versions of llama.cpp report errors in `error`.
    const STARTS: [&[u8]; 6] = [b":", b"data", b"event", b"id", b"retry", b"error"];
    STARTS.iter().any(|start| line.iter().zip(*start).all(|(byte, other)| byte == other))
}

impl Stream {
    /// Creates the stream of one answer of the model.
    #[must_use]
    pub fn new(model: &ModelInfo) -> Self {
        let dialect = match model.api {
            ModelApi::OpenAiCompletions => Dialect::Completions(completions::Reader::default()),
            ModelApi::OpenAiResponses => Dialect::Responses(responses::Reader::default()),
            ModelApi::AnthropicMessages => Dialect::Anthropic(anthropic::Reader::default()),
        };

        Self {
            model: model.clone(),
            dialect,
            body: Body::Empty,
            answer: Answer::default(),
            any_bytes: false,
            has_end_marker: false,
        }
    }

    /// Returns the model that answers, which can differ from the session's current one.
    #[must_use]
    pub fn model(&self) -> &ModelInfo {
        &self.model
    }

    /// Reads the next bytes of the body. Returns the deltas that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Delta> {
        self.any_bytes |= !bytes.is_empty();
        let mut rest = bytes;

        if let Body::Empty = self.body {
            // A byte order mark may come in parts, so each of its bytes is skipped.
            let is_blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
            let start = rest.iter().position(|byte| !is_blank(byte)).unwrap_or(rest.len());
            rest = rest.get(start..).unwrap_or_default();
            self.body = match rest.first() {
                None => return Vec::new(),
                // Some servers send one document in place of a stream.
                Some(b'{' | b'[') => Body::Document(Vec::new()),
                Some(_) if is_event_line(rest) => Body::Events(sse::Reader::default()),
                Some(_) => Body::Other(Vec::new()),
            };
        }

        while !self.is_over() {
            let next = match &mut self.body {
                Body::Events(reader) => reader.next(&mut rest),
                Body::Document(document)
                    if document.len() + rest.len() > answer::MAX_ANSWER_BYTES =>
                {
                    Err(sse::TooLong)
                }
                Body::Document(document) => {
                    document.extend_from_slice(rest);
                    break;
                }
                Body::Other(start) => {
                    let room = MAX_OTHER_BYTES.saturating_sub(start.len());
                    start.extend(rest.iter().take(room));
                    if room < rest.len() {
                        self.answer.fail(errors::not_an_answer(&String::from_utf8_lossy(start)));
                    }
                    break;
                }
                Body::Empty => break,
            };

            match next {
                Ok(Some(record)) => self.read(&record, false),
                Ok(None) => break,
                Err(sse::TooLong) => {
                    let text = "the stream has a record that is too long".to_owned();
                    self.answer.fail(ProviderError { text, kind: ErrorKind::Fatal });
                }
            }
        }
        self.answer.take_deltas()
    }

    /// Returns true if the provider has reported the end or an error. Further bytes have no effect.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.has_end_marker || self.answer.has_failed()
    }

    /// Ends the stream. Returns the last deltas, which contain every missing end, and the parts of the message.
    #[must_use]
    pub fn finish(mut self, how: StreamEnd) -> (Vec<Delta>, Finished) {
        if how == StreamEnd::Complete && !self.is_over() {
            self.read_rest();
        }

        if self.answer.stop.is_none() {
            match how {
                StreamEnd::Complete => {
                    let missing = match self.dialect {
                        Dialect::Completions(_) => "finish_reason",
                        Dialect::Responses(_) => "response.completed",
                        Dialect::Anthropic(_) => "stop_reason",
                    };
                    let text = format!("Stream ended without {missing}");
                    self.answer.fail(errors::transport_error(&text));
                }
                StreamEnd::Broken(text) => self.answer.fail(errors::transport_error(&text)),
                // An aborted answer is no failure.
                StreamEnd::Aborted => {}
            }
        }

        let (deltas, finished) = self.answer.finish(&self.model);
        (deltas, Finished { any_bytes: self.any_bytes, ..finished })
    }

    /// Reads the bytes that only the end of the body completes.
    fn read_rest(&mut self) {
        match std::mem::replace(&mut self.body, Body::Empty) {
            Body::Empty => {}
            Body::Other(start) => {
                self.answer.fail(errors::not_an_answer(&String::from_utf8_lossy(&start)));
            }
            Body::Events(reader) => {
                if let Some(record) = reader.end() {
                    self.read(&record, true);
                }
            }
            Body::Document(document) => {
                let text = String::from_utf8_lossy(&document);
                let Some((value, has_halves)) = json::record(&text) else { return };
                self.answer.begin_record(has_halves);

                if let Some(error) = errors::in_band(value.get(0).unwrap_or(&value), "") {
                    return self.answer.fail_as_reported(error);
                }

                match &mut self.dialect {
                    Dialect::Completions(reader) if value.get("choices").is_some() => {
                        reader.read(&value, &mut self.answer, &self.model);
                    }
                    _ => self.answer.fail(errors::not_an_answer(&text)),
                }
            }
        }
    }

    /// Reads a record. The last one of a body may be cut, and is then ignored.
    fn read(&mut self, record: &sse::Record, is_last: bool) {
        if record.data.trim() == "[DONE]" {
            self.has_end_marker = true;
            return;
        }

        let Some((value, has_halves)) = json::record(&record.data) else {
            // A word such as `keep-alive` is no part of an answer.
            let is_cut = record.data.trim_start().starts_with(['{', '[']);
            if !is_last && is_cut {
                self.answer
                    .fail(errors::transport_error("the stream has a record that is not JSON"));
            }
            return;
        };

        if let Some(error) = errors::in_band(&value, &record.event) {
            self.answer.fail_as_reported(error);
            return;
        }

        self.answer.begin_record(has_halves);
        let event = json::text(&value, "/type");
        let event = if event.is_empty() { &record.event } else { event };

        let (answer, model) = (&mut self.answer, &self.model);
        match &mut self.dialect {
            Dialect::Completions(reader) => reader.read(&value, answer, model),
            Dialect::Responses(reader) => {
                self.has_end_marker = reader.read(event, &value, answer, model);
            }
            Dialect::Anthropic(reader) => {
                self.has_end_marker = reader.read(event, &value, answer, model);
            }
        }
    }
}
