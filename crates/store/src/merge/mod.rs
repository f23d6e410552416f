//! Three-way merge of `metadata.json`, field by field.
//!
//! `base` is the content of the file at the last check. `ours` is the content in memory, and `theirs` the
//! current content of the file. Pure, except for the recent changes ([`RecentChanges`]). Called by
//! [`crate::Files`] before every save, by the loader, and by the supervisor through [`rebase`].
//!
//! Rules:
//! - A field that only one side changed gets the changed value. If both changed it, the other program wins
//!   and the conflict is reported, because that program has the user's attention.
//! - `lastActiveAt` is the later value, and `createdAt` never changes. `piSessionFile` stays ours, because
//!   only quackd starts this Pi. An empty or missing value removes nothing, because the other program leaves
//!   out unknown fields.
//! - The merge never deletes a session. It reports a session as [`Gone`] if the other program must have known
//!   it and quackd did not change it since. The supervisor decides.
//! - Workspaces are matched by path and keep our id. Sessions are matched by id.
//! - A session that quackd deleted stays deleted. An existing session stays in its workspace.

mod entries;
mod recent_changes;
#[cfg(test)]
mod tests;

pub(crate) use entries::is_equivalent;
pub(crate) use recent_changes::RecentChanges;

use entries::{ACTIVE, Fields, Id, Index, differing, fields, top_fields, value};
use quackd_protocol::metadata::{Metadata, Session, Workspace};
use quackd_protocol::{SessionId, WorkspaceId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Instant;

/// Maximum number of reported conflicts per merge.
const MAX_REPORTED: usize = 20;

/// Result of a merge.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// Entries of both sides, including those in `gone`.
    pub(crate) metadata: Metadata,
    /// Entries that the other program has deleted.
    pub(crate) gone: Gone,
    /// Fields and entries that both sides changed, at most 20.
    pub(crate) conflicts: Vec<Conflict>,
}

/// Entries that another program has deleted from the file and that are still in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone {
    /// Sessions that quackd has not changed since.
    pub sessions: Vec<SessionId>,
    /// Workspaces without a remaining session.
    pub workspaces: Vec<WorkspaceId>,
}

impl Gone {
    /// Returns true if nothing was deleted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.workspaces.is_empty()
    }

    /// Returns `metadata` without the deleted entries.
    pub(crate) fn without(&self, metadata: &Metadata) -> Metadata {
        let (sessions, workspaces): (HashSet<_>, HashSet<_>) =
            (self.sessions.iter().collect(), self.workspaces.iter().collect());
        let mut rest = metadata.clone();
        rest.sessions.retain(|session| !sessions.contains(&session.id));
        rest.workspaces.retain(|workspace| !workspaces.contains(&workspace.id));
        rest
    }
}

/// Change by both sides, and its resolution.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// A field: one of the two values is kept.
    Field {
        /// The session's id, the workspace's path, or an empty string for the top level.
        of: String,
        /// Name of the field.
        field: String,
        /// True if the other program's value is kept.
        is_theirs: bool,
    },
    /// The other program deleted a session that quackd changed: it is kept.
    Deleted {
        /// Id of the session.
        session: String,
    },
    /// Quackd deleted a session that the other program still has: it stays deleted.
    Revived {
        /// Id of the session.
        session: String,
    },
    /// The file contains none of our entries: nothing counts as deleted.
    BegunAnew,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { of, field, is_theirs } => {
                let whose = if *is_theirs { "theirs" } else { "ours" };
                write!(f, "{field:.80} of {of:.80?} was changed by both; kept {whose}")
            }
            Self::Deleted { session } => {
                write!(f, "session {session:.80?} was deleted there and changed here; kept")
            }
            Self::Revived { session } => {
                write!(f, "session {session:.80?} was deleted here and is still there; left out")
            }
            Self::BegunAnew => f.write_str("none of our entries are in the file; kept all"),
        }
    }
}

/// Merges the external content `theirs`. `recent` contains the last changes by quackd.
pub(crate) fn merge(
    base: &Metadata,
    ours: &Metadata,
    theirs: &Metadata,
    recent: &mut RecentChanges,
    now: Instant,
) -> Merged {
    let merge = Merge {
        base: Index::of(base),
        theirs: Index::of(theirs),
        recent,
        now,
        conflicts: Vec::new(),
    };
    merge.run(base, ours, theirs)
}

/// Applies the changes in memory since `saved` to `kept`, the result of saving it. Loses neither.
#[must_use]
pub fn rebase(saved: &Metadata, kept: &Metadata, memory: &Metadata) -> Metadata {
    merge(saved, memory, kept, &mut RecentChanges::default(), Instant::now()).metadata
}

struct Merge<'a> {
    base: Index<'a>,
    theirs: Index<'a>,
    recent: &'a mut RecentChanges,
    now: Instant,
    conflicts: Vec<Conflict>,
}

impl Merge<'_> {
    fn run(mut self, base: &Metadata, ours: &Metadata, theirs: &Metadata) -> Merged {
        self.recent.forget_seen(&self.theirs, self.now);
        let mut metadata = ours.clone();
        self.workspaces(&mut metadata.workspaces, theirs);
        self.sessions(&mut metadata, theirs);
        self.top(&mut metadata);
        let gone = self.gone(base, &metadata);
        Merged { metadata, gone, conflicts: self.conflicts }
    }

    fn report(&mut self, conflict: Conflict) {
        if self.conflicts.len() < MAX_REPORTED {
            self.conflicts.push(conflict);
        }
    }

    fn workspaces(&mut self, ours: &mut Vec<Workspace>, theirs: &Metadata) {
        let mut places: HashMap<String, usize> = HashMap::with_capacity(ours.len());
        for (at, workspace) in ours.iter().enumerate() {
            places.entry(workspace.path.clone()).or_insert(at);
        }
        for workspace in &theirs.workspaces {
            let id = Id::Workspace(workspace.path.clone());
            let was_there = self.base.has(&id);
            if self.base.workspace(&workspace.path) == Some(workspace) {
                continue;
            }
            if let Some(known) = places.get(&workspace.path).and_then(|at| ours.get_mut(*at)) {
                self.entry(&id, known, &fields(workspace));
            } else if let Some(moved) = ours.iter_mut().find(|known| known.id == workspace.id) {
                // A new path for a known id: the directory was moved.
                if !was_there && !self.recent.was_deleted(&id) {
                    moved.path.clone_from(&workspace.path);
                }
            } else if !was_there && !self.recent.was_deleted(&id) {
                places.insert(workspace.path.clone(), ours.len());
                ours.push(workspace.clone());
            }
        }
    }

    fn sessions(&mut self, ours: &mut Metadata, theirs: &Metadata) {
        let ids: HashMap<&str, &WorkspaceId> =
            ours.workspaces.iter().rev().map(|it| (it.path.as_str(), &it.id)).collect();
        // Maps their workspace ids to ours.
        let ours_of: HashMap<&WorkspaceId, WorkspaceId> = theirs
            .workspaces
            .iter()
            .filter_map(|it| Some((&it.id, (*ids.get(it.path.as_str())?).clone())))
            .collect();
        let places: HashMap<SessionId, usize> =
            ours.sessions.iter().enumerate().map(|(at, it)| (it.id.clone(), at)).collect();
        for session in &theirs.sessions {
            let before = self.base.session(session.id.as_str());
            if before == Some(session) {
                continue;
            }
            let id = Id::Session(session.id.0.clone());
            if let Some(known) = places.get(&session.id).and_then(|at| ours.sessions.get_mut(*at)) {
                self.entry(&id, known, &fields(session));
            } else if before.is_none() && self.recent.was_deleted(&id) {
                self.report(Conflict::Revived { session: session.id.0.clone() });
            } else if before.is_none() {
                let mut added = session.clone();
                if let Some(workspace) = ours_of.get(&session.workspace_id) {
                    added.workspace_id = workspace.clone();
                }
                ours.sessions.push(added);
            }
        }
    }

    /// Applies their changes to an entry that both have.
    fn entry<E: Serialize + DeserializeOwned>(&mut self, id: &Id, ours: &mut E, theirs: &Fields) {
        let before = self.base.fields(id);
        // If both sides created the entry, `before` is empty and every difference is a change by both.
        let Ok(Value::Object(mut whole)) = serde_json::to_value(&*ours) else { return };
        let mut changed = false;
        for name in differing(&before, theirs) {
            let (from, to) = (value(&before, name), value(theirs, name));
            if self.recent.had(id, name, to) {
                continue;
            }
            if let Some(taken) = self.decide(id, name, from, value(&whole, name), to) {
                whole.insert(name.to_owned(), taken);
                changed = true;
            }
        }
        // Cannot fail: each value was parsed from the same type.
        if changed && let Ok(merged) = serde_json::from_value(Value::Object(whole)) {
            *ours = merged;
        }
    }

    /// Returns the new value of our field after theirs changed from `from` to `to`. `None` keeps our value.
    fn decide(
        &mut self,
        id: &Id,
        name: &str,
        from: &Value,
        ours: &Value,
        to: &Value,
    ) -> Option<Value> {
        let is_nothing = |value: &Value| value.is_null() || value == "";
        if ours == to || is_nothing(to) {
            return None;
        }
        let is_theirs = match name {
            "createdAt" => return is_nothing(ours).then(|| to.clone()),
            "lastActiveAt" => return is_later(to, ours).then(|| to.clone()),
            "piSessionFile" => false,
            ACTIVE | "lastActiveSessionId" => {
                // A deleted session cannot be active.
                let is_deleted = |id: &str| self.recent.was_deleted(&Id::Session(id.to_owned()));
                if to.as_str().is_some_and(is_deleted) {
                    return None;
                }
                true
            }
            _ => true,
        };
        if ours != from && !is_nothing(ours) {
            let of = match id {
                Id::Session(id) => id.clone(),
                Id::Workspace(path) => path.clone(),
                Id::Top => String::new(),
            };
            self.report(Conflict::Field { of, field: name.to_owned(), is_theirs });
            return is_theirs.then(|| to.clone());
        }
        Some(to.clone())
    }

    fn top(&mut self, ours: &mut Metadata) {
        let (before, theirs) = (self.base.fields(&Id::Top), self.theirs.fields(&Id::Top));
        let known = top_fields(ours);
        for name in differing(&before, &theirs) {
            let (from, to) = (value(&before, name), value(&theirs, name));
            if self.recent.had(&Id::Top, name, to) {
                continue;
            }
            match self.decide(&Id::Top, name, from, value(&known, name), to) {
                Some(Value::String(id)) if name == ACTIVE => {
                    ours.active_voice_session_id = Some(SessionId(id));
                }
                Some(taken) if name != ACTIVE => {
                    ours.other.insert(name.to_owned(), taken);
                }
                _ => {}
            }
        }
    }

    /// Returns the entries that they deleted. An entry that they may not know is not deleted.
    fn gone(&mut self, base: &Metadata, merged: &Metadata) -> Gone {
        let mut gone = Gone::default();
        let is_known = |session: &&Session| self.theirs.session(session.id.as_str()).is_some();
        let knows_workspace = |it: &Workspace| self.theirs.workspace(&it.path).is_some();
        let is_anew = !base.sessions.iter().any(|it| is_known(&it))
            && !base.workspaces.iter().any(knows_workspace);
        if is_anew {
            if !base.sessions.is_empty() {
                self.report(Conflict::BegunAnew);
            }
            return gone;
        }
        let kept: HashMap<&SessionId, &Session> =
            merged.sessions.iter().map(|session| (&session.id, session)).collect();
        let missing: Vec<&Session> = base.sessions.iter().filter(|it| !is_known(it)).collect();
        for session in missing {
            let Some(ours) = kept.get(&session.id) else { continue };
            if self.recent.may_be_unknown(&Id::Session(session.id.0.clone()), self.now) {
                continue;
            }
            if *ours == session {
                gone.sessions.push(session.id.clone());
            } else {
                self.report(Conflict::Deleted { session: session.id.0.clone() });
            }
        }
        for workspace in &base.workspaces {
            let id = Id::Workspace(workspace.path.clone());
            let is_used = || {
                let mut stay = merged.sessions.iter().filter(|it| !gone.sessions.contains(&it.id));
                stay.any(|session| session.workspace_id == workspace.id)
            };
            if !self.theirs.has(&id) && !self.recent.may_be_unknown(&id, self.now) && !is_used() {
                gone.workspaces.push(workspace.id.clone());
            }
        }
        gone
    }
}

/// Compares timestamps up to the second. Both programs write at least whole seconds.
fn is_later(one: &Value, other: &Value) -> bool {
    let second = |value: &Value| value.as_str().and_then(|text| text.get(..19)).map(str::to_owned);
    second(other) < second(one)
}
