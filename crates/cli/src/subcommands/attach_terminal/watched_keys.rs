//! Finds keys of the client in what the user types, with the pause after which a beginning of them is none.

use super::pending::until;
use crate::exit::CliError;
use quackd_terminal::{DetachAction, DetachKey, Typed};
use std::time::Duration;
use tokio::time::Instant;

/// Pause after which the beginning of the keys belongs to the program.
const PAUSE: Duration = Duration::from_millis(300);

/// Keys that detach, or that end a playback.
#[derive(Debug)]
pub(in crate::subcommands) struct WatchedKeys {
    keys: DetachKey,
    /// End of the pause, while a beginning of the keys is held.
    due: Option<Instant>,
}

/// Typed bytes without the keys.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::subcommands) struct KeyInput {
    /// Bytes for the program, before the keys.
    pub(in crate::subcommands) bytes: Vec<u8>,
    /// Whether the keys were pressed.
    pub(in crate::subcommands) is_pressed: bool,
}

impl WatchedKeys {
    /// Parses the keys, in the notation of `run.detach_keys`.
    ///
    /// # Errors
    /// A usage error if they cannot be read.
    pub(in crate::subcommands) fn parse(text: &str) -> Result<Self, CliError> {
        let keys = DetachKey::parse(text);
        let keys =
            keys.map_err(|error| CliError::usage(format!("run.detach_keys {text:?}: {error}")))?;
        Ok(Self { keys, due: None })
    }

    /// Takes what the user has typed.
    pub(in crate::subcommands) fn typed(&mut self, bytes: &[u8]) -> KeyInput {
        let typed = self.keys.feed(bytes);
        self.taken(typed)
    }

    /// Waits for the end of the pause after a beginning of the keys. Never completes if none is held. Cancel-safe.
    pub(in crate::subcommands) async fn expired(&mut self) -> KeyInput {
        until(self.due).await;
        let typed = self.keys.timeout();
        self.taken(typed)
    }

    fn taken(&mut self, typed: Typed) -> KeyInput {
        let Typed { for_program, action } = typed;
        let is_held = matches!(action, DetachAction::Maybe);
        self.due = is_held.then(|| Instant::now() + PAUSE);
        KeyInput { bytes: for_program, is_pressed: matches!(action, DetachAction::Detach) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(bytes: &[u8]) -> KeyInput {
        KeyInput { bytes: bytes.to_vec(), is_pressed: true }
    }

    #[tokio::test]
    async fn the_keys_are_found_at_once_or_after_the_pause() {
        let mut keys = WatchedKeys::parse("ctrl-\\").unwrap();
        assert_eq!(keys.typed(b"ab"), KeyInput { bytes: b"ab".to_vec(), is_pressed: false });
        let first = keys.typed(b"x\x1c");
        assert_eq!(first.bytes, b"x");
        // A second press could send the key to the program.
        let last = if first.is_pressed { pressed(b"") } else { keys.expired().await };
        assert_eq!(last, pressed(b""));
    }

    #[test]
    fn keys_that_cannot_be_read_are_a_usage_error() {
        let error = WatchedKeys::parse("").unwrap_err();
        assert!(error.to_string().starts_with("run.detach_keys \"\": "), "{error}");
    }
}
