//! One save: makes everything durable in `quackd-state.json`, then writes `metadata.json` as a view of it. Called by
//! [`crate::Writer`].
//!
//! Another program writes the view too. So every save first looks at it and imports what that program changed
//! ([`crate::import`]); the changes are durable with ours. A file that it writes between the look and the exchange
//! is taken out of the way, kept as `metadata.json.theirs`, and imported by the next save.
//!
//! A session and its safe mode are in one file, so neither exists without the other. If only the view cannot be
//! written, the change is kept: memory equals our state, and the view follows.

use crate::import::{Gone, Imported, Recent, import, is_equivalent};
use quackd_protocol::metadata::Metadata;
use quackd_store::{
    FileContent, FileStamp, Good, Snapshot, StoreError, StoredState, Temporary, exchange_blocking,
    keep_as_backup_blocking, quarantine_blocking, read_blocking, set_aside_blocking, to_bytes,
    with_suffix, write_synced_blocking,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Suffixes of files that older versions left next to `metadata.json`. They were imported at the start.
const OF_OLDER_VERSIONS: [&str; 5] = [".ours", ".ours.tmp", ".ours.bak.tmp", ".tmp", ".bak.tmp"];

/// Paths of the two files. They may be in different directories; the daemon uses one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `metadata.json`.
    pub metadata: PathBuf,
    /// `quackd-state.json`.
    pub state: PathBuf,
}

/// Result of a save.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// The saved metadata with the other program's changes. The caller replaces its memory with this, and keeps its
    /// own changes since the save started ([`crate::rebase`]).
    pub metadata: Arc<Metadata>,
    /// Entries that the other program has deleted. They are still in `metadata`. The caller deletes them, or
    /// keeps them by saving again.
    pub gone: Gone,
    /// Deletions by the other program that did not count, for the log.
    pub notes: Vec<String>,
    /// The unusable file that was found, if any.
    pub set_aside: Option<SetAside>,
    /// Reason why `metadata.json` was not written. The next save tries again.
    pub not_exported: Option<StoreError>,
    /// True if the other program wrote during the save. The caller should save again soon.
    pub is_behind: bool,
}

/// An unusable file that was moved aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// New path of the file.
    pub path: PathBuf,
    /// Reason why the file was not used.
    pub reason: String,
}

/// The two files and their last known content.
#[derive(Debug)]
pub struct Files {
    paths: Paths,
    state: StoredState,
    /// Content and stamp of `metadata.json` at the last read or write; empty if it was missing.
    held: Arc<Metadata>,
    stamp: Option<FileStamp>,
    recent: Recent,
    /// Content of the `.theirs` file, which is not imported yet.
    unread: Option<Arc<Metadata>>,
    /// Whether `metadata.json` must be written although nothing changes.
    is_view_due: bool,
    set_aside: Option<SetAside>,
    /// Stamp of `metadata.json` when the last save failed; the inner `None` if it was missing.
    failed_with: Option<Option<FileStamp>>,
}

impl Files {
    pub(crate) fn new(
        paths: Paths,
        durable: Snapshot,
        held: Metadata,
        stamp: Option<FileStamp>,
        recent: Recent,
        is_settled: bool,
    ) -> Self {
        let leftovers = [theirs_name(&paths.metadata), ours_name(&paths.metadata)];
        let is_view_due = !is_equivalent(&held, &durable.metadata)
            || leftovers.iter().any(|leftover| leftover.exists());

        Self {
            state: StoredState::new(paths.state.clone(), durable, is_settled),
            paths,
            held: held.into(),
            stamp,
            recent,
            unread: None,
            is_view_due,
            set_aside: None,
            failed_with: None,
        }
    }

    pub(crate) fn durable(&self) -> Snapshot {
        self.state.durable()
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Imports what another program has changed, makes everything durable, and updates the view. The format is
    /// JSON with an indent of two spaces, no final newline, mode 0600. The replaced files become `<path>.bak`.
    ///
    /// # Errors
    /// [`StoreError`]: both files are unchanged. After [`Saved::not_exported`], only the view is.
    pub fn save_blocking(&mut self, snapshot: &Snapshot) -> Result<Saved, StoreError> {
        let saved = self.try_save_blocking(snapshot, Instant::now());
        // The same file would fail again, so it does not request another save.
        let failed_with = || FileStamp::at_blocking(&self.paths.metadata);
        self.failed_with = saved.is_err().then(failed_with);
        saved
    }

    /// Returns true if another program has written the metadata and a save would import it, or if the view is due.
    #[must_use]
    pub fn has_changed_blocking(&self) -> bool {
        let stamp = FileStamp::at_blocking(&self.paths.metadata);
        (self.is_view_due || stamp != self.stamp) && self.failed_with != Some(stamp)
    }

    /// Completes the last save. Records that everything has been seen, unless the other program may still write an
    /// older version of the file.
    pub fn finish_blocking(mut self) {
        if self.unread.is_some() || self.is_view_due {
            // A failure leaves the change for the next start, which imports it.
            self.save_blocking(&self.durable()).ok();
        }

        let is_open = self.unread.is_some() || self.has_changed_blocking();
        // Otherwise the next start could take an old copy of the other program for a change.
        if !is_open && !self.recent.is_fresh(Instant::now()) {
            // Without the mark, the next start is only more careful.
            self.state.settle_blocking().ok();
        }
    }

    fn try_save_blocking(&mut self, ours: &Snapshot, now: Instant) -> Result<Saved, StoreError> {
        let mut saved = Saved { metadata: Arc::clone(&ours.metadata), ..Saved::default() };
        let theirs = self.find_theirs_blocking(now)?;
        if let Some(Theirs { metadata, .. }) = &theirs {
            let imported = import(&self.held, &self.recent, &saved.metadata, metadata, now);
            let Imported { metadata, gone, notes } = imported;
            if metadata != *saved.metadata {
                saved.metadata = Arc::new(metadata);
            }
            (saved.gone, saved.notes) = (gone, notes);
        }

        let durable = self.state.durable();
        let earlier = self.recent.earlier(&durable.metadata, &saved.metadata, now);
        let state = Arc::clone(&ours.state);
        let snapshot = Snapshot { metadata: Arc::clone(&saved.metadata), state };
        self.state.save_blocking(snapshot, earlier)?;

        // Only now: a failed save must import the changes again.
        if let Some(theirs) = theirs {
            self.accept_blocking(theirs, now);
        }

        let view = if saved.gone.is_empty() {
            Arc::clone(&saved.metadata)
        } else {
            Arc::new(saved.gone.without(&saved.metadata))
        };

        self.is_view_due |= !is_equivalent(&self.held, &view);
        if self.is_view_due {
            saved.not_exported = self.export_blocking(view, now).err();
        }

        saved.set_aside = self.set_aside.take();
        saved.is_behind = self.unread.is_some();
        Ok(saved)
    }

    /// Returns a file of another program that was not imported yet.
    fn find_theirs_blocking(&mut self, now: Instant) -> Result<Option<Theirs>, StoreError> {
        if let Some(metadata) = &self.unread {
            return Ok(Some(Theirs { metadata: Arc::clone(metadata), stamp: None, is_out: true }));
        }

        let path = &self.paths.metadata;
        if FileStamp::at_blocking(path).is_some_and(|stamp| self.stamp == Some(stamp)) {
            return Ok(None);
        }

        match read_blocking::<Metadata>(path)? {
            FileContent::Good(Good { document, stamp, .. }) => {
                if document != *self.held {
                    let metadata = Arc::new(document);
                    return Ok(Some(Theirs { metadata, stamp, is_out: false }));
                }
                // Our content, rewritten. That does not show which changes the other program has seen.
                self.stamp = stamp;
            }
            FileContent::Missing => self.forget_view(now),
            FileContent::Bad(reason) => {
                let moved = set_aside_blocking(path);
                let path = moved.map_err(|error| StoreError::write(path, error))?;
                self.set_aside = Some(SetAside { path, reason });
                self.forget_view(now);
            }
        }
        Ok(None)
    }

    /// Records that the view is lost. A program that lost the file also lost our entries.
    fn forget_view(&mut self, now: Instant) {
        self.recent.doubt(now);
        (self.held, self.stamp) = (Arc::default(), None);
    }

    /// Records that the changes of another program are durable.
    fn accept_blocking(&mut self, theirs: Theirs, now: Instant) {
        let Theirs { metadata, stamp, is_out } = theirs;
        self.recent.seen(&metadata);
        if is_out {
            // Its next file may be based on this one, although ours replaced it.
            self.recent.note(&metadata, &self.held, now);
            self.unread = None;
            let path = &self.paths.metadata;
            keep_as_backup_blocking(&theirs_name(path), path);
        } else {
            (self.held, self.stamp) = (metadata, stamp);
        }
    }

    /// Writes the view in the place of the file that was read last. A file that another program
    /// wrote since becomes `unread`.
    fn export_blocking(&mut self, view: Arc<Metadata>, now: Instant) -> Result<(), StoreError> {
        let path = self.paths.metadata.clone();
        let bytes = to_bytes::<Metadata>(&path, &*view)?;
        let failed = |error| StoreError::write(&path, error);

        let new = Temporary::new_blocking(theirs_name(&path)).map_err(failed)?;
        let written = write_synced_blocking(new.path(), &bytes).map_err(failed)?;
        let had_file = exchange_blocking(new.path(), &path).map_err(failed)?;

        let known = self.stamp;
        let mut out = None;
        // An equal stamp means that the file is the one that was read last, so it has no news.
        if had_file && (known.is_none() || FileStamp::at_blocking(new.path()) != known) {
            match read_blocking::<Metadata>(new.path()) {
                Ok(content) => out = Some(content),
                Err(error) => {
                    // It is newer than we know, or cannot be read now: it belongs where it was.
                    exchange_blocking(new.path(), &path).map_err(failed)?;
                    return Err(error);
                }
            }
        }

        self.recent.note(&self.held, &view, now);
        let held = std::mem::replace(&mut self.held, view);
        (self.stamp, self.is_view_due) = (Some(written), false);

        match out {
            Some(FileContent::Good(Good { document, .. })) if document != *held => {
                self.unread = Some(Arc::new(document));
                new.keep();
            }
            Some(FileContent::Bad(reason)) => {
                let aside = quarantine_blocking(new.path(), &path).map_err(failed)?;
                self.set_aside = Some(SetAside { path: aside, reason });
                self.recent.doubt(now);
            }
            // For releases that read the backup.
            _ => keep_as_backup_blocking(new.path(), &path),
        }

        for suffix in OF_OLDER_VERSIONS {
            // A file that stays is tried again by the next save.
            fs::remove_file(with_suffix(&path, suffix)).ok();
        }
        Ok(())
    }
}

/// A file of another program.
struct Theirs {
    metadata: Arc<Metadata>,
    stamp: Option<FileStamp>,
    /// True if it was taken out of the way.
    is_out: bool,
}

/// Path of a file of another program that a save took out of the way. It stays until its changes are durable.
pub(crate) fn theirs_name(metadata: &Path) -> PathBuf {
    with_suffix(metadata, ".theirs")
}

/// Path of the last metadata of an older version, if that was killed.
pub(crate) fn ours_name(metadata: &Path) -> PathBuf {
    with_suffix(metadata, ".ours")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::metadata::Session;
    use quackd_protocol::state::{DaemonState, SessionState};
    use serde_json::Map;
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
            Self { dir, files: crate::open_blocking(paths).files.unwrap() }
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.dir.path().join(name)).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.dir.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn on_disk(&self) -> Snapshot {
            crate::open_blocking(self.files.paths.clone()).snapshot
        }

        /// Creates a directory at the path of the staging file.
        fn obstacle(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
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
        let sessions = sessions.iter().map(|id| session(id).into()).collect();
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
  },
  "metadata": METADATA
}"#;
        let state = state.replace("METADATA", &metadata.replace('\n', "\n  "));
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
        assert_eq!(world.names(), ALL_NAMES);
        // The view shows no safe mode, so it stays.
        world.files.save_blocking(&snapshot(&["s", "t"], &["s"])).unwrap();
        assert!(!world.text("metadata.json.bak").contains(r#""t""#));
    }

    #[test]
    fn a_save_that_fails_leaves_both_files_as_they_were_and_nothing_else() {
        let mut world = World::new();
        let (kept, refused) = (snapshot(&["s"], &[]), snapshot(&["s", "t"], &["s", "t"]));
        world.files.save_blocking(&snapshot(&[], &["x"])).unwrap();
        world.files.save_blocking(&kept).unwrap();
        world.files.save_blocking(&snapshot(&["s"], &["s"])).unwrap();
        world.files.save_blocking(&kept).unwrap();
        let before = ALL_NAMES.map(|name| fs::read(world.dir.path().join(name)).ok());
        for name in ["quackd-state.json.tmp", "quackd-state.json.bak.tmp"] {
            fs::create_dir(world.obstacle(name)).unwrap();
            let result = world.files.save_blocking(&refused);
            assert!(matches!(result, Err(StoreError::Io { .. })), "{name}: {result:?}");
            fs::remove_dir(world.obstacle(name)).unwrap();
            assert_eq!(before, ALL_NAMES.map(|name| fs::read(world.dir.path().join(name)).ok()));
            assert_eq!(world.on_disk(), kept, "{name}");
        }
        world.files.save_blocking(&refused).unwrap();
        assert_eq!(world.on_disk(), refused);
    }

    #[test]
    fn leftovers_of_an_interrupted_save_disturb_neither_loading_nor_saving() {
        let mut world = World::new();
        let current = snapshot(&["current"], &["current"]);
        world.files.save_blocking(&current).unwrap();
        let names = ["metadata.json", "quackd-state.json"];
        let before = names.map(|name| world.text(name));
        for name in names {
            for leftover in ["tmp", "bak.tmp"] {
                fs::write(world.obstacle(&format!("{name}.{leftover}")), "half a").unwrap();
            }
        }
        assert_eq!(world.on_disk(), current);
        let mut files = crate::open_blocking(world.files.paths.clone()).files.unwrap();
        files.save_blocking(&snapshot(&["next"], &["next"])).unwrap();
        for (name, before) in names.into_iter().zip(before) {
            assert!(world.text(name).contains("next"));
            assert_eq!(world.text(&format!("{name}.bak")), before);
        }
        assert_eq!(world.names(), ALL_NAMES);
    }

    #[test]
    fn a_change_is_kept_although_the_view_cannot_be_written_and_the_view_follows() {
        let mut world = World::new();
        world.files.save_blocking(&snapshot(&["s"], &[])).unwrap();
        let kept = snapshot(&["s", "t"], &["t"]);
        fs::create_dir(world.obstacle("metadata.json.theirs")).unwrap();
        let saved = world.files.save_blocking(&kept).unwrap();
        assert!(matches!(saved.not_exported, Some(StoreError::Io { .. })), "{saved:?}");
        fs::remove_dir(world.obstacle("metadata.json.theirs")).unwrap();
        assert!(!world.text("metadata.json").contains(r#""t""#));
        assert!(world.files.has_changed_blocking(), "the view is due");
        assert_eq!(world.on_disk(), kept, "as after a kill");
        let saved = world.files.save_blocking(&kept).unwrap();
        assert!(saved.not_exported.is_none() && !world.files.has_changed_blocking());
        assert!(world.text("metadata.json").contains(r#""t""#));
    }

    #[test]
    fn a_file_that_came_after_our_last_look_is_kept() {
        let mut world = World::new();
        world.files.save_blocking(&snapshot(&["s"], &[])).unwrap();
        let path = world.files.paths.metadata.clone();
        let export = |world: &mut World, sessions: &[&str]| {
            let view = Arc::clone(&snapshot(sessions, &[]).metadata);
            world.files.export_blocking(view, Instant::now())
        };
        let theirs = serde_json::to_vec(&*snapshot(&["s", "app"], &[]).metadata).unwrap();
        fs::write(&path, &theirs).unwrap();
        export(&mut world, &["s", "ours"]).unwrap();
        assert!(world.text("metadata.json").contains("ours"));
        assert_eq!(fs::read(theirs_name(&path)).unwrap(), theirs);
        // The next save imports it, and so does the next start.
        assert_eq!(world.on_disk().metadata.sessions.len(), 3);
        let saved = world.files.save_blocking(&snapshot(&["s", "ours"], &[])).unwrap();
        assert_eq!((saved.metadata.sessions.len(), saved.is_behind), (3, false));
        assert!(world.text("metadata.json").contains("app") && !theirs_name(&path).exists());

        // A newer format goes back to its place.
        let newer = r#"{"version":999}"#;
        fs::write(&path, newer).unwrap();
        let error = export(&mut world, &["s"]).unwrap_err();
        assert!(matches!(error, StoreError::TooNew { .. }), "{error}");
        assert_eq!(world.text("metadata.json"), newer);
        // Anything but a file is set aside.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        export(&mut world, &["s"]).unwrap();
        assert!(world.files.set_aside.is_some() && path.is_file());
        assert!(world.dir.path().join("metadata.json.corrupt-1").is_dir());
    }
}
