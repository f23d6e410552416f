//! What we changed in the shared file a moment ago: another program may write what it read before that.
//!
//! A program that reads the file, changes its copy and puts it back does not know of what came in between.
//! Taken at its word, it would have undone our change. So what it writes is held against what stood there a
//! moment ago: an old value is no change of its, and what it leaves out is not deleted by it. Once it has
//! written a file that has our change, it knows of it, and what it writes next counts.
//!
//! Called by [`super::merge`] and by whoever writes the file.

use super::entries::{Id, Index, differing, digest, value};
use quackd_protocol::metadata::Metadata;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How long an old value may come back. The other program looks at the file every two seconds.
pub(super) const VALUE_AGE: Duration = Duration::from_secs(3);

/// How long an entry that we have made may be missing: the other program stops looking for five seconds
/// after it was told of a session. Longer than for values, because a deletion is final.
pub(super) const ENTRY_AGE: Duration = Duration::from_secs(10);

/// Changes that are remembered; the oldest goes first. A save has two or three of them.
const MAX_CHANGES: usize = 4096;

/// Deleted sessions that stay deleted, whoever still has them; the oldest goes first.
const MAX_DELETED: usize = 1024;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// In the order in which they were made.
    changes: VecDeque<Change>,
    /// Sessions, in the order in which they were deleted.
    deleted: VecDeque<String>,
    /// Until then nothing that is missing counts as deleted: what the other program has read is unknown.
    doubt_until: Option<Instant>,
}

#[derive(Debug)]
struct Change {
    at: Instant,
    key: Key,
    /// Digests of the field before and after.
    old: u64,
    new: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    id: Id,
    /// A field, or whether the entry is there.
    field: Option<String>,
}

impl Recent {
    /// Notes that the file held `before` and holds `after` now, by our doing.
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
            let key = Key { id, field: None };
            return self.push(Change { at: now, key, old: had.into(), new: has.into() });
        }
        let (old, new) = (was.fields(&id), is.fields(&id));
        for name in differing(&old, &new) {
            let key = Key { id: id.clone(), field: Some(name.to_owned()) };
            let (old, new) = (digest(value(&old, name)), digest(value(&new, name)));
            self.push(Change { at: now, key, old, new });
        }
    }

    fn push(&mut self, change: Change) {
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

    /// From now on, for a moment, nothing that is missing counts as deleted.
    pub(crate) fn doubt(&mut self, now: Instant) {
        self.doubt_until = now.checked_add(ENTRY_AGE);
    }

    /// Forgets what is too old, and what the other program has evidently seen, because its file has it.
    pub(super) fn forget_seen(&mut self, theirs: &Index<'_>, now: Instant) {
        let mut seen: HashSet<Key> = HashSet::new();
        let mut kept = VecDeque::with_capacity(self.changes.len());
        // The newest first: who has seen a change of a field has seen the ones before.
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

    /// Whether the entry was made by us so lately that who leaves it out may not know it.
    pub(super) fn may_be_unknown(&self, id: &Id, now: Instant) -> bool {
        self.is_in_doubt(now) || self.entry_changes(id).any(|change| change.new == 1)
    }

    /// Whether the entry was deleted by us, so that who still has it does not make it anew.
    pub(super) fn was_deleted(&self, id: &Id) -> bool {
        let is_known = |id: &str| self.deleted.iter().any(|known| known == id);
        matches!(id, Id::Session(id) if is_known(id))
            || self.entry_changes(id).last().is_some_and(|change| change.new == 0)
    }

    fn entry_changes(&self, id: &Id) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |it| it.key.field.is_none() && it.key.id == *id)
    }

    /// Whether the field had this value a moment ago, before we changed it.
    pub(super) fn had(&self, id: &Id, field: &str, value: &serde_json::Value) -> bool {
        let is_about =
            |change: &&Change| change.key.id == *id && change.key.field.as_deref() == Some(field);
        let mut changes = self.changes.iter().filter(is_about).peekable();
        if changes.peek().is_none() {
            return false;
        }
        let value = digest(value);
        changes.any(|change| change.old == value)
    }

    /// Whether we have made or deleted entries that the other program may not know of.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let is_fresh = |change: &Change| change.key.field.is_none() && !change.is_old(now);
        self.is_in_doubt(now) || self.changes.iter().any(is_fresh)
    }

    fn is_in_doubt(&self, now: Instant) -> bool {
        self.doubt_until.is_some_and(|until| now < until)
    }
}

impl Change {
    fn is_old(&self, now: Instant) -> bool {
        let age = if self.key.field.is_none() { ENTRY_AGE } else { VALUE_AGE };
        age <= now.saturating_duration_since(self.at)
    }
}

impl Key {
    /// What a file says there.
    fn digest_in(&self, file: &Index<'_>) -> u64 {
        match &self.field {
            None => file.has(&self.id).into(),
            Some(field) => digest(value(&file.fields(&self.id), field)),
        }
    }
}
