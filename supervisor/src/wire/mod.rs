//! The client wire's envelope: one line of bytes to a request, one result to one line of bytes.
//!
//! This file and [`crate::errors`] hold every text that a client sees besides tool results. What is
//! answered to input that is no request is fixed by measurement of upstream's daemon.

pub(crate) mod client_outbox;
pub(crate) mod raw_json;

use bytes::Bytes;
use quackd_protocol::client::{EventLine, Reply, ToldLine};
use quackd_protocol::limits::{MAX_ID_BYTES, MAX_LINE_BYTES};
use quackd_protocol::plain::without_numbers;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A request that can be dispatched.
#[derive(Debug)]
pub(crate) struct Request {
    /// Echoed whatever its type; `None` if the request had none.
    pub(crate) id: Option<Value>,
    /// Method name, as JavaScript's `String(method)` gives it.
    pub(crate) method: String,
    /// What the parameters are if they are neither an object nor `null`, with its article.
    pub(crate) odd_params: Option<&'static str>,
    params: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow, deserialize_with = "present_raw")]
    id: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "present")]
    method: Option<Value>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
}

/// Tells a `null` from an absent key.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn present_raw<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads one line. `Ok(None)` for a blank line; `Err` is the reply to a line that is no request.
pub(crate) fn parse(line: &[u8]) -> Result<Option<Request>, Bytes> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if !text.starts_with('{') {
        return Err(match serde_json::from_str::<Value>(text) {
            Ok(Value::Null) => unparsable("null is not a request"),
            Ok(_other) => failure(None, &unknown_method("undefined")),
            Err(error) => unparsable(&error.to_string()),
        });
    }
    let envelope: Envelope<'_> =
        serde_json::from_str(text).map_err(|error| unparsable(&error.to_string()))?;
    let id = match envelope.id {
        Some(id) if MAX_ID_BYTES < id.get().len() => {
            return Err(unparsable(&format!("id is longer than {MAX_ID_BYTES} bytes")));
        }
        Some(id) => {
            Some(serde_json::from_str(id.get()).map_err(|error| unparsable(&error.to_string()))?)
        }
        None => None,
    };
    let method = envelope.method.as_ref().map_or_else(|| "undefined".to_owned(), js_string);
    // JavaScript reads a property of any value but null: what is no object has no parameters.
    let params = envelope.params.map(RawValue::get);
    let odd_params = params.and_then(odd);
    let params = params.filter(|text| text.starts_with('{'));
    Ok(Some(Request { id, method, odd_params, params: params.unwrap_or("{}").to_owned() }))
}

/// What a JSON text is, by its first byte, if it is no object and not `null`.
fn odd(json: &str) -> Option<&'static str> {
    match json.as_bytes().first()? {
        b'{' | b'n' => None,
        b'[' => Some("an array"),
        b'"' => Some("a string"),
        b't' | b'f' => Some("true or false"),
        _ => Some("a number"),
    }
}

impl Request {
    /// Returns the first parameter name that is not in `known`, cut to 64 characters. Returns `None` for unreadable
    /// parameters: [`Request::params`] reports those.
    pub(crate) fn unknown_parameter(&self, known: &[String]) -> Option<String> {
        let given: BTreeMap<Cow<'_, str>, IgnoredAny> = serde_json::from_str(&self.params).ok()?;
        let unknown = given.keys().find(|name| !known.iter().any(|known| *known == **name))?;
        Some(unknown.chars().filter(|c| !c.is_control()).take(64).collect())
    }

    /// The parameters as the method's type. To be asked for once: their text is not kept while the
    /// request waits for its answer.
    pub(crate) fn params<T: DeserializeOwned>(&mut self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&std::mem::take(&mut self.params))
    }
}

/// The reply to a line that is longer than the limit.
pub(crate) fn too_long() -> Bytes {
    unparsable(&format!("line is longer than {MAX_LINE_BYTES} bytes"))
}

/// The last line for a client that is disconnected.
pub(crate) fn goodbye(why: &str) -> Bytes {
    failure(Some(&Value::from("unknown")), why)
}

fn unparsable(why: &str) -> Bytes {
    goodbye(&format!("Failed to parse request: {why}"))
}

/// The text for a method that does not exist.
pub(crate) fn unknown_method(name: &str) -> String {
    // A name may be as long as a line; the reply is for people.
    let shown: String = name.chars().take(200).collect();
    format!("Unknown method: {shown}")
}

/// `{"id","ok":true,"data"?}`.
pub(crate) fn success<D: Serialize>(id: Option<&Value>, data: Option<D>) -> Bytes {
    line(&Reply { id, ok: true, error: None, data })
}

/// `{"id","ok":false,"error"}`.
pub(crate) fn failure(id: Option<&Value>, error: &str) -> Bytes {
    let error = without_numbers(error);
    line(&Reply::<()> { id, ok: false, error: Some(&error), data: None })
}

/// `{"id","ok":false,"error"?,"data"}`: it was refused, and something is told besides.
pub(crate) fn refusal<D: Serialize>(id: Option<&Value>, error: Option<&str>, data: D) -> Bytes {
    line(&Reply { id, ok: false, error, data: Some(data) })
}

/// One event.
pub(crate) fn event<D: Serialize>(event: &EventLine<'_, D>) -> Bytes {
    line(event)
}

/// One event that one client alone is told.
pub(crate) fn told<D: Serialize>(told: &ToldLine<'_, D>) -> Bytes {
    line(told)
}

fn line<T: Serialize>(object: &T) -> Bytes {
    match serde_json::to_vec(object) {
        Ok(mut bytes) => {
            escape_line_separators(&mut bytes);
            bytes.push(b'\n');
            bytes.into()
        }
        // These types always have a JSON form; if one ever has not, the client is told so.
        Err(_) => Bytes::from_static(
            b"{\"id\":\"unknown\",\"ok\":false,\"error\":\"Internal error: unprintable reply\"}\n",
        ),
    }
}

/// U+2028 and U+2029 are legal inside JSON strings, but some line readers split there. Their escapes
/// are the same JSON value.
fn escape_line_separators(bytes: &mut Vec<u8>) {
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

/// JavaScript's `String(value)`.
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

/// A session reference in a parameter: `None` if absent, empty or falsy.
pub(crate) fn reference(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        other => truthy(other).then(|| js_string(other)),
    }
}

/// JavaScript's truth.
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
            Ok(Some(request)) => failure(request.id.as_ref(), &unknown_method(&request.method)),
            Ok(None) => Bytes::from_static(b"(nothing)\n"),
        };
        assert_eq!(std::str::from_utf8(&reply).unwrap().trim_end(), expected, "{line}");
    }

    #[test]
    fn what_is_no_request_is_answered_as_measured() {
        let undefined = r#"{"ok":false,"error":"Unknown method: undefined"}"#;
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
                &format!("{{\"id\":{id},\"ok\":false,\"error\":\"Unknown method: x\"}}"),
            );
        }
        check("{\"method\":[1,[null,2]]}", r#"{"ok":false,"error":"Unknown method: 1,,2"}"#);
        check("{\"method\":{}}", r#"{"ok":false,"error":"Unknown method: [object Object]"}"#);
        check("{\"method\":null}", r#"{"ok":false,"error":"Unknown method: null"}"#);
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
