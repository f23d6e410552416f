//! Sessions and workspaces as entries with a key, so that one function imports both. Used by [`super::import`] and
//! [`super::recent`].

use quackd_protocol::SessionId;
use quackd_protocol::metadata::{Metadata, Session, Shared, Workspace};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::time::Duration;

/// Time during which a new entry may be missing in a file of another program. That stops polling for 5 s after it was
/// notified of a session.
pub(super) const ENTRY_AGE: Duration = Duration::from_secs(10);

/// A session or a workspace.
pub(super) trait Entry: Clone + PartialEq {
    /// Time during which an entry that quackd deleted is not added again.
    const STAYS_DELETED: Duration;

    /// The id of a session, or the path of a workspace.
    fn key(&self) -> &str;

    fn id(&self) -> &str;

    fn all(metadata: &Metadata) -> &[Shared<Self>];

    fn all_mut(metadata: &mut Metadata) -> &mut Vec<Shared<Self>>;

    /// Takes what the other program changed since `before`. `past` has the entry as it was before recent changes of
    /// quackd, and `is_deleted` recognizes sessions that quackd deleted.
    fn take(
        &mut self,
        before: Option<&Self>,
        theirs: &Self,
        past: &[&Self],
        is_deleted: &dyn Fn(&SessionId) -> bool,
    );
}

impl Entry for Session {
    const STAYS_DELETED: Duration = Duration::MAX;

    fn key(&self) -> &str {
        self.id()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn all(metadata: &Metadata) -> &[Shared<Self>] {
        &metadata.sessions
    }

    fn all_mut(metadata: &mut Metadata) -> &mut Vec<Shared<Self>> {
        &mut metadata.sessions
    }

    fn take(
        &mut self,
        before: Option<&Self>,
        theirs: &Self,
        past: &[&Self],
        _is_deleted: &dyn Fn(&SessionId) -> bool,
    ) {
        let is_old = past.iter().any(|earlier| earlier.name == theirs.name);
        take(&mut self.name, before.map(|earlier| &earlier.name), &theirs.name, is_old);

        let file = &theirs.pi_session_file;
        let ours_before = before.map_or("", |earlier| &earlier.pi_session_file);
        // Only quackd starts this Pi, so a file that quackd changed since then stays.
        let is_old = self.pi_session_file != ours_before
            || past.iter().any(|earlier| earlier.pi_session_file == *file);
        take(
            &mut self.pi_session_file,
            before.map(|earlier| &earlier.pi_session_file),
            file,
            is_old,
        );

        if self.created_at.is_empty() {
            self.created_at.clone_from(&theirs.created_at);
        }
        // Both programs write at least whole seconds.
        if self.last_active_at.get(..19) < theirs.last_active_at.get(..19) {
            self.last_active_at.clone_from(&theirs.last_active_at);
        }
        // quackd never changes it.
        self.is_voice_active = theirs.is_voice_active;
        take_other(&mut self.other, before.map(|earlier| &earlier.other), &theirs.other);
    }
}

impl Entry for Workspace {
    const STAYS_DELETED: Duration = ENTRY_AGE;

    fn key(&self) -> &str {
        &self.path
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn all(metadata: &Metadata) -> &[Shared<Self>] {
        &metadata.workspaces
    }

    fn all_mut(metadata: &mut Metadata) -> &mut Vec<Shared<Self>> {
        &mut metadata.workspaces
    }

    fn take(
        &mut self,
        before: Option<&Self>,
        theirs: &Self,
        past: &[&Self],
        is_deleted: &dyn Fn(&SessionId) -> bool,
    ) {
        let last = &theirs.last_active_session_id;
        let is_old = last.as_ref().is_some_and(is_deleted)
            || past.iter().any(|earlier| earlier.last_active_session_id == *last);
        let before_last = before.map(|earlier| &earlier.last_active_session_id);
        take(&mut self.last_active_session_id, before_last, last, is_old);

        if self.created_at.is_empty() {
            self.created_at.clone_from(&theirs.created_at);
        }
        take_other(&mut self.other, before.map(|earlier| &earlier.other), &theirs.other);
    }
}

/// Takes the other program's value if that program changed it. An empty value is no change; nor is an old one.
pub(super) fn take<T: PartialEq + Clone + Default>(
    ours: &mut T,
    before: Option<&T>,
    theirs: &T,
    is_old: bool,
) {
    if !is_old && *theirs != T::default() && before != Some(theirs) {
        ours.clone_from(theirs);
    }
}

/// Takes changed keys that quackd does not know.
pub(super) fn take_other(
    ours: &mut Map<String, Value>,
    before: Option<&Map<String, Value>>,
    theirs: &Map<String, Value>,
) {
    for (key, value) in theirs {
        let is_same = before.and_then(|earlier| earlier.get(key)) == Some(value);
        if !is_same && !value.is_null() && value != "" {
            ours.insert(key.clone(), value.clone());
        }
    }
}

/// Entries by key. The first of several entries with the same key counts.
pub(super) fn index<E: Entry>(metadata: &Metadata) -> HashMap<&str, &Shared<E>> {
    E::all(metadata).iter().rev().map(|entry| (entry.key(), entry)).collect()
}
