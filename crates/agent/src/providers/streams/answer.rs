//! The answer that a stream gives: blocks that open, grow and close, within limits.

use super::delta::{Delta, Finished};
use crate::message::{Block, StopReason, ToolCall, Usage};
use crate::providers::errors::{self, ErrorKind, ProviderError};
use crate::providers::json;
use crate::surrogates::{self, Pending};
use quackd_protocol::model::{ModelInfo, Price};
use serde_json::Value;
use std::borrow::Cow;

/// Maximum size of text, reasoning, signatures and calls of one answer, in bytes.
pub(super) const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Maximum number of blocks of one answer.
pub(super) const MAX_BLOCKS: usize = 256;

/// Maximum length of the provider's id of an answer, in bytes. A longer one is ignored.
const MAX_RESPONSE_ID: usize = 256;

/// Maximum length of the provider's id of a call, in bytes. A longer one is replaced.
const MAX_CALL_ID: usize = 256;

/// Maximum length of the provider's reason of the end, in bytes. The text of the error has all.
const MAX_RAW_STOP: usize = 64;

/// Kind of content in a block of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
    Call,
}

#[derive(Debug)]
struct Part {
    kind: Kind,
    /// Text, reasoning or the JSON of arguments.
    text: String,
    /// First half of a character at the end of the text so far.
    pending: Pending,
    signature: Option<String>,
    is_redacted: bool,
    call_id: String,
    call_name: String,
    is_ended: bool,
    /// Whether text came after the end, as interleaved calls have it. The block then ends once more at the end.
    is_stale: bool,
}

impl Part {
    fn call(&self) -> ToolCall {
        let (arguments, invalid) = json::arguments(&self.text);
        let (id, name) = (self.call_id.clone(), self.call_name.clone());
        let thought_signature = self.signature.clone();
        ToolCall { id, name, arguments, thought_signature, invalid }
    }

    fn into_block(self, cut: Option<&str>) -> Block {
        match self.kind {
            Kind::Text => Block::Text { text: self.text, text_signature: self.signature },
            Kind::Thinking => Block::Thinking {
                thinking: self.text,
                thinking_signature: self.signature,
                redacted: self.is_redacted,
            },
            Kind::Call => {
                let mut call = self.call();
                // The arguments may be cut, also if they are valid JSON.
                if let Some(why) = cut {
                    call.invalid = Some(why.to_owned());
                }
                Block::ToolCall(call)
            }
        }
    }
}

/// The answer so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    parts: Vec<Part>,
    /// Index of the block that has not ended.
    open: Option<usize>,
    bytes: usize,
    deltas: Vec<Delta>,
    pub(super) usage: Usage,
    /// The cost that the provider has sent, in US dollars.
    pub(super) reported_cost: Option<f64>,
    /// The provider's reason of the end. `None` before its end marker.
    pub(super) stop: Option<StopReason>,
    raw_stop: Option<String>,
    response_id: Option<String>,
    /// Whether the provider has marked a text as the model's refusal.
    pub(super) is_refusal: bool,
    error: Option<ProviderError>,
    /// Whether the provider has reported the failure in the stream.
    is_reported: bool,
    /// Details of the reasoning, which the provider wants back as they are.
    details: Vec<Value>,
    /// Whether the record that is being read has halves of characters, and whether any record had.
    has_halves: bool,
    had_halves: bool,
}

impl Answer {
    /// Takes the deltas since the last call.
    pub(super) fn take_deltas(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    /// Starts with the next record.
    pub(super) fn begin_record(&mut self, has_halves: bool) {
        self.has_halves = has_halves;
        self.had_halves |= has_halves;
    }

    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Keeps the first failure.
    pub(super) fn fail(&mut self, error: ProviderError) {
        self.error.get_or_insert(error);
    }

    /// Keeps a failure that the provider reports in the stream.
    pub(super) fn fail_as_reported(&mut self, error: ProviderError) {
        self.is_reported |= !self.has_failed();
        self.fail(error);
    }

    /// Takes a reason of the end that is a failure, such as `content_filter`.
    pub(super) fn stopped(&mut self, reason: &str) {
        let error = errors::stopped(reason);
        if reason.len() <= MAX_RAW_STOP {
            self.raw_stop.get_or_insert_with(|| reason.to_owned());
        }
        self.fail(error);
    }

    pub(super) fn set_response_id(&mut self, id: &str) {
        if self.response_id.is_none() && !id.is_empty() && id.len() <= MAX_RESPONSE_ID {
            self.response_id = Some(id.to_owned());
        }
    }

    fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| part.kind == Kind::Call)
    }

    /// Returns the index of the open block, if it is of this kind.
    pub(super) fn open_of(&self, kind: Kind) -> Option<usize> {
        self.open.filter(|index| self.parts.get(*index).is_some_and(|part| part.kind == kind))
    }

    /// Adds text to the open block of this kind, or to a new one. Returns its index.
    pub(super) fn continue_with(&mut self, kind: Kind, delta: &str) -> Option<usize> {
        if delta.is_empty() {
            return None;
        }
        let index = self.open_of(kind).or_else(|| self.start(kind))?;
        self.append(index, delta);
        Some(index)
    }

    /// Ends the open block and starts one. `None` if the answer has too many.
    pub(super) fn start(&mut self, kind: Kind) -> Option<usize> {
        self.start_with(kind, "", "")
    }

    /// Starts a call. One without an id, or with a longer one than [`MAX_CALL_ID`], gets one that is unique in this
    /// answer.
    pub(super) fn start_call(&mut self, id: &str, name: &str) -> Option<usize> {
        if (1..=MAX_CALL_ID).contains(&id.len()) {
            return self.start_with(Kind::Call, id, name);
        }

        let answer = self.response_id.as_deref().unwrap_or_default();
        let id = format!("call_{answer}_{}", self.parts.len());
        self.start_with(Kind::Call, &id, name)
    }

    fn start_with(&mut self, kind: Kind, id: &str, name: &str) -> Option<usize> {
        if self.parts.len() >= MAX_BLOCKS {
            self.fail_fatally(&format!("the answer has more than {MAX_BLOCKS} blocks"));
        }

        if self.has_failed() || !self.count(id.len() + name.len()) {
            return None;
        }

        self.end_open();
        let content_index = self.parts.len();
        self.parts.push(Part {
            kind,
            text: String::new(),
            pending: Pending::default(),
            signature: None,
            is_redacted: false,
            call_id: id.to_owned(),
            call_name: name.to_owned(),
            is_ended: false,
            is_stale: false,
        });

        self.open = Some(content_index);
        self.deltas.push(match kind {
            Kind::Text => Delta::TextStart { content_index },
            Kind::Thinking => Delta::ThinkingStart { content_index },
            Kind::Call => {
                let (id, name) = (id.to_owned(), name.to_owned());
                Delta::ToolCallStart { content_index, id, name }
            }
        });
        Some(content_index)
    }

    /// Adds text to a block.
    pub(super) fn append(&mut self, content_index: usize, delta: &str) {
        if delta.is_empty() || self.has_failed() || !self.count(delta.len()) {
            return;
        }

        let Some(part) = self.parts.get_mut(content_index) else { return };
        let delta = match (self.has_halves, part.pending.is_waiting()) {
            (false, false) => delta.to_owned(),
            (false, true) => part.pending.end_before(delta),
            (true, _) => part.pending.join(delta),
        };
        self.add(content_index, delta);
    }

    /// Adds text without halves to a block.
    fn add(&mut self, content_index: usize, delta: String) {
        let Some(part) = self.parts.get_mut(content_index).filter(|_| !delta.is_empty()) else {
            return;
        };

        part.text.push_str(&delta);
        part.is_stale |= part.is_ended;
        self.deltas.push(match part.kind {
            Kind::Text => Delta::TextDelta { content_index, delta },
            Kind::Thinking => Delta::ThinkingDelta { content_index, delta },
            Kind::Call => Delta::ToolCallDelta { content_index, delta },
        });
    }

    /// Sets the whole text of a block, as a provider repeats it at the block's end. Nothing if it is empty.
    pub(super) fn settle(&mut self, index: usize, text: &str) {
        let Some(part) = self.parts.get_mut(index).filter(|_| !text.is_empty()) else { return };
        // The whole text has both halves.
        part.pending = Pending::default();
        let text = self.whole(text);
        let Some(part) = self.parts.get(index) else { return };
        if let Some(rest) = text.strip_prefix(&*part.text) {
            self.append(index, rest);
        // The clients have another text, so that the block ends once more.
        } else if self.count(text.len())
            && let Some(part) = self.parts.get_mut(index)
        {
            part.text = text.into_owned();
            part.is_stale |= part.is_ended;
        }
    }

    /// Adds to the signature of a block.
    pub(super) fn sign(&mut self, index: usize, more: &str) {
        let more = self.whole(more);
        if !more.is_empty()
            && self.count(more.len())
            && let Some(part) = self.parts.get_mut(index)
        {
            part.signature.get_or_insert_default().push_str(&more);
        }
    }

    /// Joins the halves of a text that no other record continues.
    fn whole<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.has_halves { Cow::Owned(surrogates::joined(text)) } else { Cow::Borrowed(text) }
    }

    /// Adds a detail of the reasoning. The pieces of one detail have its index and type; their texts are joined.
    pub(super) fn add_detail(&mut self, detail: &Value) {
        if !self.count(detail.to_string().len()) {
            return;
        }

        let is_same = |known: &&mut Value| {
            ["index", "type"].iter().all(|name| known.get(name) == detail.get(name))
        };

        let known = self.details.iter_mut().rev().find(is_same).and_then(Value::as_object_mut);
        let Some(known) = known.filter(|_| detail.get("index").is_some()) else {
            self.details.push(detail.clone());
            return;
        };

        for (name, value) in detail.as_object().into_iter().flatten() {
            match (known.get_mut(name), value) {
                (Some(Value::String(before)), Value::String(more))
                    if ["text", "summary", "data"].contains(&name.as_str()) =>
                {
                    before.push_str(more);
                }
                // A null keeps the earlier value.
                (_, Value::Null) => {}
                _ => drop(known.insert(name.clone(), value.clone())),
            }
        }
    }

    /// Keeps the details as the signature of the reasoning.
    fn sign_with_details(&mut self) {
        if self.details.is_empty() || self.parts.len() >= MAX_BLOCKS {
            return;
        }

        let mut signature = Value::Array(std::mem::take(&mut self.details)).to_string();
        if self.had_halves {
            signature = surrogates::joined(&signature);
        }
        let signature = Some(signature);

        match self.parts.iter_mut().find(|part| part.kind == Kind::Thinking) {
            Some(part) => part.signature = signature,
            // Some models hide the reasoning and send only its details.
            None => self.parts.push(Part {
                kind: Kind::Thinking,
                text: String::new(),
                pending: Pending::default(),
                signature,
                is_redacted: false,
                call_id: String::new(),
                call_name: String::new(),
                is_ended: true,
                is_stale: false,
            }),
        }
    }

    /// Marks the reasoning of a block as hidden by the provider.
    pub(super) fn redact(&mut self, index: usize) {
        if let Some(part) = self.parts.get_mut(index) {
            part.is_redacted = true;
        }
    }

    /// Completes the name of a call that started without one.
    pub(super) fn name_call(&mut self, index: usize, name: &str) {
        if !name.is_empty()
            && self.parts.get(index).is_some_and(|part| part.call_name.is_empty())
            && self.count(name.len())
            && let Some(part) = self.parts.get_mut(index)
        {
            name.clone_into(&mut part.call_name);
        }
    }

    pub(super) fn call_name(&self, index: usize) -> &str {
        self.parts.get(index).map_or("", |part| &part.call_name)
    }

    /// Returns the text of a block so far.
    pub(super) fn text_of(&self, index: usize) -> &str {
        self.parts.get(index).map_or("", |part| &part.text)
    }

    /// Whether the arguments of a call are complete.
    pub(super) fn has_arguments(&self, index: usize) -> bool {
        let text =
            self.parts.get(index).map(|part| part.text.trim()).filter(|text| text.ends_with('}'));
        text.is_some_and(|text| json::arguments(text).1.is_none())
    }

    /// Ends a block, if it is open.
    pub(super) fn end(&mut self, index: usize) {
        if self.open == Some(index) {
            self.end_open();
        }
    }

    /// Sets the counts of tokens, and prices them.
    pub(super) fn set_usage(&mut self, usage: Usage, model: &ModelInfo) {
        let usage = usage.priced(model.price, self.reported_cost);
        if usage != self.usage {
            self.usage = usage;
            self.deltas.push(Delta::Usage(usage));
        }
    }

    /// Ends the answer. It was aborted if it has neither failed nor reached the provider's end marker.
    pub(super) fn finish(mut self, model: &ModelInfo) -> (Vec<Delta>, Finished) {
        // The stream has ended, so no second half of a character comes.
        (0..self.parts.len()).for_each(|index| self.end_pending(index));
        self.end_open();
        self.sign_with_details();

        for index in 0..self.parts.len() {
            if self.parts.get(index).is_some_and(|part| part.is_stale) {
                self.push_end(index);
            }
        }

        let has_failed = self.has_failed();
        let stop_reason = match self.stop {
            _ if has_failed => StopReason::Error,
            None => StopReason::Aborted,
            // Some providers state the wrong one of these two.
            Some(StopReason::Stop) if self.has_calls() => StopReason::ToolUse,
            Some(StopReason::ToolUse) if !self.has_calls() => StopReason::Stop,
            Some(stop) => stop,
        };

        let cut = match stop_reason {
            StopReason::Stop | StopReason::ToolUse => None,
            StopReason::Length => Some(errors::cut_call(self.usage.output, model)),
            _ => Some("the answer ended before they were complete".to_owned()),
        };

        let is_empty = self.parts.iter().all(|part| match part.kind {
            Kind::Text => part.text.trim().is_empty(),
            Kind::Thinking => true,
            Kind::Call => false,
        });

        let silent = errors::silent_overflow(&self.usage, stop_reason, model);
        let has_nothing = is_empty && self.stop.is_some() && !has_failed && silent.is_none();
        let empty = has_nothing.then(|| errors::empty(stop_reason, &self.usage, model));
        let stop_reason = if has_nothing { StopReason::Error } else { stop_reason };

        // An error in place of any content counts as a refusal.
        let is_blank = |part: &Part| part.text.is_empty() && part.kind != Kind::Call;
        let has_refused = self.is_reported && self.parts.iter().all(is_blank);
        let cut = cut.as_deref();

        let mut usage = self.usage;
        // Without counts, the cost of a finished answer is not known.
        let is_counted = usage.total_tokens != 0 || self.reported_cost.is_some();
        usage.cost.unknown |= self.stop.is_some() && !is_counted && model.price != Price::Free;
        let content = self.parts.into_iter().map(|part| part.into_block(cut)).collect();
        let finished = Finished {
            content,
            usage,
            stop_reason,
            raw_stop_reason: self
                .raw_stop
                .or_else(|| self.is_refusal.then(|| "refusal".to_owned())),
            error: self.error.or(silent).or(empty),
            is_refusal: self.is_refusal,
            has_refused,
            response_id: self.response_id,
            any_bytes: false,
        };
        (self.deltas, finished)
    }

    fn end_open(&mut self) {
        if let Some(index) = self.open.take() {
            self.push_end(index);
        }
    }

    /// Gives up the second half of a character.
    fn end_pending(&mut self, index: usize) {
        if let Some(lone) = self.parts.get_mut(index).and_then(|part| part.pending.end()) {
            self.add(index, lone.to_string());
        }
    }

    fn push_end(&mut self, content_index: usize) {
        // Other calls may come between the parts of a call, but no other block between those of a text.
        if self.parts.get(content_index).is_some_and(|part| part.kind != Kind::Call) {
            self.end_pending(content_index);
        }

        let Some(part) = self.parts.get_mut(content_index) else { return };
        (part.is_ended, part.is_stale) = (true, false);
        self.deltas.push(match part.kind {
            Kind::Text => Delta::TextEnd { content_index, content: part.text.clone() },
            Kind::Thinking => Delta::ThinkingEnd { content_index, content: part.text.clone() },
            Kind::Call => Delta::ToolCallEnd { content_index, tool_call: part.call() },
        });
    }

    /// Counts bytes of content. Returns false, and fails the answer, if they are too many.
    fn count(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        let fits = self.bytes <= MAX_ANSWER_BYTES;
        if !fits {
            self.fail_fatally(&format!("the answer is longer than {MAX_ANSWER_BYTES} bytes"));
        }
        fits
    }

    fn fail_fatally(&mut self, text: &str) {
        self.fail(ProviderError { text: text.to_owned(), kind: ErrorKind::Fatal });
    }
}
