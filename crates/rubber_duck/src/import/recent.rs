//! Recent changes by quackd to `metadata.json`. They tell an old copy of another program from a change.
//!
//! A program that reads the file, changes its copy and writes it back does not see changes in between. Taken
//! literally, its write would undo them. Once its file contains a change by quackd, its later writes count.

use super::entry::{ENTRY_AGE, Entry, index};
use quackd_protocol::SessionId;
use quackd_protocol::metadata::{Metadata, Session, Workspace};
use quackd_store::Earlier;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Time during which an old value counts as an old copy. The other program polls the file every 2 s. Shorter than
/// [`ENTRY_AGE`], because a deletion is final.
pub(super) const VALUE_AGE: Duration = Duration::from_secs(3);

/// Maximum number of remembered changes, and of deleted entries; the oldest is dropped first.
const MAX_CHANGES: usize = 4096;
const MAX_DELETED: usize = 1024;

/// Maximum number of values, and of deletions, that a save writes for the next daemon.
const MAX_EARLIER: usize = 256;

/// Recent changes and deletions by quackd.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Oldest first.
    changes: VecDeque<Change>,
    /// Times and keys of deleted entries, oldest first.
    deleted: VecDeque<(Instant, String)>,
    /// Until then, every entry may be missing: it is unknown which file the other program has read.
    doubt_until: Option<Instant>,
}

/// One replacement of the file by quackd.
#[derive(Debug)]
struct Change {
    at: Instant,
    /// Changed entries as they were before, and the active session before if it changed.
    was: Metadata,
    /// Keys of new entries.
    new: HashSet<String>,
}

impl Change {
    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.was == Metadata::default()
    }
}

/// Returns the entries and the active session of `before` that have other values in `after`.
fn replaced(before: &Metadata, after: &Metadata) -> Metadata {
    let mut was = Metadata::default();
    replaced_entries::<Session>(before, after, &mut was);
    replaced_entries::<Workspace>(before, after, &mut was);
    if before.active_voice_session_id != after.active_voice_session_id {
        was.active_voice_session_id.clone_from(&before.active_voice_session_id);
    }
    was
}

/// Returns the keys of the entries that only `before` has.
fn gone<E: Entry>(before: &Metadata, after: &Metadata) -> Vec<String> {
    let is = index::<E>(after);
    let gone = E::all(before).iter().filter(|entry| !is.contains_key(entry.key()));
    gone.map(|entry| entry.key().to_owned()).collect()
}

fn replaced_entries<E: Entry>(before: &Metadata, after: &Metadata, was: &mut Metadata) {
    let is = index::<E>(after);
    let changed = E::all(before).iter().filter(|it| is.get(it.key()).is_some_and(|now| now != it));
    E::all_mut(was).extend(changed.cloned());
}

impl Recent {
    /// Records that quackd replaced `before` with `after` in the file.
    pub(crate) fn note(&mut self, before: &Metadata, after: &Metadata, now: Instant) {
        let mut change = Change { at: now, was: replaced(before, after), new: HashSet::new() };
        self.compare::<Session>(before, after, &mut change);
        self.compare::<Workspace>(before, after, &mut change);
        if !change.is_empty() {
            self.changes.push_back(change);
        }

        let is_old = |known: &Change| ENTRY_AGE <= now.saturating_duration_since(known.at);
        while MAX_CHANGES < self.changes.len() || self.changes.front().is_some_and(is_old) {
            self.changes.pop_front();
        }
    }

    fn compare<E: Entry>(&mut self, before: &Metadata, after: &Metadata, change: &mut Change) {
        let (was, is) = (index::<E>(before), index::<E>(after));
        let new = is.keys().copied().filter(|key| !was.contains_key(key));
        // An entry that is already known as new keeps its earlier time.
        let new = new.filter(|key| !self.changes.iter().any(|earlier| earlier.new.contains(*key)));
        change.new.extend(new.map(str::to_owned));

        let gone = gone::<E>(before, after).into_iter();
        self.deleted.extend(gone.map(|key| (change.at, key)));

        let surplus = self.deleted.len().saturating_sub(MAX_DELETED);
        self.deleted.drain(..surplus);
    }

    /// Returns the values of the last [`VALUE_AGE`] and the deletions of the last [`ENTRY_AGE`], for the file of a save
    /// that replaces `before` with `after`. The next daemon [restores](Recent::restore) them if this one is killed.
    pub(crate) fn earlier(&self, before: &Metadata, after: &Metadata, now: Instant) -> Earlier {
        let known = self.within(VALUE_AGE, now).map(|change| change.was.clone());
        let mut values: Vec<_> = known.chain([replaced(before, after)]).collect();
        values.retain(|was| *was != Metadata::default());

        // The newest are last.
        let mut left = MAX_EARLIER;
        let fits = |was: &&Metadata| {
            let entries = 1 + was.sessions.len() + was.workspaces.len();
            left.checked_sub(entries).inspect(|rest| left = *rest).is_some()
        };
        let n = values.iter().rev().take_while(fits).count();
        let values = values.split_off(values.len() - n);

        let is_recent =
            |(at, _): &&(Instant, String)| now.saturating_duration_since(*at) < ENTRY_AGE;
        let known = self.deleted.iter().filter(is_recent).map(|(_, key)| key.clone());
        let mut deleted: Vec<_> = known.collect();
        deleted.extend(gone::<Session>(before, after));
        deleted.extend(gone::<Workspace>(before, after));
        let (sessions, workspaces) = (index::<Session>(after), index::<Workspace>(after));
        deleted.retain(|key| !sessions.contains_key(&**key) && !workspaces.contains_key(&**key));
        let deleted = deleted.split_off(deleted.len().saturating_sub(MAX_EARLIER));
        Earlier { values, deleted }
    }

    /// Records what the last daemon replaced and deleted just before it was killed.
    pub(crate) fn restore(&mut self, earlier: &Earlier, now: Instant) {
        let change = |was: &Metadata| Change { at: now, was: was.clone(), new: HashSet::new() };
        self.changes.extend(earlier.values.iter().take(MAX_EARLIER).map(change));
        let deleted = earlier.deleted.iter().take(MAX_EARLIER);
        self.deleted.extend(deleted.map(|key| (now, key.clone())));
    }

    /// Records that it is unknown which file the other program has read. For the next
    /// [`ENTRY_AGE`], every entry may be missing.
    pub(crate) fn doubt(&mut self, now: Instant) {
        self.doubt_until = now.checked_add(ENTRY_AGE);
    }

    /// Records that the other program has written `theirs`. Its next file is based on that or on a later
    /// view, so only entries that it still lacks may be missing then.
    pub(crate) fn seen(&mut self, theirs: &Metadata) {
        let (sessions, workspaces) = (index::<Session>(theirs), index::<Workspace>(theirs));
        for change in &mut self.changes {
            // The other program has seen every value that quackd wrote, so a value in its next
            // file is not an old copy.
            change.was = Metadata::default();
            let has = |key: &str| sessions.contains_key(key) || workspaces.contains_key(key);
            change.new.retain(|key| !has(key));
        }
        self.changes.retain(|change| !change.is_empty());
    }

    /// Returns true if the other program may not know the entry yet.
    pub(super) fn is_new(&self, key: &str, now: Instant) -> bool {
        self.is_in_doubt(now) || self.within(ENTRY_AGE, now).any(|change| change.new.contains(key))
    }

    /// Returns true if quackd deleted the entry.
    pub(super) fn has_deleted<E: Entry>(&self, key: &str, now: Instant) -> bool {
        let is_it = |(at, deleted): &(Instant, String)| {
            deleted == key && now.saturating_duration_since(*at) < E::STAYS_DELETED
        };
        self.deleted.iter().any(is_it)
    }

    /// Returns the entry as it was before each recent change.
    pub(super) fn past<E: Entry>(&self, key: &str, now: Instant) -> Vec<&E> {
        let entries = self.within(VALUE_AGE, now).flat_map(|change| E::all(&change.was));
        entries.filter(|entry| entry.key() == key).map(|entry| &**entry).collect()
    }

    /// Returns true if this session was active before a recent change.
    pub(super) fn was_active(&self, session: &Option<SessionId>, now: Instant) -> bool {
        self.within(VALUE_AGE, now).any(|change| change.was.active_voice_session_id == *session)
    }

    /// Returns true if the other program may not know every change yet.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < ENTRY_AGE;
        self.is_in_doubt(now)
            || self.within(ENTRY_AGE, now).next().is_some()
            || self.deleted.back().is_some_and(|(at, _)| is_recent(*at))
    }

    fn within(&self, age: Duration, now: Instant) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| now.saturating_duration_since(change.at) < age)
    }

    fn is_in_doubt(&self, now: Instant) -> bool {
        self.doubt_until.is_some_and(|until| now < until)
    }
}
