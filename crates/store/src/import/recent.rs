//! Recent changes by quackd to `metadata.json`. They tell an old copy of another program from a change.
//!
//! A program that reads the file, changes its copy and writes it back does not see changes in between. Taken
//! literally, its write would undo them. Once it has written a file with a change of ours, its later writes count.

use super::Index;
use quackd_protocol::SessionId;
use quackd_protocol::metadata::{Metadata, Session, Workspace};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time during which an old value counts as an old copy. The other program polls the file every 2 s.
pub(super) const VALUE_AGE: Duration = Duration::from_secs(3);

/// Time during which a new entry may be missing. The other program stops polling for 5 s after it was notified of
/// a session. Longer than [`VALUE_AGE`], because a deletion is final.
pub(super) const ENTRY_AGE: Duration = Duration::from_secs(10);

/// Maximum number of remembered changes, and of deleted sessions; the oldest is dropped first.
const MAX_CHANGES: usize = 4096;
const MAX_DELETED: usize = 1024;

/// Recent changes and deletions by quackd.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Oldest first.
    changes: VecDeque<Change>,
    /// Deleted sessions, oldest first.
    deleted: VecDeque<SessionId>,
    /// Until then, every entry may be missing: it is unknown which file the other program has read.
    doubt_until: Option<Instant>,
}

/// What quackd changed when it replaced the file.
#[derive(Debug)]
struct Change {
    at: Instant,
    /// Entries as they were before, and the active session. Only those that differ.
    was: Metadata,
    new_sessions: Vec<SessionId>,
    /// Paths.
    new_workspaces: Vec<String>,
}

impl Change {
    fn is_empty(&self) -> bool {
        self.new_sessions.is_empty()
            && self.new_workspaces.is_empty()
            && self.was == Metadata::default()
    }
}

impl Recent {
    /// Records that quackd replaced `before` with `after` in the file.
    pub(crate) fn note(&mut self, before: &Metadata, after: &Metadata, now: Instant) {
        let (was, is) = (Index::of(before), Index::of(after));
        let mut change = Change {
            at: now,
            was: Metadata::default(),
            new_sessions: Vec::new(),
            new_workspaces: Vec::new(),
        };
        for session in &after.sessions {
            if !was.sessions.contains_key(&session.id) && !self.is_new_session(&session.id, now) {
                change.new_sessions.push(session.id.clone());
            }
        }
        for workspace in &after.workspaces {
            let path = &workspace.path;
            if !was.workspaces.contains_key(path.as_str()) && !self.is_new_workspace(path, now) {
                change.new_workspaces.push(path.clone());
            }
        }
        for session in &before.sessions {
            let now = is.sessions.get(&session.id);
            if now.is_none() {
                self.deleted.push_back(session.id.clone());
            } else if now != Some(&session) {
                change.was.sessions.push(session.clone());
            }
        }
        let surplus = self.deleted.len().saturating_sub(MAX_DELETED);
        self.deleted.drain(..surplus);
        let is_different = |it: &&Workspace| is.workspaces.get(it.path.as_str()) != Some(it);
        change.was.workspaces = before.workspaces.iter().filter(is_different).cloned().collect();
        if before.active_voice_session_id != after.active_voice_session_id {
            change.was.active_voice_session_id.clone_from(&before.active_voice_session_id);
        }
        if !change.is_empty() {
            self.changes.push_back(change);
        }
        let is_old = |it: &Change| ENTRY_AGE <= now.saturating_duration_since(it.at);
        while MAX_CHANGES < self.changes.len() || self.changes.front().is_some_and(is_old) {
            self.changes.pop_front();
        }
    }

    /// For the next [`ENTRY_AGE`], every entry may be missing.
    pub(crate) fn doubt(&mut self, now: Instant) {
        self.doubt_until = now.checked_add(ENTRY_AGE);
    }

    /// Records that the other program has written `theirs`. Its next file is based on that or on a later one of
    /// ours, so only entries that it still lacks may be missing then.
    pub(crate) fn seen(&mut self, theirs: &Metadata) {
        let theirs = Index::of(theirs);
        for change in &mut self.changes {
            change.was = Metadata::default();
            change.new_sessions.retain(|id| !theirs.sessions.contains_key(id));
            change.new_workspaces.retain(|path| !theirs.workspaces.contains_key(path.as_str()));
        }
        self.changes.retain(|change| !change.is_empty());
    }

    /// Returns true if the other program may not know the session yet.
    pub(super) fn is_new_session(&self, id: &SessionId, now: Instant) -> bool {
        self.is_in_doubt(now)
            || self.within(ENTRY_AGE, now).any(|change| change.new_sessions.contains(id))
    }

    /// Like [`Recent::is_new_session`], for the workspace at `path`.
    pub(super) fn is_new_workspace(&self, path: &str, now: Instant) -> bool {
        let is_new = |change: &Change| change.new_workspaces.iter().any(|it| it == path);
        self.is_in_doubt(now) || self.within(ENTRY_AGE, now).any(is_new)
    }

    /// Returns true if quackd deleted the session.
    pub(super) fn has_deleted(&self, id: &SessionId) -> bool {
        self.deleted.contains(id)
    }

    /// Returns true if quackd recently changed or deleted the workspace.
    pub(super) fn had_workspace(&self, path: &str, now: Instant) -> bool {
        let changes = self.within(ENTRY_AGE, now);
        changes.flat_map(|it| &it.was.workspaces).any(|workspace| workspace.path == path)
    }

    /// Returns true if the session was like this before a recent change.
    pub(super) fn was_session(
        &self,
        id: &SessionId,
        now: Instant,
        is_it: impl Fn(&Session) -> bool,
    ) -> bool {
        let changes = self.within(VALUE_AGE, now);
        changes.flat_map(|it| &it.was.sessions).any(|session| session.id == *id && is_it(session))
    }

    /// Returns true if the workspace was like this before a recent change.
    pub(super) fn was_workspace(
        &self,
        path: &str,
        now: Instant,
        is_it: impl Fn(&Workspace) -> bool,
    ) -> bool {
        let changes = self.within(VALUE_AGE, now);
        changes.flat_map(|it| &it.was.workspaces).any(|it| it.path == path && is_it(it))
    }

    /// Returns true if this session was active before a recent change.
    pub(super) fn was_active(&self, session: &Option<SessionId>, now: Instant) -> bool {
        self.within(VALUE_AGE, now).any(|it| it.was.active_voice_session_id == *session)
    }

    /// Returns true if the other program may not know every change yet.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        self.is_in_doubt(now) || self.within(ENTRY_AGE, now).next().is_some()
    }

    fn within(&self, age: Duration, now: Instant) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |it| now.saturating_duration_since(it.at) < age)
    }

    fn is_in_doubt(&self, now: Instant) -> bool {
        self.doubt_until.is_some_and(|until| now < until)
    }
}
