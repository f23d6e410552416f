//! The envelope of the client protocol: parses a line into a request, and formats a reply as a line.
//!
//! This file, [`crate::errors`] and the rows of the methods contain every text for clients except tool results. The
//! replies to invalid input match measurements of upstream's daemon.

pub(crate) mod client_outbox;
pub(crate) mod raw_json;
pub(crate) mod unanswered;

use bytes::Bytes;
use quackd_protocol::client::{ErrorCode, Reply};
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::limits::{MAX_ID_BYTES, MAX_LINE_BYTES};
use quackd_protocol::plain::without_numbers;
use quackd_protocol::surrogates::without_lone_surrogates;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A request that can be dispatched.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    /// Echoed regardless of its type. `None` if the request had none.
    pub(crate) id: Option<Value>,
    /// Method name, converted like JavaScript's `String(method)`.
    pub(crate) method: String,
    /// Type of the parameters with its article, if they are neither an object nor `null`.
    pub(crate) odd_params: Option<&'static str>,
    params: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "present")]
    method: Option<Value>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
}

/// Distinguishes `null` from an absent key.
fn present<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}

/// Parses one line. `Ok(None)` for a blank line; `Err` is the reply to an invalid line.
pub(crate) fn parse(line: &[u8]) -> Result<Option<ParsedRequest>, Bytes> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }

    // Answered like upstream, where other values than objects have no method and `null` is an error.
    if !text.starts_with('{') {
        return Err(match serde_json::from_str::<Value>(text) {
            Ok(Value::Null) => unparsable("null is not a request"),
            Ok(_other) => unknown_method(None, "undefined"),
            Err(error) => unparsable(&error.to_string()),
        });
    }

    let envelope: Envelope<'_> =
        serde_json::from_str(text).map_err(|error| unparsable(&error.to_string()))?;

    let id = match envelope.id {
        // The reply repeats the id, so its length is limited.
        Some(id) if MAX_ID_BYTES < id.get().len() => {
            return Err(unparsable(&format!("id is longer than {MAX_ID_BYTES} bytes")));
        }
        Some(id) => {
            Some(serde_json::from_str(id.get()).map_err(|error| unparsable(&error.to_string()))?)
        }
        None => None,
    };

    let method = envelope.method.as_ref().map_or_else(|| "undefined".to_owned(), js_string);

    // In JavaScript, every value except null has properties. Other types than objects therefore have no parameters.
    let params = envelope.params.map(RawValue::get);
    let odd_params = params.and_then(odd);
    let params = params.filter(|text| text.starts_with('{')).unwrap_or("{}");
    let params = without_lone_surrogates(params).into_owned();
    Ok(Some(ParsedRequest { id, method, odd_params, params }))
}

/// Describes a JSON text by its first byte. `None` for an object or `null`.
fn odd(json: &str) -> Option<&'static str> {
    match json.as_bytes().first()? {
        b'{' | b'n' => None,
        b'[' => Some("an array"),
        b'"' => Some("a string"),
        b't' | b'f' => Some("true or false"),
        _ => Some("a number"),
    }
}

impl ParsedRequest {
    /// Returns the first parameter name that is not in `known`, cut to 64 characters. Returns `None` for unreadable
    /// parameters: [`ParsedRequest::params`] reports those.
    pub(crate) fn unknown_parameter(&self, known: &[String]) -> Option<String> {
        let params: BTreeMap<Cow<'_, str>, IgnoredAny> = serde_json::from_str(&self.params).ok()?;
        let unknown = params.keys().find(|name| !known.iter().any(|known| *known == **name))?;
        Some(stripped_line(unknown, 64))
    }

    /// Returns a parameter that is a text. Returns `None` for others, and for unreadable parameters:
    /// [`ParsedRequest::params`] reports those.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let params: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(&self.params).ok()?;
        serde_json::from_str(params.get(name)?.get()).ok()
    }

    /// Parses the parameters. Call it only once: it drops their text, which is not needed while the request waits.
    pub(crate) fn params<T: DeserializeOwned>(&mut self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&std::mem::take(&mut self.params))
    }
}

/// Reply to a line that exceeds the limit.
pub(crate) fn too_long() -> Bytes {
    unparsable(&format!("line is longer than {MAX_LINE_BYTES} bytes"))
}

/// Last line for a client that is disconnected.
pub(crate) fn disconnect_notice(why: &str) -> Bytes {
    failure(Some(&Value::from("unknown")), why, None)
}

fn unparsable(why: &str) -> Bytes {
    disconnect_notice(&format!("Failed to parse request: {why}"))
}

/// Reply to a request with an unknown method.
pub(crate) fn unknown_method(id: Option<&Value>, name: &str) -> Bytes {
    // The name may be as long as a line, and the text is for display.
    let start: String = name.chars().take(200).collect();
    failure(id, &format!("Unknown method: {start}"), Some(ErrorCode::UnknownMethod))
}

/// Reply to a request for which there is no memory.
pub(crate) fn too_many_bytes(id: Option<&Value>) -> Bytes {
    let text =
        "The unanswered requests of all clients need too much memory. Try again after a reply.";
    failure(id, text, Some(ErrorCode::Busy))
}

/// Formats a reply with data: `{"id","ok":true,"data"?}`.
pub(crate) fn success<D: Serialize>(id: Option<&Value>, data: Option<D>) -> Bytes {
    line(&Reply { id, ok: true, error: None, data, code: None })
}

/// Formats an error reply: `{"id","ok":false,"error","code"?}`.
pub(crate) fn failure(id: Option<&Value>, error: &str, code: Option<ErrorCode>) -> Bytes {
    let error = without_numbers(error);
    line(&Reply::<()> { id, ok: false, error: Some(&error), data: None, code })
}

/// Formats an error reply with data: `{"id","ok":false,"error"?,"data","code"?}`.
pub(crate) fn refusal<D: Serialize>(
    id: Option<&Value>,
    error: Option<&str>,
    data: D,
    code: Option<ErrorCode>,
) -> Bytes {
    line(&Reply { id, ok: false, error, data: Some(data), code })
}

/// Formats one event as a line: of a session, or for a single client.
pub(crate) fn event<E: Serialize>(event: &E) -> Bytes {
    line(event)
}

/// Capacity of a new line, in bytes. Most lines fit without a second allocation.
const USUAL_LINE: usize = 512;

fn line<T: Serialize>(object: &T) -> Bytes {
    let mut bytes = Vec::with_capacity(USUAL_LINE);
    match serde_json::to_writer(&mut bytes, object) {
        Ok(()) => {
            escape_line_separators(&mut bytes);
            bytes.push(b'\n');
            bytes.into()
        }
        // These types always have a JSON form. If conversion fails anyway, the client gets an error.
        Err(_) => Bytes::from_static(
            b"{\"id\":\"unknown\",\"ok\":false,\"error\":\"Internal error: unprintable reply\"}\n",
        ),
    }
}

/// U+2028 and U+2029 are legal inside JSON strings, but some line readers split there. Their escapes
/// are the same JSON value.
fn escape_line_separators(bytes: &mut Vec<u8>) {
    // The first two of the three bytes of both characters.
    const COMMON: &[u8] = b"\xe2\x80";
    if memchr::memmem::find(bytes, COMMON).is_none() {
        return;
    }

    let mut out = Vec::with_capacity(bytes.len() + 64);
    let mut rest = bytes.as_slice();
    while let Some(at) = memchr::memmem::find(rest, COMMON) {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before);
        let (escape, used): (&[u8], usize) = match from.get(2) {
            Some(0xa8) => (b"\\u2028", 3),
            Some(0xa9) => (b"\\u2029", 3),
            _ => (COMMON, 2),
        };

        out.extend_from_slice(escape);
        rest = from.get(used..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    *bytes = out;
}

/// Converts like JavaScript's `String(value)`.
pub(crate) fn js_string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items
            .iter()
            .map(|item| if item.is_null() { String::new() } else { js_string(item) })
            .collect::<Vec<_>>()
            .join(","),
        Value::Object(_) => "[object Object]".to_owned(),
        plain => plain.to_string(),
    }
}

/// Returns the session reference of a parameter: `None` if absent, empty or falsy.
pub(crate) fn reference(value: &Value) -> Option<String> {
    truthy(value).then(|| js_string(value))
}

/// Returns whether JavaScript treats the value as true.
pub(crate) fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let reply = match parse(line.as_bytes()) {
            Err(reply) => reply,
            Ok(Some(request)) => unknown_method(request.id.as_ref(), &request.method),
            Ok(None) => Bytes::from_static(b"(nothing)\n"),
        };
        assert_eq!(std::str::from_utf8(&reply).unwrap().trim_end(), expected, "{line}");
    }

    #[test]
    fn what_is_no_request_is_answered_as_measured() {
        let undefined =
            r#"{"ok":false,"error":"Unknown method: undefined","code":"unknown_method"}"#;
        for line in ["5", "\"text\"", "[]", "[{}]", "true", "{}"] {
            check(line, undefined);
        }
        check(
            "null",
            r#"{"id":"unknown","ok":false,"error":"Failed to parse request: null is not a request"}"#,
        );
        check("   \t ", "(nothing)");
        for line in ["hello", "{", "{]", "\u{feff}{}", "{\"id\":1}}", "\0"] {
            let reply = parse(line.as_bytes()).unwrap_err();
            let reply: Value = serde_json::from_slice(&reply).unwrap();
            assert_eq!(reply["id"], "unknown", "{line:?}");
            let error = reply["error"].as_str().unwrap();
            assert!(error.starts_with("Failed to parse request: "), "{line:?}: {error}");
        }
    }

    #[test]
    fn the_id_is_echoed_whatever_its_type() {
        for id in ["\"a\"", "7", "null", "{\"a\":[1]}", "[]", "true", "-0.5"] {
            check(
                &format!("{{\"id\":{id},\"method\":\"x\"}}"),
                &format!(
                    "{{\"id\":{id},\"ok\":false,\"error\":\"Unknown method: x\",\"code\":\"unknown_method\"}}"
                ),
            );
        }
        check(
            "{\"method\":[1,[null,2]]}",
            r#"{"ok":false,"error":"Unknown method: 1,,2","code":"unknown_method"}"#,
        );
        check(
            "{\"method\":{}}",
            r#"{"ok":false,"error":"Unknown method: [object Object]","code":"unknown_method"}"#,
        );
        check(
            "{\"method\":null}",
            r#"{"ok":false,"error":"Unknown method: null","code":"unknown_method"}"#,
        );
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
        assert!(parse(format!("{{\"id\":{deep}").as_bytes()).is_err());
    }

    #[test]
    fn params_that_are_no_object_count_as_none_and_are_said_to_be_odd() {
        for (params, odd) in [
            ("null", None),
            ("{}", None),
            ("-5", Some("a number")),
            ("[1]", Some("an array")),
            ("\"x\"", Some("a string")),
            (" true", Some("true or false")),
        ] {
            let line = format!("{{\"method\":\"m\",\"params\":{params}}}");
            let mut request = parse(line.as_bytes()).unwrap().unwrap();
            assert_eq!(request.odd_params, odd, "{params}");
            assert_eq!(request.params::<Value>().unwrap(), json!({}));
        }
    }

    #[test]
    fn invalid_utf8_becomes_replacement_characters() {
        let request = parse(b"{\"id\":\"\xff\",\"method\":\"m\"}").unwrap().unwrap();
        assert_eq!(request.id, Some(json!("\u{fffd}")));
    }

    #[test]
    fn line_separators_are_escaped_and_their_neighbours_are_not() {
        let reply = success(None, Some("a\u{2028}b\u{2029}c\u{2026}\u{2028}"));
        let text = std::str::from_utf8(&reply).unwrap();
        assert_eq!(text, "{\"ok\":true,\"data\":\"a\\u2028b\\u2029c\u{2026}\\u2028\"}\n");
    }
}
