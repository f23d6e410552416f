//! From bytes to a document, or the reason why not. Pure; the loader decides what follows.

use crate::document::Document;
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;

/// Entries that are told by name. A damaged file may hold millions, and each becomes a line of the log.
const MAX_TOLD: usize = 100;

/// An entry that was left out because an earlier one has the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Duplicate {
    /// Of a workspace with this id.
    Workspace(String),
    /// Of a session with this id.
    Session(String),
    /// Of the state of the session with this id.
    State(String),
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace(id) => write!(f, "second workspace with the id {id:.80?} left out"),
            Self::Session(id) => write!(f, "second session with the id {id:.80?} left out"),
            Self::State(id) => write!(f, "second state of the session {id:.80?} left out"),
        }
    }
}

/// Finds entries with an id that was seen before.
pub(crate) struct Duplicates {
    seen: HashSet<String>,
    kind: fn(String) -> Duplicate,
    found: Vec<Duplicate>,
}

impl Duplicates {
    pub(crate) fn new(kind: fn(String) -> Duplicate) -> Self {
        Self { seen: HashSet::new(), kind, found: Vec::new() }
    }

    /// Whether the id is a new one; notes it if not.
    pub(crate) fn is_first(&mut self, id: &str) -> bool {
        let first = self.seen.insert(id.to_owned());
        if !first && self.found.len() < MAX_TOLD {
            self.found.push((self.kind)(id.to_owned()));
        }
        first
    }

    /// The first of those that were not.
    pub(crate) fn found(self) -> Vec<Duplicate> {
        self.found
    }
}

/// Why bytes are not a document that we can use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// They are of a format that a newer program writes.
    TooNew { found: u64 },
    /// They are damaged, or something else.
    Damaged { reason: String },
}

pub(crate) fn parse<D: Document>(bytes: &[u8]) -> Result<(D, Vec<Duplicate>), Invalid> {
    // The version first: a newer format may have any other shape.
    let damaged = |error: serde_json::Error| Invalid::Damaged { reason: error.to_string() };
    let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if D::VERSION < version {
        return Err(Invalid::TooNew { found: version });
    }
    D::from_json(bytes).map_err(damaged)
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quackd_protocol::metadata::Metadata;
    use quackd_protocol::state::DaemonState;

    /// A file with this text in the place of `"x":X` is otherwise good.
    const METADATA: &str = r#"{"version":1,"workspaces":[],"sessions":[],"x":X}"#;
    const STATE: &str = r#"{"version":1,"sessions":{"s":{"x":X}}}"#;

    fn assert_damaged<D: Document + fmt::Debug>(text: &[u8]) {
        let parsed = parse::<D>(text);
        let shown = String::from_utf8_lossy(text);
        assert!(matches!(parsed, Err(Invalid::Damaged { .. })), "{shown:.60}: {parsed:?}");
    }

    #[test]
    fn a_newer_format_is_recognised_whatever_else_it_holds() {
        for text in [r#"{"version":2}"#, r#"{"workspaces":{"now":"a map"},"version":999}"#] {
            let metadata = parse::<Metadata>(text.as_bytes());
            assert!(matches!(metadata, Err(Invalid::TooNew { .. })), "{text}");
            let state = parse::<DaemonState>(text.as_bytes());
            assert!(matches!(state, Err(Invalid::TooNew { .. })), "{text}");
        }
    }

    #[test]
    fn what_is_not_our_shape_is_damaged() {
        let texts: [&[u8]; 11] = [
            b"",
            b"n",
            b"null",
            b"{}",
            b"[]",
            b"42",
            b"\"text\"",
            br#"{"version":1}"#,
            br#"{"version":1,"version":1,"workspaces":[],"sessions":[]}"#,
            b"\xff\xfe{\0",
            "\u{feff}{}".as_bytes(),
        ];
        for text in texts {
            assert_damaged::<Metadata>(text);
            assert_damaged::<DaemonState>(text);
        }
        for text in [
            r#"{"version":"1","workspaces":[],"sessions":[]}"#,
            r#"{"version":1.5,"workspaces":[],"sessions":[]}"#,
            r#"{"version":-1,"workspaces":[],"sessions":[]}"#,
            r#"{"version":1,"workspaces":{},"sessions":[]}"#,
            r#"{"version":1,"workspaces":[],"sessions":[{"id":7}]}"#,
            r#"{"version":1,"workspaces":[],"sessions":[]}trailing"#,
        ] {
            assert_damaged::<Metadata>(text.as_bytes());
        }
        for text in [
            r#"{"version":1,"sessions":[]}"#,
            r#"{"version":1,"sessions":null}"#,
            r#"{"version":1,"sessions":{"s":null}}"#,
            r#"{"version":1,"sessions":{"s":{"safeMode":1}}}"#,
            r#"{"version":1,"sessions":{"s":{"restarts":-1}}}"#,
            r#"{"version":1,"sessions":{"s":{"policy":[]}}}"#,
            r#"{"version":1,"sessions":{"s":{"safeMode":true,"safeMode":false}}}"#,
            r#"{"version":1,"sessions":{}}{"version":1,"sessions":{}}"#,
        ] {
            assert_damaged::<DaemonState>(text.as_bytes());
        }
    }

    #[test]
    fn nesting_without_end_is_damage_and_ends_nobody() {
        let deep = "[".repeat(1_000_000);
        assert_damaged::<Metadata>(METADATA.replace('X', &deep).as_bytes());
        assert_damaged::<DaemonState>(STATE.replace('X', &deep).as_bytes());
    }

    #[test]
    fn of_many_duplicates_only_some_are_told() {
        let entries = r#""s":{},"#.repeat(10_000);
        let text = format!(r#"{{"version":1,"sessions":{{{entries}"t":{{}}}}}}"#);
        let (state, duplicates) = parse::<DaemonState>(text.as_bytes()).unwrap();
        assert_eq!((state.sessions.len(), duplicates.len()), (2, MAX_TOLD));
    }

    /// Bytes that come nearer to a file than noise does.
    fn near_a_file() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            "[\\[\\]{},:\"\\\\0-9ntfue.+ -]{0,8}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..8),
            Just(br#""version":1,"#.to_vec()),
            Just(br#""sessions":{"s":{"#.to_vec()),
            Just(br#""workspaces":[{"id":"#.to_vec()),
            Just(br#""safeMode":true,"#.to_vec()),
        ];
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_make_the_parser_panic(
            noise in prop::collection::vec(any::<u8>(), 0..64),
            near in near_a_file(),
            value in near_a_file(),
        ) {
            let value = String::from_utf8_lossy(&value);
            let (metadata, state) = (METADATA.replace('X', &value), STATE.replace('X', &value));
            for bytes in [&noise, &near, metadata.as_bytes(), state.as_bytes()] {
                parse::<Metadata>(bytes).ok();
                parse::<DaemonState>(bytes).ok();
            }
        }
    }
}
