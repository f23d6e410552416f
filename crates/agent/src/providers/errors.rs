//! Failures of providers: one line for the user, and whether another attempt or a shorter context can help.

use super::json;
use crate::message::{StopReason, Usage};
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::model::{EndReason, ModelInfo};
use serde_json::Value;

/// Maximum length of an error's text, in characters.
const MAX_CHARS: usize = 500;

/// A classified failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ProviderError {
    /// One line without control characters, at most 500 characters after the status.
    pub text: String,
    /// Decides the remedy.
    pub kind: ErrorKind,
}

/// Remedy for a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The context is too long: compact it, then try again.
    Overflow,
    /// The request has too many bytes: leave out its images, or else compact the context.
    TooLarge,
    /// The provider does not accept an image of the request: leave it out.
    Images,
    /// Load, a limit of requests or the connection: wait, then try again.
    Retryable,
    /// The same, and the body states the wait, in milliseconds.
    Waits(u64),
    /// Neither, such as a wrong key, a bad request or a used-up quota.
    Fatal,
    /// Neither, and clients get this reason.
    Final(EndReason),
}

/// Signs of a limit of requests, which is never an overflow.
const RATE: &[&str] = &["rate limit", "ratelimit", "too many requests", "per minute"];

/// Signs of a context that is too long. `*` matches any text, `#` a digit after optional spaces.
const OVERFLOW: &[&str] = &[
    "prompt is too long",
    "prompt too long",
    "prompt exceeds max length",
    "input is too long",
    "exceeds the context window",
    "exceed context limit",
    "input token count * exceeds the maximum",
    "maximum prompt length is#",
    "reduce the length of the messages",
    "maximum context length is#",
    "exceeds * maximum context length",
    "exceeds the limit of#",
    "exceeds the available context size",
    "greater than the context length",
    "longer than the model's context length",
    "context window exceed",
    "exceeded model token limit",
    "context length exceeded",
    "too many tokens",
    "token limit exceeded",
    "request too large",
    "maximum allowed input length",
    "too large for model with * maximum context length",
    "configured context size is#",
    "range of input length should be",
];

/// Signs of a failure that is about an image.
const IMAGE: &[&str] = &["image", "multimodal", "multi-modal", "mmproj", " vision"];

/// Signs that an image, or a request, is not accepted.
const NOT_ACCEPTED: &[&str] = &[
    "support",
    "exceed",
    "too large",
    "too big",
    "too many",
    "at most",
    "invalid",
    "not valid",
    "unable to",
    "could not",
    "cannot",
    "does not",
    "failed to",
    "mmproj",
    "missing data",
];

/// Signs of failures that no attempt of the same request can change.
const DENIED: &[&str] = &[
    "insufficient quota",
    "exceeded your current quota",
    "quota exceeded",
    "billing",
    "out of budget",
    "budget exceeded",
    "usage limit",
    "insufficient credit",
    "insufficient balance",
    "credit balance is too low",
];

/// Signs of failures that pass, for failures without a status.
const PASSING: &[&str] = &[
    "overloaded",
    "rate limit",
    "too many requests",
    "service unavailable",
    "temporarily unavailable",
    "server error",
    "internal error",
    "api error",
    "connection",
    "network",
    "other side closed",
    "fetch failed",
    "upstream",
    "reset before headers",
    "terminated",
    "retry delay",
    "timeout",
    "timed out",
    "ended without",
    "socket hang up",
    "broken pipe",
];

/// Statuses after which the same request may succeed.
const PASSING_STATUSES: &[u16] =
    &[408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529];

/// Returns true for a reason with which Anthropic, OpenAI or Google end a refused answer, such as `refusal`.
fn is_refusal(reason: &str) -> bool {
    const REASONS: [&str; 7] = [
        "refusal",
        "content filter",
        "safety",
        "recitation",
        "prohibited content",
        "blocklist",
        "guardrail intervened",
    ];
    let reason = reason.to_lowercase().replace(['_', '-'], " ");
    REASONS.iter().any(|known| reason.starts_with(known))
}

/// Returns the failure for a body that is no answer of the API, such as the page of a web server or
/// of a login.
pub(super) fn not_an_answer(body: &str) -> ProviderError {
    let content = if body.trim_start().starts_with('<') {
        format!("an HTML page ({})", line(&title(body)))
    } else {
        "something else".to_owned()
    };

    let text = format!(
        "The server sent {content} instead of an answer of the API: check model.base_url, a proxy, or the login of the network"
    );
    ProviderError { text, kind: ErrorKind::Final(EndReason::NotAnAnswer) }
}

/// Reads the body of an answer with an error status, which may be JSON, text, HTML or empty. `stated`: the head states when
/// to try again.
#[must_use]
pub fn http_error(status: u16, body: &[u8], stated: bool) -> ProviderError {
    let body = String::from_utf8_lossy(body);
    let is_page = body.trim_start().starts_with('<');
    // A page with a passing status is the error of a proxy, which may go away.
    if is_page && status != 413 && !PASSING_STATUSES.contains(&status) {
        let error = not_an_answer(&body);
        return ProviderError { text: format!("{status} {}", error.text), ..error };
    }

    let document = json::parse(body.trim());
    let delay = document.as_ref().and_then(body_delay);
    let (message, sign) = match document {
        Some(value) => described(&value),
        None if is_page => (title(&body), String::new()),
        None => (body.clone().into_owned(), String::new()),
    };

    let message = line(&message);
    let is_stated = stated || delay.is_some();
    let kind = waiting(classified(Some(status), &format!("{message} {sign}"), is_stated), delay);

    if message.is_empty() {
        // A bare 400 is the answer of some servers to a context that is too long.
        let kind = if status == 400 { ErrorKind::Overflow } else { kind };
        return ProviderError { text: format!("{status} (no body)"), kind };
    }
    ProviderError { text: format!("{status} {message}"), kind }
}

/// Returns the delay in the details of an error of Google (`google.rpc.RetryInfo`), in milliseconds.
fn body_delay(value: &Value) -> Option<u64> {
    let value = value.get(0).unwrap_or(value);
    let details = value.pointer("/error/details").and_then(Value::as_array)?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    retry_delay(&format!("retry in {delay}"))
}

fn waiting(kind: ErrorKind, delay: Option<u64>) -> ErrorKind {
    match (kind, delay) {
        (ErrorKind::Retryable, Some(delay)) => ErrorKind::Waits(delay),
        (kind, _) => kind,
    }
}

/// Returns the failure of a connection that was not made, broke, or was silent for too long.
/// Another attempt may always help.
#[must_use]
pub fn transport_error(text: &str) -> ProviderError {
    ProviderError { text: line(text), kind: ErrorKind::Retryable }
}

/// Returns the delay that the text of an error asks for, such as `try again in 1m2.5s`, in milliseconds.
#[must_use]
pub fn retry_delay(text: &str) -> Option<u64> {
    const MARKS: [&str; 4] = ["retry in ", "try again in ", "reset after ", "retry after "];
    let text = text.to_ascii_lowercase();
    let mut rest = MARKS.iter().find_map(|mark| text.split_once(mark))?.1;
    let mut total = None;

    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let Ok(number) = number.parse::<f64>() else { return total };

        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);

        let scale = match unit {
            "ms" | "milliseconds" => 1.0,
            "s" | "second" | "seconds" => 1000.0,
            "m" | "min" | "minute" | "minutes" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return total,
        };

        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let delay = (number * scale).ceil() as u64;
        total = Some(total.unwrap_or(0_u64).saturating_add(delay));
        rest = next;
    }
}

/// Returns the window that the text of an overflow states, and the tokens of the input if it states them: "maximum context
/// length is 8192 tokens and your request has 3411 input tokens".
#[must_use]
pub fn stated_window(text: &str) -> Option<(u64, Option<u64>)> {
    const WINDOWS: [&str; 4] = [
        "context length is ",
        "context size is ",
        "available context size (",
        "context length of ",
    ];

    let text = text.to_ascii_lowercase();
    let first = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text.get(..end).and_then(|digits| digits.parse::<u64>().ok())
    };

    let window = WINDOWS.iter().find_map(|mark| first(text.split_once(mark)?.1))?;

    // The number is directly before the mark.
    let last = |text: &str| {
        let text = text.trim_end();
        let start = text.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        text.get(start..).and_then(|digits| digits.parse::<u64>().ok())
    };

    let inputs = [" input tokens", " in the messages", " tokens from the input"];
    let input = inputs.iter().find_map(|mark| last(text.split_once(mark)?.0));
    Some((window, input))
}

/// Returns the error that a record of a stream reports, if it reports one.
pub(super) fn in_band(record: &Value, event: &str) -> Option<ProviderError> {
    // Some servers have the field in every record, without a content.
    let is_alone = record.as_object().is_some_and(|fields| fields.len() == 1);

    let has_error = match record.get("error") {
        None | Some(Value::Null) => false,
        Some(_) if is_alone => true,
        Some(Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.trim().is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(_) => true,
    };

    let is_error = |name: &str| json::text(record, name) == "error";
    if !has_error && !is_error("/type") && !is_error("/object") && event != "error" {
        return None;
    }
    Some(reported(record))
}

/// Returns the error of a record, regardless of its shape.
pub(super) fn reported(record: &Value) -> ProviderError {
    let (message, sign) = described(record);

    let error = record.get("error").unwrap_or(record);
    let status = [error, record].into_iter().find_map(|fields| json::count(fields, "/code"));
    let status = status.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
    // Some servers send a code without a text.
    let message = if line(&message).is_empty() { &sign } else { &message };

    let text = line(message);
    let delay = body_delay(record);
    let kind = classified(status, &format!("{text} {sign}"), delay.is_some());
    let kind = waiting(kind, delay);
    let text = if text.is_empty() { "the provider reported an error".to_owned() } else { text };
    ProviderError { text, kind }
}

/// Returns the failure that a provider gives as the reason of the end, such as `content_filter`.
pub(super) fn stopped(reason: &str) -> ProviderError {
    let text = line(&format!("Provider stopped the answer: {reason}"));
    let kind = if is_refusal(reason) {
        ErrorKind::Final(EndReason::Refusal)
    } else {
        classified(None, &text, false)
    };
    ProviderError { text, kind }
}

/// Returns the reason, for the model, for which the calls of an answer that reached its limit do
/// not run.
pub(super) fn cut_call(output: u64, model: &ModelInfo) -> String {
    let limit = if output == 0 { model.max_tokens } else { output };
    format!(
        "the answer was cut at its limit of {limit} tokens. Write smaller parts, such as a long file in several calls"
    )
}

/// Returns the failure of an answer without text and without calls.
pub(super) fn empty(stop: StopReason, usage: &Usage, model: &ModelInfo) -> ProviderError {
    let text = match stop {
        StopReason::Length => format!(
            "The answer was cut before its first word, after {} tokens of output and {} of input. The window of the \
             server may be smaller than the {} tokens that are assumed: set model.context_window, and on the server a \
             larger one (Ollama: OLLAMA_CONTEXT_LENGTH)",
            usage.output,
            usage.input.saturating_add(usage.cache_read),
            model.context_window
        ),
        _ => "The model sent an empty answer".to_owned(),
    };

    let reason = match stop {
        StopReason::Length => EndReason::Length,
        _ => EndReason::Empty,
    };

    ProviderError { text, kind: ErrorKind::Final(reason) }
}

/// Returns the failure of an answer whose context was cut: some servers cut a context that is too long instead of
/// reporting it.
pub(super) fn silent_overflow(
    usage: &Usage,
    stop: StopReason,
    model: &ModelInfo,
) -> Option<ProviderError> {
    let (input, window) = (usage.input.saturating_add(usage.cache_read), model.context_window);
    let is_overflow = match stop {
        StopReason::Stop => input > window,
        // A window that is almost full leaves no token for the answer.
        StopReason::Length => {
            usage.output == 0 && u128::from(input) * 100 >= u128::from(window) * 99
        }
        _ => false,
    };
    (is_overflow && window > 0).then(|| overflow(input, window))
}

/// Returns the failure of a context that the provider has cut without reporting it.
fn overflow(input: u64, window: u64) -> ProviderError {
    let text = format!("{input} tokens of input exceed the context window of {window} tokens");
    ProviderError { text, kind: ErrorKind::Overflow }
}

/// Returns the message of an error as JSON, and its type and code.
fn described(value: &Value) -> (String, String) {
    // Google sends a list with one error.
    let value = value.get(0).unwrap_or(value);

    let error = match value.get("error") {
        Some(Value::String(text)) => return (text.clone(), String::new()),
        Some(error @ Value::Object(_)) => error,
        _ => value,
    };

    let messages = ["/message", "/detail", "/errors/0/message", "/detail/0/msg"];
    let message = messages.iter().map(|at| json::text(error, at)).find(|text| !text.is_empty());
    // OpenRouter has the text of the provider behind it here.
    let raw = json::text(error, "/metadata/raw");
    let joined = [message.unwrap_or_default(), raw].join(" ");

    let names = ["/type", "/code", "/status"].map(|at| json::text(error, at));
    (joined, names.join(" "))
}

/// Returns the title of an HTML page.
fn title(page: &str) -> String {
    let after = page.split_once("<title>").map(|(_, rest)| rest);
    let title = after.and_then(|rest| rest.split_once("</title>"));
    title.map_or_else(|| "HTML page".to_owned(), |(title, _)| title.to_owned())
}

/// Makes one line of a text: no control characters, single spaces, at most [`MAX_CHARS`].
fn line(text: &str) -> String {
    let bounded: String = text.chars().take(8 * MAX_CHARS).collect();
    let words = bounded.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    message_line(&words.join(" "), MAX_CHARS)
}

/// Classifies a failure. `is_stated`: the provider states when to try again, outside of the text.
fn classified(status: Option<u16>, text: &str, is_stated: bool) -> ErrorKind {
    let text = text.to_lowercase().replace('_', " ");
    let has = |signs: &[&str]| signs.iter().any(|sign| matches(&text, sign));

    let may_overflow = matches!(status, None | Some(400 | 413 | 422 | 500)) && !has(RATE);
    // The limit of an image is a number of bytes or pixels, or of images.
    let is_about_tokens = has(OVERFLOW) && (text.contains("token") || text.contains("context"));
    if !is_about_tokens && !has(RATE) && !has(DENIED) && is_about_image(status, &text) {
        return ErrorKind::Images;
    }

    if may_overflow && status == Some(413) && !is_about_tokens {
        // The body has too many bytes, regardless of its tokens.
        return ErrorKind::TooLarge;
    }
    if may_overflow && has(OVERFLOW) {
        return ErrorKind::Overflow;
    }

    // A quota that is full for a stated time is a limit of requests.
    let is_full_for_now = retry_delay(&text).is_some() || is_stated && text.contains("quota");
    if has(DENIED) && !is_full_for_now {
        return ErrorKind::Fatal;
    }

    let passes = match status {
        Some(status) => PASSING_STATUSES.contains(&status),
        None => has(PASSING) || has_passing_status(&text),
    };
    if passes { ErrorKind::Retryable } else { ErrorKind::Fatal }
}

/// Whether a provider refuses an image. llama.cpp does so with 500, OpenRouter with 404.
fn is_about_image(status: Option<u16>, text: &str) -> bool {
    let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    match status {
        Some(400 | 404 | 413 | 415 | 422) => has(IMAGE),
        None | Some(500 | 501) => has(IMAGE) && has(NOT_ACCEPTED),
        Some(_) => false,
    }
}

/// Whether a whole word of the text is a status after which the same request may succeed.
fn has_passing_status(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|word| word.parse().ok()).any(|word| PASSING_STATUSES.contains(&word))
}

/// Whether the text contains the sign. See [`OVERFLOW`].
fn matches(text: &str, sign: &str) -> bool {
    let (sign, needs_digit) = match sign.strip_suffix('#') {
        Some(sign) => (sign, true),
        None => (sign, false),
    };

    let mut rest = text;
    for piece in sign.split('*').map(str::trim) {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    !needs_digit || rest.trim_start().starts_with(|c: char| c.is_ascii_digit())
}
