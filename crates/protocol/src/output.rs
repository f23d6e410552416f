//! The streamed output of a running command: from the worker to the supervisor, and then to the one client that
//! requested it with `stream` of `quack.tool`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most bytes of output in one [`OutputPiece`].
pub const MAX_PIECE_BYTES: usize = 32 * 1024;

/// Pieces of one call that the supervisor has not passed on. The worker sends no more until the supervisor returns a
/// credit.
pub const PIECE_CREDITS: usize = 4;

/// An output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
}

/// Some bytes of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputPiece {
    /// Source of the bytes.
    pub stream: OutputStream,
    /// At most 32 KiB, in base64 with padding.
    pub bytes: String,
}

impl OutputPiece {
    /// Returns true if the piece may be passed on: it is base64 and not too long.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        self.bytes.len() <= MAX_PIECE_BYTES.div_ceil(3) * 4 && self.bytes.bytes().all(is_base64)
    }
}

/// Data of the event `tool_output`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
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
        let piece = |bytes: String| OutputPiece { stream: OutputStream::Stdout, bytes };
        assert!(piece("aGk=".to_owned()).is_sound());
        assert!(!piece("aGk=\n".to_owned()).is_sound());
        assert!(piece("A".repeat(43_692)).is_sound());
        assert!(!piece("A".repeat(43_693)).is_sound());
    }
}
