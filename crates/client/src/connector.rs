//! Source of connections to the daemon for a long-running client, such as the server for editors.

use crate::Client;
use quackd_protocol::foreign_text::stripped_line;
use std::pin::Pin;
use std::sync::Arc;

/// Maximum length of names and versions for the daemon, in characters.
const MAX_NAME_CHARS: usize = 64;

/// Reason why there is no connection to the daemon, with advice for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// A connection, or the reason why there is none.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Client, ConnectError>> + Send>>;

/// Connects to the daemon, and starts it if necessary.
pub type Connector = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// Removes characters from a name that the daemon would refuse, and cuts it to 64 characters.
#[must_use]
pub fn printable_name(text: &str) -> String {
    stripped_line(text.trim(), MAX_NAME_CHARS).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_daemon_takes() {
        for (name, expected) in [
            (" Visual Studio Code ", "Visual Studio Code"),
            ("a\u{200b}b\u{202e}c\n\u{7}", "abc"),
            ("Ünïcode (1.2)", "Ünïcode (1.2)"),
            ("\u{200b}", ""),
            (&"x".repeat(100), &"x".repeat(MAX_NAME_CHARS)),
        ] {
            assert_eq!(printable_name(name), expected);
        }
    }
}
