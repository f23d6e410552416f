//! The two durable files as types: version, maximum size, parser and writer of each. `quackd-state.json` contains
//! metadata in the shape of `metadata.json`, so both parsers are here.

use crate::StoreError;
use crate::duplicates::{Duplicate, Duplicates};
use quackd_protocol::approval::Grant;
use quackd_protocol::limits::{MAX_METADATA_BYTES, MAX_STATE_BYTES};
use quackd_protocol::metadata::{METADATA_VERSION, Metadata};
use quackd_protocol::state::{
    DaemonState, FoundPreset, HeldConfig, STATE_VERSION, SessionState, WorkspaceState,
};
use quackd_protocol::{SessionId, WorkspaceId};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, io};

/// `metadata.json` or `quackd-state.json`.
pub trait DurableDocument: Serialize + Default {
    /// Newest supported format.
    const VERSION: u64;
    /// Largest file that is read or written, in bytes.
    const MAX_BYTES: u64;

    /// Parses text of a supported format. Keeps the first of several entries with the same id.
    ///
    /// # Errors
    /// The text has another shape.
    fn from_json(bytes: &[u8]) -> serde_json::Result<(Self, Vec<Duplicate>)>;
}

/// Returns the text of a document, with an indent of two spaces and no final newline. `path` is the file that gets it.
///
/// # Errors
/// [`StoreError::TooLarge`] if it could not be loaded again.
pub fn to_bytes<D: DurableDocument>(
    path: &Path,
    document: &impl Serialize,
) -> Result<Vec<u8>, StoreError> {
    let bytes = serde_json::to_vec_pretty(document);
    let bytes = bytes.map_err(|error| StoreError::write(path, io::Error::from(error)))?;

    let limit = D::MAX_BYTES;
    if limit < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(StoreError::TooLarge { path: path.to_owned(), bytes: bytes.len(), limit });
    }
    Ok(bytes)
}

impl DurableDocument for Metadata {
    const VERSION: u64 = METADATA_VERSION;
    const MAX_BYTES: u64 = MAX_METADATA_BYTES;

    fn from_json(bytes: &[u8]) -> serde_json::Result<(Self, Vec<Duplicate>)> {
        let mut metadata: Self = serde_json::from_slice(bytes)?;
        let duplicates = remove_duplicates(&mut metadata);
        Ok((metadata, duplicates))
    }
}

/// Keeps the first of several entries with the same id, because upstream does so.
fn remove_duplicates(metadata: &mut Metadata) -> Vec<Duplicate> {
    let mut workspaces = Duplicates::new("workspace with the id");
    metadata.workspaces.retain(|workspace| workspaces.is_first(workspace.id.as_str()));
    let mut sessions = Duplicates::new("session with the id");
    metadata.sessions.retain(|session| sessions.is_first(session.id.as_str()));

    let mut duplicates = workspaces.into_vec();
    duplicates.extend(sessions.into_vec());
    duplicates
}

/// Content of `quackd-state.json`: everything durable. By reference when it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StateFile<S = DaemonState, M = Metadata> {
    /// Settings that only quackd has.
    #[serde(flatten)]
    pub state: S,
    /// Workspaces and sessions, of which `metadata.json` is a view. Missing in files of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<M>,
    /// Replacements and deletions by quackd in the last seconds before this save.
    #[serde(skip_serializing_if = "Earlier::is_empty")]
    pub earlier: Earlier,
    /// True if the daemon ended in order, long enough after its last change: an entry that `metadata.json` lacks at
    /// the next start was deleted by another program.
    #[serde(rename = "settled", skip_serializing_if = "is_false")]
    pub is_settled: bool,
}

/// Values that quackd replaced in the metadata just before a save, and entries that it deleted. After a kill of the
/// daemon they tell an old copy of another program from a change. Oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Earlier {
    /// Entries and active sessions as they were before each change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Metadata>,
    /// Ids of deleted sessions, and paths of deleted workspaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<String>,
}

impl Earlier {
    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.deleted.is_empty()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl DurableDocument for StateFile {
    const VERSION: u64 = STATE_VERSION;
    const MAX_BYTES: u64 = MAX_STATE_BYTES;

    fn from_json(bytes: &[u8]) -> serde_json::Result<(Self, Vec<Duplicate>)> {
        let File {
            version,
            sessions,
            workspaces,
            grants,
            last_grant,
            presets,
            held,
            mut metadata,
            earlier,
            is_settled,
            other,
        } = serde_json::from_slice(bytes)?;
        let Entries { sessions, mut duplicates } = sessions;
        duplicates.extend(metadata.iter_mut().flat_map(remove_duplicates));
        let state =
            DaemonState { version, sessions, workspaces, grants, last_grant, presets, held, other };
        Ok((Self { state, metadata, earlier, is_settled }, duplicates))
    }
}

/// [`StateFile`] as it must be in a file. `sessions` is always written, so a missing `sessions` means
/// damage. With a default, one bad byte in the key would end the safe mode of every session.
#[derive(Deserialize)]
struct File {
    version: u64,
    sessions: Entries,
    #[serde(default)]
    workspaces: BTreeMap<WorkspaceId, WorkspaceState>,
    #[serde(default)]
    grants: Vec<Grant>,
    #[serde(default, rename = "lastGrant")]
    last_grant: u64,
    #[serde(default)]
    presets: BTreeMap<String, FoundPreset>,
    #[serde(default)]
    held: Vec<HeldConfig>,
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(default)]
    earlier: Earlier,
    #[serde(default, rename = "settled")]
    is_settled: bool,
    #[serde(flatten)]
    other: Map<String, Value>,
}

struct Entries {
    sessions: BTreeMap<SessionId, SessionState>,
    duplicates: Vec<Duplicate>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// Reports duplicate keys. serde's map types silently keep the last one.
struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of sessions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut sessions = BTreeMap::new();
        let mut seen = Duplicates::new("state of the session");
        // The first entry counts, as for the metadata.
        while let Some((id, session)) = map.next_entry::<SessionId, SessionState>()? {
            if seen.is_first(id.as_str()) {
                sessions.insert(id, session);
            }
        }
        Ok(Entries { sessions, duplicates: seen.into_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::parse;

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
        let (metadata, duplicates) = parse::<Metadata>(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string_pretty(&metadata).unwrap(), text);
        assert_eq!(duplicates, []);
    }

    #[test]
    fn the_state_and_its_unknown_keys_survive_a_round_trip() {
        let text = r#"{
  "version": 1,
  "sessions": {
    "B1F7": {
      "safeMode": true,
      "policy": "read-only",
      "engine": "pi",
      "model": "m",
      "restarts": 3,
      "colour": [
        1.5
      ]
    },
    "B1F8": {}
  },
  "workspaces": {
    "w1": {
      "policy": {
        "network": true,
        "writableRoots": [
          "/srv/cache"
        ]
      }
    }
  },
  "futureKey": 18446744073709551615,
  "metadata": {
    "version": 1,
    "workspaces": [],
    "sessions": [],
    "activeVoiceSessionId": null,
    "futureKey": 1.5
  },
  "earlier": {
    "values": [
      {
        "version": 1,
        "workspaces": [],
        "sessions": [],
        "activeVoiceSessionId": "B1F8"
      }
    ],
    "deleted": [
      "B1F9"
    ]
  },
  "settled": true
}"#;
        let (state, duplicates) = parse::<StateFile>(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string_pretty(&state).unwrap(), text);
        assert_eq!(duplicates, []);
    }

    #[test]
    fn of_two_entries_with_one_id_the_first_is_kept_and_the_other_is_told() {
        let text = r#"{"version":1,
            "workspaces":[{"id":"w","path":"/a"},{"id":"w","path":"/b"},{"id":"v","path":"/a"}],
            "sessions":[{"id":"s","workspaceId":"w","name":"one"},{"id":"s","workspaceId":"w","name":"two"},
                        {"id":"t","workspaceId":"w","name":"one"}]}"#;
        let (metadata, duplicates) = parse::<Metadata>(text.as_bytes()).unwrap();
        let workspaces: Vec<_> =
            metadata.workspaces.iter().map(|w| (w.id.as_str(), &*w.path)).collect();
        assert_eq!(workspaces, [("w", "/a"), ("v", "/a")]);
        let sessions: Vec<_> =
            metadata.sessions.iter().map(|s| (s.id.as_str(), &*s.name)).collect();
        // Two sessions may have the same name.
        assert_eq!(sessions, [("s", "one"), ("t", "one")]);
        let texts: Vec<_> = duplicates.iter().map(Duplicate::to_string).collect();
        assert_eq!(
            texts,
            [
                r#"second workspace with the id "w" left out"#,
                r#"second session with the id "s" left out"#
            ]
        );

        let text = r#"{"version":1,"sessions":{"s":{"safeMode":true},"t":{},"s":{}}}"#;
        let (StateFile { state, .. }, duplicates) = parse::<StateFile>(text.as_bytes()).unwrap();
        let safe = SessionState { safe_mode: true, ..SessionState::default() };
        let expected = BTreeMap::from([("s".into(), safe), ("t".into(), SessionState::default())]);
        assert_eq!(state.sessions, expected);
        let texts: Vec<_> = duplicates.iter().map(Duplicate::to_string).collect();
        assert_eq!(texts, [r#"second state of the session "s" left out"#]);
    }

    #[test]
    fn what_would_be_too_large_to_be_read_is_not_written() {
        let path = Path::new("/f");
        let limit = Metadata::MAX_BYTES;
        let text = "x".repeat(usize::try_from(limit).unwrap() - 2);
        to_bytes::<Metadata>(path, &text).unwrap();
        let error = to_bytes::<Metadata>(path, &(text + "x")).unwrap_err().to_string();
        assert!(error.ends_with(&format!("more than the {limit} allowed")), "{error}");
    }
}
