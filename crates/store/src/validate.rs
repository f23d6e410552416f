//! From bytes to metadata, or the reason why not. Pure; [`crate::load_blocking`] decides what follows.

use quackd_protocol::metadata::{METADATA_VERSION, Metadata};
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;

/// An entry that was left out because an earlier one has the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Duplicate {
    /// Of a workspace with this id.
    Workspace(String),
    /// Of a session with this id.
    Session(String),
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace(id) => write!(f, "second workspace with the id {id:.80?} left out"),
            Self::Session(id) => write!(f, "second session with the id {id:.80?} left out"),
        }
    }
}

/// Why bytes are not metadata that we can use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// They are of a format that a newer program writes.
    TooNew { found: u64 },
    /// They are damaged, or something else.
    Damaged { reason: String },
}

pub(crate) fn parse(bytes: &[u8]) -> Result<(Metadata, Vec<Duplicate>), Invalid> {
    // The version first: a newer format may have any other shape.
    let damaged = |error: serde_json::Error| Invalid::Damaged { reason: error.to_string() };
    let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if METADATA_VERSION < version {
        return Err(Invalid::TooNew { found: version });
    }
    let mut metadata: Metadata = serde_json::from_slice(bytes).map_err(damaged)?;
    let duplicates = remove_duplicates(&mut metadata);
    Ok((metadata, duplicates))
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// Upstream finds the first of several entries with one id, so that is the one that counts.
fn remove_duplicates(metadata: &mut Metadata) -> Vec<Duplicate> {
    let mut duplicates = Vec::new();
    let mut seen = HashSet::new();
    metadata.workspaces.retain(|workspace| {
        let first = seen.insert(workspace.id.0.clone());
        if !first {
            duplicates.push(Duplicate::Workspace(workspace.id.0.clone()));
        }
        first
    });
    seen.clear();
    metadata.sessions.retain(|session| {
        let first = seen.insert(session.id.0.clone());
        if !first {
            duplicates.push(Duplicate::Session(session.id.0.clone()));
        }
        first
    });
    duplicates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_files_and_unknown_keys_survive_a_round_trip() {
        let text = r#"{
  "version": 1,
  "workspaces": [
    {
      "id": "5a295348d642",
      "path": "/home/u/w1",
      "createdAt": "2026-01-02T03:04:05.678Z",
      "lastActiveSessionId": "B1F7",
      "colour": "green"
    }
  ],
  "sessions": [
    {
      "id": "B1F7",
      "workspaceId": "5a295348d642",
      "name": "duck-1",
      "piSessionFile": "",
      "createdAt": "2026-01-02T03:04:05.678Z",
      "lastActiveAt": "2026-01-02T03:04:05.678Z",
      "isVoiceActive": true,
      "tags": [
        "a",
        {
          "deep": null
        }
      ]
    }
  ],
  "activeVoiceSessionId": "B1F7",
  "futureKey": 18446744073709551615
}"#;
        let (metadata, duplicates) = parse(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string_pretty(&metadata).unwrap(), text);
        assert_eq!(duplicates, []);
    }

    #[test]
    fn of_two_entries_with_one_id_the_first_is_kept_and_the_other_is_told() {
        let text = r#"{"version":1,
            "workspaces":[{"id":"w","path":"/a"},{"id":"w","path":"/b"},{"id":"v","path":"/a"}],
            "sessions":[{"id":"s","workspaceId":"w","name":"one"},{"id":"s","workspaceId":"w","name":"two"},
                        {"id":"t","workspaceId":"w","name":"one"}]}"#;
        let (metadata, duplicates) = parse(text.as_bytes()).unwrap();
        let workspaces: Vec<_> =
            metadata.workspaces.iter().map(|w| (w.id.as_str(), &*w.path)).collect();
        assert_eq!(workspaces, [("w", "/a"), ("v", "/a")]);
        let sessions: Vec<_> =
            metadata.sessions.iter().map(|s| (s.id.as_str(), &*s.name)).collect();
        // Two equal names are nobody's mistake.
        assert_eq!(sessions, [("s", "one"), ("t", "one")]);
        let told: Vec<_> = duplicates.iter().map(Duplicate::to_string).collect();
        assert_eq!(
            told,
            [
                r#"second workspace with the id "w" left out"#,
                r#"second session with the id "s" left out"#
            ]
        );
    }

    #[test]
    fn a_newer_format_is_recognised_whatever_else_it_holds() {
        for text in [r#"{"version":2}"#, r#"{"workspaces":{"now":"a map"},"version":999}"#] {
            assert!(matches!(parse(text.as_bytes()), Err(Invalid::TooNew { .. })), "{text}");
        }
    }

    #[test]
    fn what_is_not_our_shape_is_damaged() {
        let nested =
            format!(r#"{{"version":1,"workspaces":[],"sessions":[],"x":{}"#, "[".repeat(100_000));
        let texts: [&[u8]; 16] = [
            b"",
            b"n",
            b"null",
            b"{}",
            b"[]",
            b"42",
            b"\"text\"",
            br#"{"version":1}"#,
            br#"{"version":"1","workspaces":[],"sessions":[]}"#,
            br#"{"version":1.5,"workspaces":[],"sessions":[]}"#,
            br#"{"version":-1,"workspaces":[],"sessions":[]}"#,
            br#"{"version":1,"workspaces":{},"sessions":[]}"#,
            br#"{"version":1,"workspaces":[],"sessions":[{"id":7}]}"#,
            br#"{"version":1,"workspaces":[],"sessions":[]}trailing"#,
            b"\xff\xfe{\0",
            nested.as_bytes(),
        ];
        for text in texts {
            assert!(
                matches!(parse(text), Err(Invalid::Damaged { .. })),
                "{:.60?}",
                String::from_utf8_lossy(text)
            );
        }
    }
}
