//! Codes of errors that a client can act on. The text of an error is for display only.

use serde::{Deserialize, Serialize};

/// Code of an error reply or of a `prompt_error` event. Most errors have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// A limit is reached, the session has running work, or the daemon is overloaded. The same request may succeed
    /// later.
    Busy,
    /// Pi works on another turn and did not accept the prompt.
    PiBusy,
    /// No session has this reference.
    SessionNotFound,
    /// The daemon does not know the method: it is older than the client.
    UnknownMethod,
    /// The daemon is shutting down. The next one may serve the request.
    ShuttingDown,
    /// The path of the request cannot be a workspace.
    NotAWorkspace,
    /// A code of a newer daemon.
    #[serde(other)]
    Other,
}

impl ErrorCode {
    /// Description of the codes for the schema.
    pub const ABOUT: &str = "The cause, if a client can act on it: `busy`, `pi_busy`, `session_not_found`, \
                             `unknown_method`, `shutting_down`, `not_a_workspace`, or another one of a newer \
                             daemon.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented_and_a_newer_one_can_be_read() {
        let page = include_str!("../../../../docs/protocol.md");
        let codes = [
            ErrorCode::Busy,
            ErrorCode::PiBusy,
            ErrorCode::SessionNotFound,
            ErrorCode::UnknownMethod,
            ErrorCode::ShuttingDown,
            ErrorCode::NotAWorkspace,
        ];
        for code in codes {
            let word = serde_json::to_value(code).unwrap();
            let word = word.as_str().unwrap();
            assert!(page.contains(&format!("\n| `{word}` | ")), "{word}");
            assert!(ErrorCode::ABOUT.contains(&format!("`{word}`")), "{word}");
        }
        assert_eq!(serde_json::from_str::<ErrorCode>("\"newer\"").unwrap(), ErrorCode::Other);
    }
}
