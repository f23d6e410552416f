//! `metadata.json` as a file that another program writes too: what it held when we looked last, and taking
//! over what it holds now. Used by [`crate::Files`], on the writer's thread.

use crate::StoreError;
use crate::load::{Content, Good, read};
use crate::merge::{Conflict, Gone, Merged, Recent, merge, says_the_same};
use crate::quarantine::quarantine_blocking;
use crate::replace::remove_if_there;
use crate::stamp::Stamp;
use crate::swap::{ours_name, theirs_name};
use quackd_protocol::SessionId;
use quackd_protocol::metadata::Metadata;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Conflicts that are known, so that each is told once; from then on none is told.
const MAX_KNOWN_CONFLICTS: usize = 1000;

/// What a save came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved {
    /// What is to be in memory now, but for what was changed there since: what was to be saved, and what the
    /// other program had changed ([`crate::rebase`]).
    pub metadata: Arc<Metadata>,
    /// What the other program has deleted. It is still in `metadata`; it is for the caller to delete it, or
    /// to save again, which keeps it.
    pub gone: Gone,
    /// What both had changed, each once.
    pub conflicts: Vec<Conflict>,
    /// What was found instead of a file that can be used.
    pub set_aside: Option<SetAside>,
    /// Whether the file lacks something of `metadata` that is not gone: another save is wanted soon.
    pub is_behind: bool,
}

/// A file that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Where it is now.
    pub path: PathBuf,
    /// What was wrong with it.
    pub reason: String,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Shared {
    path: PathBuf,
    /// What the file held when we looked or wrote last.
    held: Arc<Metadata>,
    /// Which file that was; `None` if there was none, or we have not looked yet.
    stamp: Option<Stamp>,
    /// Whether we have looked at all.
    has_looked: bool,
    /// A file of ours that was refused, and may stand there all the same.
    refused: Option<Stamp>,
    /// The file, or its absence, with which the last save failed.
    failed_with: Option<Option<Stamp>>,
    recent: Recent,
    known_conflicts: HashSet<Conflict>,
    set_aside: Option<SetAside>,
    /// Whether there may be a file that we took out unread.
    has_leftover: bool,
    /// Sessions that are in that file alone: a snapshot that was made before anybody knew of them lacks them.
    awaited: HashSet<SessionId>,
}

/// What was found at the path.
enum Found {
    /// What we know.
    Same,
    /// Nothing that can be used, or a file of ours that was refused.
    Nothing(Option<Stamp>),
    /// Another program's.
    Theirs(Metadata, Option<Stamp>),
}

/// A merge that is ready to be written.
pub(crate) struct Ready {
    pub(crate) saved: Saved,
    /// What the file shall hold: what is gone is not written again.
    pub(crate) to_write: Arc<Metadata>,
    /// Whether the file has to be written.
    pub(crate) is_needed: bool,
    /// Which file is expected at the path when ours replaces it.
    pub(crate) expected: Option<Stamp>,
    /// What the file holds and which one it is, to be noted if nothing fails.
    found: Option<(Arc<Metadata>, Option<Stamp>)>,
}

impl Shared {
    pub(crate) fn new(path: PathBuf, loaded: Arc<Metadata>) -> Self {
        let mut recent = Recent::default();
        // After a kill, or without a file, nobody knows what the other program has read.
        if ours_name(&path).exists() || !path.exists() {
            recent.doubt(Instant::now());
        }
        Self {
            path,
            held: loaded,
            stamp: None,
            has_looked: false,
            refused: None,
            failed_with: None,
            recent,
            known_conflicts: HashSet::new(),
            set_aside: None,
            has_leftover: true,
            awaited: HashSet::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether another file is there than the one that we know, and a save would do something about it.
    pub(crate) fn has_changed_blocking(&mut self) -> bool {
        let found = Stamp::at_blocking(&self.path);
        if !std::mem::replace(&mut self.has_looked, true)
            && let Ok(Content::Good(Good { document, stamp, .. })) = read::<Metadata>(&self.path)
            && document == *self.held
        {
            // The file that was loaded at the start.
            self.stamp = stamp;
        }
        found != self.stamp && self.failed_with != Some(found)
    }

    /// Merges `ours` with what the file holds. `must_write`: it is not known to hold what we saved last.
    pub(crate) fn merge_blocking(
        &mut self,
        ours: &Arc<Metadata>,
        must_write: bool,
        now: Instant,
    ) -> Result<Ready, StoreError> {
        let mut saved = Saved { metadata: Arc::clone(ours), ..Saved::default() };
        let found = self.look_blocking(now)?;
        let (expected, is_needed, found) = match found {
            Found::Same => (self.stamp, !says_the_same(&self.held, ours), None),
            Found::Nothing(stamp) => (stamp, true, None),
            // Ours, with another time perhaps: it says nothing about what the other program has seen.
            Found::Theirs(theirs, stamp) if theirs == *self.held => {
                let is_needed = !says_the_same(&theirs, ours);
                (stamp, is_needed, Some((Arc::clone(&self.held), stamp)))
            }
            Found::Theirs(theirs, stamp) => {
                let merged = merge(&self.held, ours, &theirs, &mut self.recent, now);
                self.take(&mut saved, merged);
                let rest = saved.gone.without(&saved.metadata);
                (stamp, !says_the_same(&theirs, &rest), Some((Arc::new(theirs), stamp)))
            }
        };
        let to_write = match saved.gone.is_empty() {
            true => Arc::clone(&saved.metadata),
            false => Arc::new(saved.gone.without(&saved.metadata)),
        };
        let is_needed = must_write || is_needed;
        Ok(Ready { saved, to_write, is_needed, expected, found })
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

    fn look_blocking(&mut self, now: Instant) -> Result<Found, StoreError> {
        self.has_looked = true;
        let stamp = Stamp::at_blocking(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return Ok(Found::Same);
        }
        if stamp.is_some() && stamp == self.refused {
            return Ok(Found::Nothing(stamp));
        }
        match read::<Metadata>(&self.path)? {
            Content::Good(Good { document, stamp, .. }) => Ok(Found::Theirs(document, stamp)),
            Content::Missing => {
                self.recent.doubt(now);
                self.stamp = None;
                Ok(Found::Nothing(None))
            }
            Content::Bad(reason) => {
                let moved = quarantine_blocking(&self.path, &self.path);
                let path = moved.map_err(|error| StoreError::write(&self.path, error))?;
                self.set_aside = Some(SetAside { path, reason });
                self.recent.doubt(now);
                self.stamp = None;
                Ok(Found::Nothing(None))
            }
        }
    }

    /// Notes that the save has failed; `staged` is the file that was not taken.
    pub(crate) fn failed_blocking(&mut self, staged: Option<Stamp>) {
        self.refused = staged.or(self.refused);
        self.failed_with = Some(Stamp::at_blocking(&self.path));
    }

    /// Notes that all is on disk, and takes over what our file has taken out of the way unread, if
    /// `is_theirs_unread`. `written` is our new file, if one was needed.
    pub(crate) fn done_blocking(
        &mut self,
        ready: Ready,
        written: Option<Stamp>,
        is_theirs_unread: bool,
        now: Instant,
    ) -> Saved {
        let Ready { mut saved, to_write, is_needed, found, .. } = ready;
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
            if let Ok(Content::Good(Good { document: theirs, .. })) =
                read::<Metadata>(&theirs_name(&self.path))
            {
                let ours = Arc::clone(&saved.metadata);
                let merged = merge(&self.held, &ours, &theirs, &mut self.recent, now);
                let known = ids(&ours);
                self.awaited = ids(&merged.metadata).difference(&known).cloned().collect();
                self.take(&mut saved, merged);
            }
            saved.is_behind = true;
        } else if self.has_leftover && is_needed {
            let kept = ids(&self.held);
            self.awaited.retain(|id| !kept.contains(id));
            if self.awaited.is_empty() {
                self.has_leftover = remove_if_there(&theirs_name(&self.path)).is_err();
            }
        }
        saved.set_aside = self.set_aside.take();
        saved
    }

    /// The last look: the copy of our last file goes, unless the other program may still write what
    /// it read before that.
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
