//! The streamed output of a running command or search: from the worker to the supervisor, and then to the one client that
//! requested it with `stream` of `quack.tool`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Most bytes of output in one [`OutputPiece`].
pub const MAX_PIECE_BYTES: usize = 32 * 1024;

/// Pieces of one call that the supervisor has not passed on. The worker sends no more until the supervisor returns a
/// credit.
pub const PIECE_CREDITS: usize = 4;

/// Last line of the text of a command that a signal has ended. The wire fixes it.
pub const UNKNOWN_EXIT: &str = "[Exit code: unknown]";

/// Returns a text for people and models: the last line names the signal that ended the command.
#[must_use]
pub fn with_signal(text: &str, signal: Option<i32>) -> Cow<'_, str> {
    match (signal, text.trim_end().strip_suffix(UNKNOWN_EXIT)) {
        (Some(signal), Some(before)) => format!("{before}[Killed by signal {signal}]").into(),
        _ => text.into(),
    }
}

/// An output stream of a command or a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
    /// Rows of a search: lines of JSON, each a [`crate::search::RowsLine`].
    Rows,
}

/// Some bytes of one stream.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OutputPiece {
    /// Source of the bytes.
    pub stream: OutputStream,
    /// At most 32 KiB, in base64 with padding. Passed on as JSON text.
    #[schemars(with = "String")]
    pub bytes: Box<RawValue>,
}

impl OutputPiece {
    /// Creates a piece. `base64` is the bytes in base64, between quotation marks.
    ///
    /// # Errors
    /// If it is not JSON.
    pub fn new(stream: OutputStream, base64: String) -> Result<Self, serde_json::Error> {
        Ok(Self { stream, bytes: RawValue::from_string(base64)? })
    }

    /// Returns true if the piece may be passed on: it is base64 and not too long.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        is_short_base64(&self.bytes)
    }
}

/// Whether JSON is a string with at most [`MAX_PIECE_BYTES`] in base64.
#[must_use]
pub fn is_short_base64(json: &RawValue) -> bool {
    is_base64_within(json, MAX_PIECE_BYTES)
}

/// Whether JSON is a string with at most this many bytes in base64.
#[must_use]
pub fn is_base64_within(json: &RawValue, max_bytes: usize) -> bool {
    // Without an early end, the compiler checks many bytes at once.
    let is_base64 =
        |byte: u8| byte.is_ascii_alphanumeric() | (byte == b'+') | (byte == b'/') | (byte == b'=');

    let text = json.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    text.is_some_and(|text| {
        text.len() <= max_bytes.div_ceil(3) * 4
            && text.bytes().fold(true, |is_sound, byte| is_sound & is_base64(byte))
    })
}

/// The next bytes for the stdin of a command.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputPiece {
    /// At most 32 KiB, in base64 with padding. Passed on as JSON text.
    #[schemars(with = "String")]
    pub bytes: Box<RawValue>,
    /// True: the end of the input follows these bytes.
    #[serde(default)]
    pub end: bool,
}

impl InputPiece {
    /// Returns the end of the input, without further bytes.
    #[must_use]
    pub fn end() -> Self {
        // An empty string is JSON.
        let bytes = RawValue::from_string("\"\"".to_owned()).unwrap_or_default();
        Self { bytes, end: true }
    }

    /// Returns true if the piece may be passed on: it is base64 and not too long.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        is_short_base64(&self.bytes)
    }
}

/// `quack.stdin` parameters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StdinParams {
    /// The `callId` of a `quack.tool` request of this client with `stdin`.
    pub call_id: String,
    /// The next bytes: at most 32 KiB, in base64 with padding.
    #[schemars(with = "String")]
    pub bytes: Box<RawValue>,
    /// True: the end of the input follows these bytes.
    #[serde(default)]
    pub end: bool,
}

/// `quack.stdin` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StdinData {
    /// Whether the command takes another piece. False: it has closed its stdin, or the call has ended.
    pub open: bool,
}

/// Data of the event `tool_output`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolOutput {
    /// `tool_output`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The `callId` of the request.
    pub tool_call_id: String,
    /// The next bytes.
    #[serde(flatten)]
    pub piece: OutputPiece,
}

impl ToolOutput {
    /// Name of the event.
    pub const NAME: &str = "tool_output";
}

/// `quack.cancel` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CancelParams {
    /// The `callId` of a `quack.tool` request of this client that is not answered yet.
    pub call_id: String,
}

/// `quack.cancel` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CancelData {
    /// Whether the call was found. It still gets its own reply.
    pub found: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_base64_is_passed_on() {
        let is_sound = |json: String| {
            OutputPiece::new(OutputStream::Stdout, json).is_ok_and(|piece| piece.is_sound())
        };
        assert!(is_sound("\"aGk=\"".to_owned()));
        for bad in ["aGk=", "\"aGk=\\n\"", "\"aGk=\n\"", "\"é\"", "7", "null", "\""] {
            assert!(!is_sound(bad.to_owned()), "{bad}");
        }
        assert!(is_sound(format!("\"{}\"", "A".repeat(43_692))));
        assert!(!is_sound(format!("\"{}\"", "A".repeat(43_693))));
    }
}
