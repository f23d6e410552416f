//! Taking over what another program has made of `metadata.json`: a merge of three, field by field.
//!
//! `base` is what the file held when we looked last, `ours` what we hold now, `theirs` what it holds now.
//! Pure, but for the memory of what we changed a moment ago ([`Recent`]); called by [`crate::Files`] before
//! every save, by the loader, and through [`rebase`] by the supervisor.
//!
//! The rules, each for a reason:
//! - What one side alone has changed is taken. What both have changed is theirs, and told: a person sits
//!   in front of the other program.
//! - But `lastActiveAt` is the later one, `createdAt` never changes, and `piSessionFile` is ours: only we
//!   know where our Pi writes. What is empty or left out takes nothing away: the other program leaves out
//!   what it does not know.
//! - A session is never deleted here. It stays, and is given back as gone ([`Gone`]) if the other program
//!   must have known it and we have not changed it since; the supervisor decides.
//! - Workspaces are matched by path and keep the id that we have; sessions by id.
//! - A session that we have deleted stays deleted, and stays in its workspace as long as it lives.

mod entries;
mod recent;
#[cfg(test)]
mod tests;

pub(crate) use entries::says_the_same;
pub(crate) use recent::Recent;

use entries::{ACTIVE, Fields, Id, Index, differing, fields, top_fields, value};
use quackd_protocol::metadata::{Metadata, Session, Workspace};
use quackd_protocol::{SessionId, WorkspaceId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Instant;

/// Conflicts that are told of one merge.
const MAX_TOLD: usize = 20;

/// What came of a merge.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// Everything of both. What is [`Gone`] is still in it.
    pub(crate) metadata: Metadata,
    /// What the other program has deleted.
    pub(crate) gone: Gone,
    /// What both have changed, the first twenty.
    pub(crate) conflicts: Vec<Conflict>,
}

/// What another program has deleted from the file, and is still in our memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone {
    /// Sessions that have not been changed by us since.
    pub sessions: Vec<SessionId>,
    /// Workspaces without a session that stays.
    pub workspaces: Vec<WorkspaceId>,
}

impl Gone {
    /// Whether nothing was deleted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.workspaces.is_empty()
    }

    /// What remains of a file without it.
    pub(crate) fn without(&self, metadata: &Metadata) -> Metadata {
        let (sessions, workspaces): (HashSet<_>, HashSet<_>) =
            (self.sessions.iter().collect(), self.workspaces.iter().collect());
        let mut rest = metadata.clone();
        rest.sessions.retain(|session| !sessions.contains(&session.id));
        rest.workspaces.retain(|workspace| !workspaces.contains(&workspace.id));
        rest
    }
}

/// Something that both sides have changed, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// A field: the value of one of them is kept.
    Field {
        /// The session's id, the workspace's path, or nothing.
        of: String,
        /// The field.
        field: String,
        /// Whether the other program's is.
        is_theirs: bool,
    },
    /// A session that the other program has deleted and we have changed: it stays.
    Deleted {
        /// Its id.
        session: String,
    },
    /// A session that we have deleted and the other program still has: it stays deleted.
    Revived {
        /// Its id.
        session: String,
    },
    /// The other program has made a file without anything of ours: nothing counts as deleted.
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
            Self::BegunAnew => f.write_str("nothing of ours is there any more; kept"),
        }
    }
}

/// Merges what another program has written. `recent` is what we have written lately.
pub(crate) fn merge(
    base: &Metadata,
    ours: &Metadata,
    theirs: &Metadata,
    recent: &mut Recent,
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

/// Brings what was changed in memory since `saved` into what came of saving it: nothing is lost of either.
#[must_use]
pub fn rebase(saved: &Metadata, kept: &Metadata, memory: &Metadata) -> Metadata {
    merge(saved, memory, kept, &mut Recent::default(), Instant::now()).metadata
}

struct Merge<'a> {
    base: Index<'a>,
    theirs: Index<'a>,
    recent: &'a mut Recent,
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

    fn tell(&mut self, conflict: Conflict) {
        if self.conflicts.len() < MAX_TOLD {
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
                // Another path for an id that we have: a directory that was moved.
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
        // Their id of a workspace, and ours.
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
                self.tell(Conflict::Revived { session: session.id.0.clone() });
            } else if before.is_none() {
                let mut added = session.clone();
                if let Some(workspace) = ours_of.get(&session.workspace_id) {
                    added.workspace_id = workspace.clone();
                }
                ours.sessions.push(added);
            }
        }
    }

    /// Takes over what they have changed in an entry that we have.
    fn entry<E: Serialize + DeserializeOwned>(&mut self, id: &Id, ours: &mut E, theirs: &Fields) {
        let before = self.base.fields(id);
        // Made by both since: what differs is changed by both.
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
        // Each value was read into the same shape, so this does not fail.
        if changed && let Ok(merged) = serde_json::from_value(Value::Object(whole)) {
            *ours = merged;
        }
    }

    /// What our value of a field becomes, if anything else, when theirs went `from` … `to` a value.
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
                // One that is deleted is active nowhere.
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
            self.tell(Conflict::Field { of, field: name.to_owned(), is_theirs });
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

    /// What they have deleted: nothing of it is missing because they did not know it.
    fn gone(&mut self, base: &Metadata, merged: &Metadata) -> Gone {
        let mut gone = Gone::default();
        let is_known = |session: &&Session| self.theirs.session(session.id.as_str()).is_some();
        let knows_workspace = |it: &Workspace| self.theirs.workspace(&it.path).is_some();
        let is_anew = !base.sessions.iter().any(|it| is_known(&it))
            && !base.workspaces.iter().any(knows_workspace);
        if is_anew {
            if !base.sessions.is_empty() {
                self.tell(Conflict::BegunAnew);
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
                self.tell(Conflict::Deleted { session: session.id.0.clone() });
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

/// Times as the programs write them, whole seconds or more: the text up to the second decides.
fn is_later(one: &Value, other: &Value) -> bool {
    let second = |value: &Value| value.as_str().and_then(|text| text.get(..19)).map(str::to_owned);
    second(other) < second(one)
}
