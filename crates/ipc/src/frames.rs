//! Frames on the control channel: a big-endian `u32` length, then one JSON value.
//!
//! Used by the supervisor's worker link and by the worker. A frame longer than the limit and a body
//! that is not JSON end the link; a variant that this version does not know is skipped by the reader.

use bytes::{Bytes, BytesMut};
use quackd_protocol::limits::MAX_LINE_BYTES;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::collections::BTreeMap;
use tokio_util::codec::{LengthDelimitedCodec, length_delimited};

/// The length prefix and its bound, for [`tokio_util::codec::FramedRead`] and `FramedWrite`.
#[must_use]
pub fn codec() -> LengthDelimitedCodec {
    length_delimited::Builder::new().max_frame_length(MAX_LINE_BYTES).new_codec()
}

/// Why a frame cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The value does not fit into a frame.
    #[error("a message of {0} bytes does not fit into a frame")]
    TooLong(usize),
    /// The value cannot be written as JSON.
    #[error("cannot encode a frame")]
    Encode(#[source] serde_json::Error),
    /// The body is not a message.
    #[error("cannot decode a frame: {0}")]
    Decode(#[source] serde_json::Error),
}

/// A frame's meaning.
#[derive(Debug)]
pub enum Decoded<T> {
    /// A message of this version.
    Known(T),
    /// A message of another version; its tag.
    Unknown(String),
}

/// The body of a frame that holds `message`.
pub fn encode<T: Serialize>(message: &T) -> Result<Bytes, FrameError> {
    let body = serde_json::to_vec(message).map_err(FrameError::Encode)?;
    if MAX_LINE_BYTES < body.len() {
        return Err(FrameError::TooLong(body.len()));
    }
    Ok(body.into())
}

/// Reads the body of a frame. `tags` are the variants that `T` knows: only a tag outside of them is
/// [`Decoded::Unknown`], so that a known message of a wrong shape stays an error.
pub fn decode<T: DeserializeOwned>(
    body: &BytesMut,
    tags: &[&str],
) -> Result<Decoded<T>, FrameError> {
    let error = match serde_json::from_slice(body) {
        Ok(message) => return Ok(Decoded::Known(message)),
        Err(error) => error,
    };
    match serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body) {
        Ok(map) if map.len() == 1 => match map.into_keys().next() {
            Some(tag) if !tags.contains(&tag.as_str()) => Ok(Decoded::Unknown(tag)),
            _ => Err(FrameError::Decode(error)),
        },
        _ => Err(FrameError::Decode(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::CallId;
    use quackd_protocol::worker::{
        FROM_WORKER_TAGS, FromWorker, TO_WORKER_TAGS, ToWorker, ToolCall,
    };

    /// The shape is a promise to workers of other versions: it changes only with `FRAME_PROTOCOL`.
    #[test]
    fn a_tool_call_has_this_exact_shape() {
        let frame = ToWorker::ToolCall(ToolCall {
            call_id: CallId("c1".into()),
            tool: "bash".into(),
            arguments: "{}".into(),
            deadline_ms: 30_000,
            safe_mode: false,
            stream: false,
        });
        let text = r#"{"tool_call":{"call_id":"c1","tool":"bash","arguments":"{}","deadline_ms":30000,"safe_mode":false}}"#;
        assert_eq!(encode(&frame).unwrap(), text.as_bytes());
        let back = decode::<ToWorker>(&BytesMut::from(text), TO_WORKER_TAGS).unwrap();
        assert!(matches!(back, Decoded::Known(ToWorker::ToolCall(call)) if call.tool == "bash"));
    }

    #[test]
    fn the_text_of_a_result_is_carried_as_it_was_written() {
        let text = r#"{"tool_finished":{"call_id":"c1","text":"a\u0000\u2028b","report":{"is_error":true}}}"#;
        let frame = decode::<FromWorker>(&BytesMut::from(text), FROM_WORKER_TAGS).unwrap();
        let Decoded::Known(FromWorker::ToolFinished(finished)) = frame else { panic!("{frame:?}") };
        assert_eq!(finished.text.get(), r#""a\u0000\u2028b""#);
        assert!(finished.report.is_error);
    }

    #[test]
    fn unknown_variants_are_named_and_known_ones_of_a_wrong_shape_are_errors() {
        let unknown =
            decode::<FromWorker>(&BytesMut::from(r#"{"dance":{"x":1}}"#), FROM_WORKER_TAGS);
        assert!(matches!(unknown, Ok(Decoded::Unknown(tag)) if tag == "dance"));
        for bad in [r#"{"pong":{"seq":"x"}}"#, "[]", "{", "", r#"{"a":1,"b":2}"#] {
            let result = decode::<FromWorker>(&BytesMut::from(bad), FROM_WORKER_TAGS);
            assert!(matches!(result, Err(FrameError::Decode(_))), "{bad}");
        }
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let text = r#"{"pong":{"seq":3,"mood":"fine"}}"#;
        let frame = decode::<FromWorker>(&BytesMut::from(text), FROM_WORKER_TAGS).unwrap();
        assert!(matches!(frame, Decoded::Known(FromWorker::Pong { seq: 3 })));
    }

    #[test]
    fn a_message_that_does_not_fit_is_refused_by_its_writer() {
        let text = "x".repeat(MAX_LINE_BYTES);
        assert!(matches!(encode(&text), Err(FrameError::TooLong(_))));
    }
}
