//! Finds keys of the client in the typed bytes, with the pauses that decide about incomplete ones.

use super::pending::until;
use crate::exit::CliError;
use quackd_terminal::{DetachAction, DetachKey, Typed};
use std::time::Duration;
use tokio::time::Instant;

/// Pause after a key, in which a second press sends it to the program.
const PRESS_PAUSE: Duration = Duration::from_millis(300);

/// Pause after the beginning of an escape sequence, after which it is the key Escape.
const SEQUENCE_PAUSE: Duration = Duration::from_millis(30);

/// Pause in a paste, after which its end is no longer expected.
const PASTE_PAUSE: Duration = Duration::from_secs(1);

/// Keys that detach, or that end a playback.
#[derive(Debug)]
pub(crate) struct WatchedKeys {
    keys: DetachKey,
    /// End of the pause, while bytes are held or a paste goes on.
    due: Option<Instant>,
}

/// Typed bytes without the keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyInput {
    /// Bytes for the program, before the keys.
    pub(crate) bytes: Vec<u8>,
    /// Whether the keys were pressed.
    pub(crate) is_pressed: bool,
}

impl WatchedKeys {
    /// Parses the keys, in the notation of `run.detach_keys`.
    ///
    /// # Errors
    /// A usage error if they cannot be read.
    pub(crate) fn parse(text: &str) -> Result<Self, CliError> {
        let keys = DetachKey::parse(text);
        let keys =
            keys.map_err(|error| CliError::usage(format!("run.detach_keys {text:?}: {error}")))?;
        Ok(Self { keys, due: None })
    }

    /// Takes typed bytes.
    pub(crate) fn typed(&mut self, bytes: &[u8]) -> KeyInput {
        let typed = self.keys.feed(bytes);
        self.taken(typed)
    }

    /// Waits for the end of the pause. Never completes without one. Cancel-safe.
    pub(crate) async fn expired(&mut self) -> KeyInput {
        until(self.due).await;
        let typed = self.keys.timeout();
        self.taken(typed)
    }

    fn taken(&mut self, typed: Typed) -> KeyInput {
        let Typed { for_program, action, holds, is_paste } = typed;
        let pause = if is_paste { PASTE_PAUSE } else { PRESS_PAUSE };
        let pause = if holds { SEQUENCE_PAUSE } else { pause };
        self.due = matches!(action, DetachAction::Maybe).then(|| Instant::now() + pause);
        KeyInput { bytes: for_program, is_pressed: matches!(action, DetachAction::Detach) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_found_after_the_pause_and_escape_is_passed_on() {
        let mut keys = WatchedKeys::parse("ctrl-\\").unwrap();
        assert_eq!(keys.typed(b"ab"), KeyInput { bytes: b"ab".to_vec(), is_pressed: false });
        assert_eq!(keys.typed(b"\x1b").bytes, b"");
        assert_eq!(keys.expired().await, KeyInput { bytes: b"\x1b".to_vec(), is_pressed: false });
        // A second press could send the key to the program.
        assert_eq!(keys.typed(b"x\x1c"), KeyInput { bytes: b"x".to_vec(), is_pressed: false });
        assert_eq!(keys.expired().await, KeyInput { bytes: Vec::new(), is_pressed: true });
    }

    #[test]
    fn keys_that_cannot_be_read_are_a_usage_error() {
        let error = WatchedKeys::parse("").unwrap_err();
        assert!(error.to_string().starts_with("run.detach_keys \"\": "), "{error}");
    }
}
