//! `metadata.json` as a file with two writers: its last known content, and the merge of external changes.
//! Used by [`crate::Files`] on the writer's thread.

use crate::StoreError;
use crate::exchange::{ours_name, theirs_name};
use crate::load::{FileContent, Good, read};
use crate::merge::{Conflict, Gone, Merged, RecentChanges, is_equivalent, merge};
use crate::quarantine::quarantine_blocking;
use crate::replace::remove_if_there;
use crate::stamp::FileStamp;
use quackd_protocol::SessionId;
use quackd_protocol::metadata::Metadata;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of remembered conflicts. Each is reported once; above the limit none is reported.
const MAX_KNOWN_CONFLICTS: usize = 1000;

/// Result of a save.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved {
    /// The saved metadata with the other program's changes merged in. The caller replaces its memory with
    /// this, and keeps its own changes since the save started ([`crate::rebase`]).
    pub metadata: Arc<Metadata>,
    /// Entries that the other program has deleted. They are still in `metadata`. The caller deletes them, or
    /// keeps them by saving again.
    pub gone: Gone,
    /// Changes by both sides, each reported once.
    pub conflicts: Vec<Conflict>,
    /// The unusable file that was found, if any.
    pub set_aside: Option<SetAside>,
    /// True if the file lacks entries of `metadata` that are not in `gone`. The caller should save again
    /// soon.
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

/// `metadata.json` and the last content that quackd read from it or wrote to it.
#[derive(Debug)]
pub(crate) struct SharedMetadata {
    path: PathBuf,
    /// Content of the file at the last read or write.
    held: Arc<Metadata>,
    /// Stamp of that file; `None` if it was missing or not read yet.
    stamp: Option<FileStamp>,
    /// True after the first read.
    was_read: bool,
    /// Our own file from a failed save. It may still be at the path.
    refused: Option<FileStamp>,
    /// Stamp at the path when the last save failed; the inner `None` if the path was empty.
    failed_with: Option<Option<FileStamp>>,
    recent: RecentChanges,
    known_conflicts: HashSet<Conflict>,
    set_aside: Option<SetAside>,
    /// True if a `.theirs` file may exist.
    has_leftover: bool,
    /// Sessions that only the `.theirs` file has. A snapshot that was taken before the merge lacks them.
    unmerged: HashSet<SessionId>,
}

/// Result of reading the path.
enum DiskContent {
    /// The known file.
    Same,
    /// No usable file, or our own file from a failed save.
    Nothing(Option<FileStamp>),
    /// A file that another program wrote.
    Theirs(Metadata, Option<FileStamp>),
}

/// Merge result that is ready to be written.
pub(crate) struct PreparedMerge {
    pub(crate) saved: Saved,
    /// New content of the file. It lacks the deleted entries.
    pub(crate) to_write: Arc<Metadata>,
    /// True if the file must be written.
    pub(crate) is_needed: bool,
    /// Stamp of the file that the new one should replace.
    pub(crate) expected: Option<FileStamp>,
    /// Content and stamp of the file that was read. Recorded only if the save succeeds.
    found: Option<(Arc<Metadata>, Option<FileStamp>)>,
}

impl SharedMetadata {
    pub(crate) fn new(path: PathBuf, loaded: Arc<Metadata>) -> Self {
        let mut recent = RecentChanges::default();
        // After a kill, or without a file, it is unknown which version the other program has read.
        if ours_name(&path).exists() || !path.exists() {
            recent.doubt(Instant::now());
        }
        Self {
            path,
            held: loaded,
            stamp: None,
            was_read: false,
            refused: None,
            failed_with: None,
            recent,
            known_conflicts: HashSet::new(),
            set_aside: None,
            has_leftover: true,
            unmerged: HashSet::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the file changed since the last read or write, and a save would merge it.
    pub(crate) fn has_changed_blocking(&mut self) -> bool {
        let found = FileStamp::at_blocking(&self.path);
        if !std::mem::replace(&mut self.was_read, true)
            && let Ok(FileContent::Good(Good { document, stamp, .. })) =
                read::<Metadata>(&self.path)
            && document == *self.held
        {
            // The file that was loaded at start.
            self.stamp = stamp;
        }
        found != self.stamp && self.failed_with != Some(found)
    }

    /// Merges `ours` with the content of the file. `must_write`: the file may not contain the last save.
    pub(crate) fn merge_blocking(
        &mut self,
        ours: &Arc<Metadata>,
        must_write: bool,
        now: Instant,
    ) -> Result<PreparedMerge, StoreError> {
        let mut saved = Saved { metadata: Arc::clone(ours), ..Saved::default() };
        let found = self.read_blocking(now)?;
        let (expected, is_needed, found) = match found {
            DiskContent::Same => (self.stamp, !is_equivalent(&self.held, ours), None),
            DiskContent::Nothing(stamp) => (stamp, true, None),
            // Our content, possibly rewritten. That does not show which changes the other program has seen.
            DiskContent::Theirs(theirs, stamp) if theirs == *self.held => {
                let is_needed = !is_equivalent(&theirs, ours);
                (stamp, is_needed, Some((Arc::clone(&self.held), stamp)))
            }
            DiskContent::Theirs(theirs, stamp) => {
                let merged = merge(&self.held, ours, &theirs, &mut self.recent, now);
                self.take(&mut saved, merged);
                let rest = saved.gone.without(&saved.metadata);
                (stamp, !is_equivalent(&theirs, &rest), Some((Arc::new(theirs), stamp)))
            }
        };
        let to_write = match saved.gone.is_empty() {
            true => Arc::clone(&saved.metadata),
            false => Arc::new(saved.gone.without(&saved.metadata)),
        };
        let is_needed = must_write || is_needed;
        Ok(PreparedMerge { saved, to_write, is_needed, expected, found })
    }

    fn take(&mut self, saved: &mut Saved, merged: Merged) {
        let Merged { metadata, gone, conflicts } = merged;
        if metadata != *saved.metadata {
            saved.metadata = Arc::new(metadata);
        }
        saved.gone.sessions.extend(gone.sessions);
        saved.gone.workspaces.extend(gone.workspaces);
        for conflict in conflicts {
            let has_room = self.known_conflicts.len() < MAX_KNOWN_CONFLICTS;
            if has_room && self.known_conflicts.insert(conflict.clone()) {
                saved.conflicts.push(conflict);
            }
        }
    }

    fn read_blocking(&mut self, now: Instant) -> Result<DiskContent, StoreError> {
        self.was_read = true;
        let stamp = FileStamp::at_blocking(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return Ok(DiskContent::Same);
        }
        if stamp.is_some() && stamp == self.refused {
            return Ok(DiskContent::Nothing(stamp));
        }
        match read::<Metadata>(&self.path)? {
            FileContent::Good(Good { document, stamp, .. }) => {
                Ok(DiskContent::Theirs(document, stamp))
            }
            FileContent::Missing => {
                self.recent.doubt(now);
                self.stamp = None;
                Ok(DiskContent::Nothing(None))
            }
            FileContent::Bad(reason) => {
                let moved = quarantine_blocking(&self.path, &self.path);
                let path = moved.map_err(|error| StoreError::write(&self.path, error))?;
                self.set_aside = Some(SetAside { path, reason });
                self.recent.doubt(now);
                self.stamp = None;
                Ok(DiskContent::Nothing(None))
            }
        }
    }

    /// Records a failed save. `staged` is the stamp of the file that was not accepted.
    pub(crate) fn failed_blocking(&mut self, staged: Option<FileStamp>) {
        self.refused = staged.or(self.refused);
        self.failed_with = Some(FileStamp::at_blocking(&self.path));
    }

    /// Records a successful save. If `is_theirs_unread`, merges the external file that the exchange moved
    /// out. `written` is the stamp of our new file, if one was written.
    pub(crate) fn done_blocking(
        &mut self,
        ready: PreparedMerge,
        written: Option<FileStamp>,
        is_theirs_unread: bool,
        now: Instant,
    ) -> Saved {
        let PreparedMerge { mut saved, to_write, is_needed, found, .. } = ready;
        (self.refused, self.failed_with) = (None, None);
        if let Some((held, stamp)) = found {
            (self.held, self.stamp) = (held, stamp);
        }
        if is_needed {
            self.recent.note(&self.held, &to_write, now);
            (self.held, self.stamp) = (to_write, written);
        }
        if is_theirs_unread {
            self.has_leftover = true;
            if let Ok(FileContent::Good(Good { document: theirs, .. })) =
                read::<Metadata>(&theirs_name(&self.path))
            {
                let ours = Arc::clone(&saved.metadata);
                let merged = merge(&self.held, &ours, &theirs, &mut self.recent, now);
                let known = ids(&ours);
                self.unmerged = ids(&merged.metadata).difference(&known).cloned().collect();
                self.take(&mut saved, merged);
            }
            saved.is_behind = true;
        } else if self.has_leftover && is_needed {
            let kept = ids(&self.held);
            self.unmerged.retain(|id| !kept.contains(id));
            if self.unmerged.is_empty() {
                self.has_leftover = remove_if_there(&theirs_name(&self.path)).is_err();
            }
        }
        saved.set_aside = self.set_aside.take();
        saved
    }

    /// Runs the last check. Removes the recovery copy, unless the other program may still write an older
    /// version of the file.
    pub(crate) fn finish_blocking(&mut self) {
        let is_unread = theirs_name(&self.path).exists() || self.has_changed_blocking();
        if !is_unread && !self.recent.is_fresh(Instant::now()) {
            remove_if_there(&ours_name(&self.path)).ok();
        }
    }
}

fn ids(metadata: &Metadata) -> HashSet<SessionId> {
    metadata.sessions.iter().map(|session| session.id.clone()).collect()
}
