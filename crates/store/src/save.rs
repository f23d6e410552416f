//! One durable save of both files. Keeps the previous generation of each as a backup. Called by
//! [`crate::Writer`].
//!
//! Two files cannot be replaced atomically. The order makes a crash between them harmless: first the state,
//! then the metadata. A state entry without a session has no effect. A session without its entry would lose
//! its safe mode. So entries are written before their sessions and removed after them.
//!
//! A failure between the two files must leave memory and disk equal. So both files are staged before either
//! is replaced. A full disk, a refused write or a failed fsync then happens while the old files are in place.
//! If the metadata fails after the state was replaced, a rename restores the state, which needs no disk
//! space. The caller then rolls its memory back to the last saved snapshot, which is also in both files. If
//! the directory itself cannot be synced, a power failure may bring the refused change back. The next save
//! then writes that file again in any case.
//!
//! Another program writes the metadata too. Every save first checks for its writes and merges them
//! ([`crate::shared_metadata`]). A write between the check and the rename is exchanged out, kept, and merged
//! after the save ([`crate::exchange`]).

use crate::StoreError;
use crate::document::DurableDocument;
use crate::exchange::{StagedPair, stage_pair_blocking, swap_blocking};
use crate::replace::{Replaced, Staged, stage_blocking};
use crate::shared_metadata::{Saved, SharedMetadata};
use crate::stamp::FileStamp;
use quackd_protocol::metadata::Metadata;
use quackd_protocol::state::DaemonState;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Paths of the two files. They may be in different directories; the daemon uses one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `metadata.json`.
    pub metadata: PathBuf,
    /// `quackd-state.json`.
    pub state: PathBuf,
}

/// Everything durable at one point in time. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Workspaces and sessions.
    pub metadata: Arc<Metadata>,
    /// Session settings that only quackd has.
    pub state: Arc<DaemonState>,
}

/// The two files and their last saved content.
#[derive(Debug)]
pub struct Files {
    state_path: PathBuf,
    shared: SharedMetadata,
    /// Content that was loaded or saved last.
    durable: Snapshot,
    /// Whether each file contains exactly `durable`, so that it can be skipped.
    metadata_is_known: bool,
    state_is_known: bool,
}

impl Files {
    /// Creates the writer of the files at `paths`. `loaded` is the content read from them. The first save
    /// writes both files: `loaded` may come from a backup, or lack duplicates.
    #[must_use]
    pub fn new(paths: Paths, loaded: Snapshot) -> Self {
        Self {
            state_path: paths.state,
            shared: SharedMetadata::new(paths.metadata, Arc::clone(&loaded.metadata)),
            durable: loaded,
            metadata_is_known: false,
            state_is_known: false,
        }
    }

    /// Merges external changes of the metadata, then writes each file whose content differs. The format is
    /// JSON with an indent of two spaces, no final newline, mode 0600. The replaced file becomes
    /// `<path>.bak`.
    ///
    /// # Errors
    /// [`StoreError`]: both files are unchanged. The module documentation names the one exception.
    pub fn save_blocking(&mut self, snapshot: &Snapshot) -> Result<Saved, StoreError> {
        let now = Instant::now();
        let mut written = None;
        let result = self.write_blocking(snapshot, now, &mut written);
        if result.is_err() {
            self.shared.failed_blocking(written);
        }
        result
    }

    /// Returns true if another program has written the metadata and a save would merge it.
    #[must_use]
    pub fn has_changed_blocking(&mut self) -> bool {
        self.shared.has_changed_blocking()
    }

    /// Removes the recovery copy, which the next start needs only after a kill.
    pub fn finish_blocking(mut self) {
        self.shared.finish_blocking();
    }

    /// Sets `written` to the stamp of the new metadata file once it is staged.
    fn write_blocking(
        &mut self,
        snapshot: &Snapshot,
        now: Instant,
        written: &mut Option<FileStamp>,
    ) -> Result<Saved, StoreError> {
        let must_write = !self.metadata_is_known;
        let ready = self.shared.merge_blocking(&snapshot.metadata, must_write, now)?;
        let kept = Snapshot {
            metadata: Arc::clone(&ready.saved.metadata),
            state: Arc::clone(&snapshot.state),
        };
        let (metadata_path, state_path) = (self.shared.path().to_owned(), &self.state_path);
        let state = self.state_to_write(&kept);
        let state = state.map(|state| stage(state_path, &*state)).transpose()?;
        let metadata = ready.is_needed.then(|| stage_pair(&metadata_path, &*ready.to_write));
        let metadata = metadata.transpose()?;
        *written = metadata.as_ref().and_then(StagedPair::stamp);

        self.state_is_known &= state.is_none();
        self.metadata_is_known &= metadata.is_none();
        let state = replace(state, state_path)?;
        let swapped = metadata.map(|pair| swap_blocking(pair, ready.expected)).transpose();
        let is_theirs_unread = match swapped {
            Ok(swapped) => {
                let is_theirs_unread = swapped.as_ref().is_some_and(|it| it.is_theirs_unread);
                let metadata = swapped.map(|swapped| swapped.replaced);
                [state, metadata].into_iter().flatten().for_each(Replaced::keep_blocking);
                is_theirs_unread
            }
            Err(error) => {
                if let Some(state) = state {
                    state.restore_blocking();
                }
                return Err(StoreError::write(&metadata_path, error));
            }
        };
        self.durable = kept;
        (self.metadata_is_known, self.state_is_known) = (true, true);
        Ok(self.shared.done_blocking(ready, *written, is_theirs_unread, now))
    }

    /// Returns the snapshot's state with the entries of sessions that this save deletes, because the metadata
    /// still contains those sessions until it is replaced. The next write of the state drops the entries.
    fn state_to_write<'a>(&self, snapshot: &'a Snapshot) -> Option<Cow<'a, DaemonState>> {
        let durable = &self.durable;
        if self.state_is_known && same(&durable.state, &snapshot.state) {
            return None;
        }
        let ids = |metadata: &Metadata| -> HashSet<_> {
            metadata.sessions.iter().map(|session| session.id.clone()).collect()
        };
        let (before, after) = (ids(&durable.metadata), ids(&snapshot.metadata));
        let goes = |id| before.contains(id) && !after.contains(id);
        let entries = durable.state.sessions.iter();
        let going: Vec<_> = entries
            .filter(|(id, _)| goes(id) && !snapshot.state.sessions.contains_key(id))
            .map(|(id, entry)| (id.clone(), entry.clone()))
            .collect();
        if going.is_empty() {
            return Some(Cow::Borrowed(&*snapshot.state));
        }
        let mut state = DaemonState::clone(&snapshot.state);
        state.sessions.extend(going);
        (!self.state_is_known || state != *durable.state).then_some(Cow::Owned(state))
    }
}

fn same<D: PartialEq>(one: &Arc<D>, other: &Arc<D>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn stage<D: DurableDocument>(path: &Path, document: &D) -> Result<Staged, StoreError> {
    let bytes = to_bytes(D::MAX_BYTES, path, document)?;
    stage_blocking(path, &bytes).map_err(|error| StoreError::write(path, error))
}

/// Like [`stage`], for a file with another writer.
fn stage_pair<D: DurableDocument>(path: &Path, document: &D) -> Result<StagedPair, StoreError> {
    let bytes = to_bytes(D::MAX_BYTES, path, document)?;
    stage_pair_blocking(path, &bytes).map_err(|error| StoreError::write(path, error))
}

fn replace(staged: Option<Staged>, path: &Path) -> Result<Option<Replaced>, StoreError> {
    let replaced = staged.map(Staged::replace_blocking).transpose();
    replaced.map_err(|error| StoreError::write(path, error))
}

fn to_bytes(limit: u64, path: &Path, document: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let bytes = serde_json::to_vec_pretty(document);
    let bytes = bytes.map_err(|error| StoreError::write(path, io::Error::from(error)))?;
    if limit < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(StoreError::TooLarge { path: path.to_owned(), bytes: bytes.len(), limit });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::metadata::Session;
    use quackd_protocol::state::SessionState;
    use serde_json::Map;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A directory with the two files, and the content that two successive starts load.
    struct World {
        dir: tempfile::TempDir,
        files: Files,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let paths = Paths {
                metadata: dir.path().join("metadata.json"),
                state: dir.path().join("quackd-state.json"),
            };
            Self { dir, files: Files::new(paths, Snapshot::default()) }
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.dir.path().join(name)).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.dir.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.retain(|name| !name.ends_with(".ours"));
            names.sort();
            names
        }

        fn on_disk(&self) -> Snapshot {
            let [metadata, state] = self.paths();
            // Remove the recovery copy, which only a start after a kill uses: this test checks the other
            // names.
            fs::remove_file(metadata.with_extension("json.ours")).ok();
            Snapshot {
                metadata: crate::load_blocking(&metadata).unwrap().metadata.into(),
                state: crate::load_state_blocking(&state).unwrap().state.into(),
            }
        }

        fn paths(&self) -> [PathBuf; 2] {
            ["metadata.json", "quackd-state.json"].map(|name| self.dir.path().join(name))
        }

        /// Creates a directory at the path of the staging file.
        fn obstacle(&self, name: &str) -> PathBuf {
            self.dir.path().join(format!("{name}.tmp"))
        }
    }

    const ALL_NAMES: [&str; 4] =
        ["metadata.json", "metadata.json.bak", "quackd-state.json", "quackd-state.json.bak"];

    /// Returns a snapshot with these sessions, of which `safe` are in safe mode.
    fn snapshot(sessions: &[&str], safe: &[&str]) -> Snapshot {
        let session = |id: &&str| Session {
            id: (*id).into(),
            workspace_id: "w".into(),
            name: String::new(),
            pi_session_file: String::new(),
            created_at: String::new(),
            last_active_at: String::new(),
            is_voice_active: false,
            other: Map::new(),
        };
        let entry =
            |id: &&str| ((*id).into(), SessionState { safe_mode: true, ..SessionState::default() });
        let sessions = sessions.iter().map(session).collect();
        let entries = safe.iter().map(entry).collect();
        Snapshot {
            metadata: Metadata { sessions, ..Metadata::default() }.into(),
            state: DaemonState { sessions: entries, ..DaemonState::default() }.into(),
        }
    }

    #[test]
    fn the_files_have_their_shapes_and_are_private() {
        let mut world = World::new();
        world.files.save_blocking(&snapshot(&["s"], &["s"])).unwrap();
        let metadata = r#"{
  "version": 1,
  "workspaces": [],
  "sessions": [
    {
      "id": "s",
      "workspaceId": "w",
      "name": "",
      "piSessionFile": "",
      "createdAt": "",
      "lastActiveAt": "",
      "isVoiceActive": false
    }
  ],
  "activeVoiceSessionId": null
}"#;
        let state = r#"{
  "version": 1,
  "sessions": {
    "s": {
      "safeMode": true
    }
  }
}"#;
        assert_eq!(world.text("metadata.json"), metadata);
        assert_eq!(world.text("quackd-state.json"), state);
        for name in world.names() {
            let mode = fs::metadata(world.dir.path().join(&name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn the_generation_before_is_kept_of_each_file() {
        let mut world = World::new();
        world.files.save_blocking(&snapshot(&["one"], &["one"])).unwrap();
        assert_eq!(world.names(), ["metadata.json", "quackd-state.json"]);
        world.files.save_blocking(&snapshot(&["two"], &["two"])).unwrap();
        world.files.save_blocking(&snapshot(&["three"], &["three"])).unwrap();
        for name in ["metadata.json", "quackd-state.json"] {
            assert!(world.text(name).contains("three"));
            assert!(world.text(&format!("{name}.bak")).contains("two"));
        }
        assert_eq!(world.names(), ALL_NAMES);
    }

    #[test]
    fn a_file_that_would_not_change_is_not_written_but_the_first_time() {
        let mut world = World::new();
        world.files.save_blocking(&snapshot(&["s"], &[])).unwrap();
        world.files.save_blocking(&snapshot(&["s"], &[])).unwrap();
        assert_eq!(world.names(), ["metadata.json", "quackd-state.json"]);
        world.files.save_blocking(&snapshot(&["s", "t"], &[])).unwrap();
        assert_eq!(world.names(), ["metadata.json", "metadata.json.bak", "quackd-state.json"]);
        world.files.save_blocking(&snapshot(&["s", "t"], &["s"])).unwrap();
        assert!(!world.text("metadata.json.bak").contains(r#""t""#));
        assert_eq!(world.names(), ALL_NAMES);
    }

    #[test]
    fn a_save_that_fails_at_either_file_leaves_both_as_they_were_and_nothing_else() {
        let mut world = World::new();
        let (kept, refused) = (snapshot(&["s"], &[]), snapshot(&["s", "t"], &["s", "t"]));
        world.files.save_blocking(&snapshot(&[], &["x"])).unwrap();
        world.files.save_blocking(&kept).unwrap();
        for name in ["metadata.json", "quackd-state.json"] {
            fs::create_dir(world.obstacle(name)).unwrap();
            let result = world.files.save_blocking(&refused);
            assert!(matches!(result, Err(StoreError::Io { .. })), "{name}: {result:?}");
            fs::remove_dir(world.obstacle(name)).unwrap();
            assert_eq!(world.on_disk(), kept, "{name}");
            assert_eq!(world.names(), ALL_NAMES);
            assert!(world.text("quackd-state.json.bak").contains(r#""x""#));
        }
        world.files.save_blocking(&refused).unwrap();
        assert_eq!(world.on_disk(), refused);
    }

    #[test]
    fn what_an_error_left_in_doubt_is_written_again_by_the_next_save() {
        let mut world = World::new();
        let kept = snapshot(&["s"], &["s"]);
        world.files.save_blocking(&kept).unwrap();
        let in_doubt = snapshot(&["t"], &["t"]);
        let [metadata, state] = world.paths();
        for (path, bytes) in [
            (&metadata, to_bytes(1000, Path::new(""), &*in_doubt.metadata).unwrap()),
            (&state, to_bytes(1000, Path::new(""), &*in_doubt.state).unwrap()),
        ] {
            fs::remove_file(path).unwrap();
            fs::write(path, bytes).unwrap();
        }
        // As after a failed replacement that could not be undone.
        (world.files.state_is_known, world.files.metadata_is_known) = (false, false);
        world.files.shared.failed_blocking(FileStamp::at_blocking(&metadata));
        world.files.save_blocking(&kept).unwrap();
        assert_eq!(world.on_disk(), kept);
    }

    #[test]
    fn the_state_of_a_session_goes_after_the_session() {
        let mut world = World::new();
        world.files.save_blocking(&snapshot(&["s", "t"], &["s", "t"])).unwrap();
        let entries = |world: &World| -> Vec<String> {
            world.on_disk().state.sessions.keys().map(ToString::to_string).collect()
        };
        // Dropping the entry here would leave the session without it after a crash between the two files.
        world.files.save_blocking(&snapshot(&["t"], &["t"])).unwrap();
        assert_eq!(entries(&world), ["s", "t"]);
        // The next session's entry is added, and the old one is dropped.
        world.files.save_blocking(&snapshot(&["u"], &["u"])).unwrap();
        assert_eq!(entries(&world), ["t", "u"]);
        // A session that stays and leaves safe mode loses its entry at once.
        world.files.save_blocking(&snapshot(&["u"], &[])).unwrap();
        assert_eq!(entries(&world), [""; 0]);
    }

    #[test]
    fn what_would_be_too_large_to_be_read_is_not_written() {
        let path = Path::new("/f");
        let error = to_bytes(2, path, &"x").unwrap_err();
        assert_eq!(error.to_string(), "/f would grow to 3 bytes, more than the 2 allowed");
        assert_eq!(to_bytes(3, path, &"x").unwrap(), br#""x""#);
    }
}
