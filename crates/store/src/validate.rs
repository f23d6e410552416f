//! Parses bytes into a document, or returns why they are invalid. Pure; the loader decides what to do.

use crate::document::DurableDocument;
use crate::duplicates::Duplicate;
use serde::Deserialize;

/// Reason why bytes are not a usable document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// Written by a newer program.
    TooNew { found: u64 },
    /// Damaged, or not a document of this type.
    Damaged { reason: String },
}

pub(crate) fn parse<D: DurableDocument>(bytes: &[u8]) -> Result<(D, Vec<Duplicate>), Invalid> {
    // Check the version first: a newer format may have any other structure.
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
    use crate::document::StateFile;
    use crate::duplicates::MAX_REPORTED;
    use proptest::prelude::*;
    use quackd_protocol::metadata::Metadata;
    use std::fmt;

    /// A valid file except for the text that replaces `"x":X`.
    const METADATA: &str = r#"{"version":1,"workspaces":[],"sessions":[],"x":X}"#;
    const STATE: &str = r#"{"version":1,"sessions":{"s":{"x":X}}}"#;

    fn assert_damaged<D: DurableDocument + fmt::Debug>(text: &[u8]) {
        let parsed = parse::<D>(text);
        let shown = String::from_utf8_lossy(text);
        assert!(matches!(parsed, Err(Invalid::Damaged { .. })), "{shown:.60}: {parsed:?}");
    }

    #[test]
    fn a_newer_format_is_recognised_whatever_else_it_holds() {
        for text in [r#"{"version":2}"#, r#"{"workspaces":{"now":"a map"},"version":999}"#] {
            let metadata = parse::<Metadata>(text.as_bytes());
            assert!(matches!(metadata, Err(Invalid::TooNew { .. })), "{text}");
            let state = parse::<StateFile>(text.as_bytes());
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
            assert_damaged::<StateFile>(text);
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
            assert_damaged::<StateFile>(text.as_bytes());
        }
    }

    #[test]
    fn nesting_without_end_is_damage_and_ends_nobody() {
        let deep = "[".repeat(1_000_000);
        assert_damaged::<Metadata>(METADATA.replace('X', &deep).as_bytes());
        assert_damaged::<StateFile>(STATE.replace('X', &deep).as_bytes());
    }

    #[test]
    fn of_many_duplicates_only_some_are_told() {
        let entries = r#""s":{},"#.repeat(10_000);
        let text = format!(r#"{{"version":1,"sessions":{{{entries}"t":{{}}}}}}"#);
        let (state, duplicates) = parse::<StateFile>(text.as_bytes()).unwrap();
        assert_eq!((state.state.sessions.len(), duplicates.len()), (2, MAX_REPORTED));
    }

    /// Bytes that resemble a file more than random bytes do.
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
                parse::<StateFile>(bytes).ok();
            }
        }
    }
}
