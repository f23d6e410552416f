//! Frames on the control channel: a big-endian `u32` length, then one JSON value.
//!
//! Used by the supervisor and by the workers. A frame longer than the limit, or a body that is not JSON, closes the
//! channel. The reader skips a variant that this version does not know.

use crate::halves::ReadingHalf;
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use quackd_protocol::limits::MAX_LINE_BYTES;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::collections::BTreeMap;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec, length_delimited};

/// Initial size of a channel's buffers, in bytes. Most frames fit; a buffer grows for larger ones. An idle channel has
/// none, because most channels of a daemon are idle.
const BUFFER_BYTES: usize = 4 * 1024;

/// Returns the codec of the length prefix with its limit, for a channel that is used in both directions by one task.
#[must_use]
pub fn codec() -> LengthDelimitedCodec {
    length_delimited::Builder::new().max_frame_length(MAX_LINE_BYTES).new_codec()
}

/// Returns a reader of the bodies of frames.
pub fn reader<R: AsyncRead>(half: R) -> FramedRead<R, LengthDelimitedCodec> {
    FramedRead::with_capacity(half, codec(), BUFFER_BYTES)
}

/// Returns the body of the next frame. `None` at the end of the channel.
pub async fn next(
    reader: &mut FramedRead<ReadingHalf, LengthDelimitedCodec>,
) -> Option<io::Result<BytesMut>> {
    if reader.read_buffer().is_empty() {
        // An idle channel keeps no buffer.
        *reader.read_buffer_mut() = BytesMut::new();
        if let Err(error) = reader.get_ref().ready().await {
            return Some(Err(error));
        }
        // One read suffices for most frames.
        reader.read_buffer_mut().reserve(BUFFER_BYTES);
    }
    reader.next().await
}

/// Writes the queued bodies until the queue is closed or the channel is gone. Frames that are queued together are
/// written together.
pub async fn write_queued<W: AsyncWrite + Unpin>(mut queue: mpsc::Receiver<Bytes>, half: W) {
    let mut writer = FramedWrite::with_capacity(half, codec(), BUFFER_BYTES / 4);
    while let Some(first) = queue.recv().await {
        // Queued frames are collected in the writer's buffer, and written together by `flush`.
        let mut fed = writer.feed(first).await;
        while let (Ok(()), Ok(next)) = (&fed, queue.try_recv()) {
            fed = writer.feed(next).await;
        }

        // The reading half reports that the channel is gone.
        if fed.is_err() || SinkExt::<Bytes>::flush(&mut writer).await.is_err() {
            break;
        }

        // An idle channel keeps no buffer.
        if queue.is_empty() {
            *writer.write_buffer_mut() = BytesMut::new();
        }
    }
}

/// Error of encoding or decoding a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The value exceeds the limit of a frame.
    #[error("a message of {0} bytes does not fit into a frame")]
    TooLong(usize),
    /// The value cannot be written as JSON.
    #[error("cannot encode a frame")]
    Encode(#[source] serde_json::Error),
    /// The body is not a message.
    #[error("cannot decode a frame: {0}")]
    Decode(#[source] serde_json::Error),
}

/// Result of decoding a frame.
#[derive(Debug)]
pub enum Decoded<T> {
    /// A message that this version knows.
    Known(T),
    /// Tag of an unknown message, from another version.
    Unknown(String),
}

impl<T> Decoded<T> {
    /// Converts a known message, and passes on the tag of an unknown one.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Decoded<U> {
        match self {
            Self::Known(message) => Decoded::Known(convert(message)),
            Self::Unknown(tag) => Decoded::Unknown(tag),
        }
    }
}

/// Returns the body of a frame with `message`.
pub fn encode<T: Serialize>(message: &T) -> Result<Bytes, FrameError> {
    let body = serde_json::to_vec(message).map_err(FrameError::Encode)?;
    if MAX_LINE_BYTES < body.len() {
        return Err(FrameError::TooLong(body.len()));
    }
    Ok(body.into())
}

/// Parses the body of a frame. `tags` are the variants of `T`. Only a tag outside of them is [`Decoded::Unknown`], so
/// that a known message with a wrong shape stays an error.
pub fn decode<T: DeserializeOwned>(
    body: &BytesMut,
    tags: &[&str],
) -> Result<Decoded<T>, FrameError> {
    let error = match serde_json::from_slice(body) {
        Ok(message) => return Ok(Decoded::Known(message)),
        Err(error) => error,
    };

    // A message is an object with one key, its tag.
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
        CallSpec, FROM_WORKER_TAGS, FromWorker, TO_WORKER_TAGS, ToWorker,
    };

    /// Workers of other versions rely on this shape: it changes only with `FRAME_PROTOCOL`.
    #[test]
    fn a_tool_call_has_this_exact_shape() {
        let frame = ToWorker::ToolCall(CallSpec {
            call_id: CallId("c1".into()),
            tool: "bash".into(),
            arguments: "{}".into(),
            deadline_ms: 30_000,
            ..CallSpec::default()
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
