//! Recent changes by quackd to the shared file. They detect stale writes of another program.
//!
//! A program that reads the file, changes its copy and writes it back does not see changes in between. Taken
//! literally, its write would undo our change. So the merge compares it with the recent changes: an old value
//! is not a change, and a missing new entry is not a deletion. Once the other program has written a file with
//! our change, its later writes count.
//!
//! Used by [`super::merge`] and by [`crate::Files`].

use super::entries::{Id, Index, differing, digest, value};
use quackd_protocol::metadata::Metadata;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Time during which an old value counts as stale. The other program polls the file every 2 s.
pub(super) const VALUE_AGE: Duration = Duration::from_secs(3);

/// Time during which a new entry may be missing. The other program stops polling for 5 s after it was
/// notified of a session. Longer than [`VALUE_AGE`], because a deletion is final.
pub(super) const ENTRY_AGE: Duration = Duration::from_secs(10);

/// Maximum number of remembered changes; the oldest is dropped first. A save has two or three.
const MAX_CHANGES: usize = 4096;

/// Maximum number of remembered deleted sessions; the oldest is dropped first.
const MAX_DELETED: usize = 1024;

/// Recent changes and deletions by quackd.
#[derive(Debug, Default)]
pub(crate) struct RecentChanges {
    /// Oldest first.
    changes: VecDeque<FieldChange>,
    /// Session ids, oldest deletion first.
    deleted: VecDeque<String>,
    /// Until then, a missing entry does not count as deleted: it is unknown which file the other program
    /// read.
    doubt_until: Option<Instant>,
}

#[derive(Debug)]
struct FieldChange {
    at: Instant,
    key: FieldKey,
    /// Digests of the field before and after the change.
    old: u64,
    new: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FieldKey {
    id: Id,
    /// Name of the field; `None` for the existence of the entry.
    field: Option<String>,
}

impl RecentChanges {
    /// Records that quackd replaced `before` with `after` in the file.
    pub(crate) fn note(&mut self, before: &Metadata, after: &Metadata, now: Instant) {
        let (was, is) = (Index::of(before), Index::of(after));
        for session in &after.sessions {
            if was.session(session.id.as_str()) != Some(session) {
                self.note_entry(&was, &is, Id::Session(session.id.0.clone()), now);
            }
        }
        for workspace in &after.workspaces {
            if was.workspace(&workspace.path) != Some(workspace) {
                self.note_entry(&was, &is, Id::Workspace(workspace.path.clone()), now);
            }
        }
        self.note_entry(&was, &is, Id::Top, now);
        for session in &before.sessions {
            if is.session(session.id.as_str()).is_none() {
                self.note_entry(&was, &is, Id::Session(session.id.0.clone()), now);
                self.note_deleted(session.id.as_str());
            }
        }
        for workspace in &before.workspaces {
            if is.workspace(&workspace.path).is_none() {
                self.note_entry(&was, &is, Id::Workspace(workspace.path.clone()), now);
            }
        }
    }

    fn note_entry(&mut self, was: &Index<'_>, is: &Index<'_>, id: Id, now: Instant) {
        let (had, has) = (was.has(&id), is.has(&id));
        if had != has {
            let key = FieldKey { id, field: None };
            return self.push(FieldChange { at: now, key, old: had.into(), new: has.into() });
        }
        let (old, new) = (was.fields(&id), is.fields(&id));
        for name in differing(&old, &new) {
            let key = FieldKey { id: id.clone(), field: Some(name.to_owned()) };
            let (old, new) = (digest(value(&old, name)), digest(value(&new, name)));
            self.push(FieldChange { at: now, key, old, new });
        }
    }

    fn push(&mut self, change: FieldChange) {
        if MAX_CHANGES <= self.changes.len() {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    fn note_deleted(&mut self, session: &str) {
        self.deleted.retain(|known| known != session);
        if MAX_DELETED <= self.deleted.len() {
            self.deleted.pop_front();
        }
        self.deleted.push_back(session.to_owned());
    }

    /// For the next [`ENTRY_AGE`], no missing entry counts as deleted.
    pub(crate) fn doubt(&mut self, now: Instant) {
        self.doubt_until = now.checked_add(ENTRY_AGE);
    }

    /// Drops changes that are too old, and changes that the other program has seen: its file contains them.
    pub(super) fn forget_seen(&mut self, theirs: &Index<'_>, now: Instant) {
        let mut seen: HashSet<FieldKey> = HashSet::new();
        let mut kept = VecDeque::with_capacity(self.changes.len());
        // Newest first: a program that has seen a change of a field has seen all earlier ones.
        while let Some(change) = self.changes.pop_back() {
            if change.is_old(now) || seen.contains(&change.key) {
                continue;
            }
            if change.key.digest_in(theirs) == change.new {
                seen.insert(change.key);
            } else {
                kept.push_front(change);
            }
        }
        self.changes = kept;
    }

    /// Returns true if quackd created the entry so recently that the other program may not know it.
    pub(super) fn may_be_unknown(&self, id: &Id, now: Instant) -> bool {
        self.is_in_doubt(now) || self.entry_changes(id).any(|change| change.new == 1)
    }

    /// Returns true if quackd deleted the entry. An external file that still contains it does not create it
    /// again.
    pub(super) fn was_deleted(&self, id: &Id) -> bool {
        let is_known = |id: &str| self.deleted.iter().any(|known| known == id);
        matches!(id, Id::Session(id) if is_known(id))
            || self.entry_changes(id).last().is_some_and(|change| change.new == 0)
    }

    fn entry_changes(&self, id: &Id) -> impl Iterator<Item = &FieldChange> {
        self.changes.iter().filter(move |it| it.key.field.is_none() && it.key.id == *id)
    }

    /// Returns true if the field recently had this value, before quackd changed it.
    pub(super) fn had(&self, id: &Id, field: &str, value: &serde_json::Value) -> bool {
        let is_about = |change: &&FieldChange| {
            change.key.id == *id && change.key.field.as_deref() == Some(field)
        };
        let mut changes = self.changes.iter().filter(is_about).peekable();
        if changes.peek().is_none() {
            return false;
        }
        let value = digest(value);
        changes.any(|change| change.old == value)
    }

    /// Returns true if quackd created or deleted entries that the other program may not know yet.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let is_fresh = |change: &FieldChange| change.key.field.is_none() && !change.is_old(now);
        self.is_in_doubt(now) || self.changes.iter().any(is_fresh)
    }

    fn is_in_doubt(&self, now: Instant) -> bool {
        self.doubt_until.is_some_and(|until| now < until)
    }
}

impl FieldChange {
    fn is_old(&self, now: Instant) -> bool {
        let age = if self.key.field.is_none() { ENTRY_AGE } else { VALUE_AGE };
        age <= now.saturating_duration_since(self.at)
    }
}

impl FieldKey {
    /// Returns the digest of the field's value in a file.
    fn digest_in(&self, file: &Index<'_>) -> u64 {
        match &self.field {
            None => file.has(&self.id).into(),
            Some(field) => digest(value(&file.fields(&self.id), field)),
        }
    }
}
