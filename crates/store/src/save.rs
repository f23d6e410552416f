//! One save: the whole file, durably, with the generation before it kept. Called by [`crate::Writer`].

use crate::StoreError;
use crate::replace::{Failure, hold_previous_blocking, try_replace_blocking};
use quackd_protocol::limits::MAX_METADATA_BYTES;
use quackd_protocol::metadata::Metadata;
use std::io;
use std::path::Path;

/// Writes the whole file: pretty-printed with two spaces, no newline at the end, mode 0600. The file
/// that it replaces stays as `<path>.bak`.
///
/// # Errors
/// [`StoreError`]. The old file is there then, and a power cut can bring the new one only if the disk
/// failed at the very last step. (A first file, which has no old one, may stay.)
pub fn save_blocking(path: &Path, metadata: &Metadata) -> Result<(), StoreError> {
    save_within(MAX_METADATA_BYTES, path, metadata)
}

fn save_within(limit: u64, path: &Path, metadata: &Metadata) -> Result<(), StoreError> {
    let bytes = serde_json::to_vec_pretty(metadata);
    let bytes = bytes.map_err(|error| StoreError::write(path, io::Error::from(error)))?;
    if limit < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(StoreError::TooLarge { bytes: bytes.len(), limit });
    }
    let previous = hold_previous_blocking(path).map_err(|e| StoreError::write(path, e))?;
    match (try_replace_blocking(path, &bytes), previous) {
        (Ok(()), Some(previous)) => previous.keep(),
        (Ok(()), None) => {}
        (Err(Failure::NewInPlace(error)), previous) => {
            if let Some(previous) = previous {
                previous.restore();
            }
            return Err(StoreError::write(path, error));
        }
        (Err(Failure::OldInPlace(error)), previous) => {
            if let Some(previous) = previous {
                previous.discard();
            }
            return Err(StoreError::write(path, error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::metadata::Workspace;
    use std::fs;

    fn with_workspace(id: &str) -> Metadata {
        let workspace = Workspace {
            id: id.into(),
            path: "/w".to_owned(),
            created_at: "2026-01-02T03:04:05Z".to_owned(),
            last_active_session_id: None,
            other: serde_json::Map::new(),
        };
        Metadata { workspaces: vec![workspace], ..Metadata::default() }
    }

    #[test]
    fn the_file_has_upstreams_shape() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.json");
        save_blocking(&path, &with_workspace("w1")).unwrap();
        let wanted = r#"{
  "version": 1,
  "workspaces": [
    {
      "id": "w1",
      "path": "/w",
      "createdAt": "2026-01-02T03:04:05Z",
      "lastActiveSessionId": null
    }
  ],
  "sessions": [],
  "activeVoiceSessionId": null
}"#;
        assert_eq!(fs::read_to_string(&path).unwrap(), wanted);
    }

    #[test]
    fn the_generation_before_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.json");
        let backup = dir.path().join("metadata.json.bak");
        save_blocking(&path, &with_workspace("one")).unwrap();
        assert!(!backup.exists());
        save_blocking(&path, &with_workspace("two")).unwrap();
        save_blocking(&path, &with_workspace("three")).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("three"));
        assert!(fs::read_to_string(&backup).unwrap().contains("two"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_failed_save_leaves_both_generations_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.json");
        let missing = dir.path().join("no/metadata.json");
        assert!(matches!(
            save_blocking(&missing, &with_workspace("x")),
            Err(StoreError::Io { .. })
        ));

        save_blocking(&path, &with_workspace("one")).unwrap();
        save_blocking(&path, &with_workspace("two")).unwrap();
        let limit = fs::metadata(&path).unwrap().len();
        let refused = save_within(limit, &path, &with_workspace("longer"));
        assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
        assert!(fs::read_to_string(&path).unwrap().contains("two"));
        assert!(fs::read_to_string(dir.path().join("metadata.json.bak")).unwrap().contains("one"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
