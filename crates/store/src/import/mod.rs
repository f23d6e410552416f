//! Import of `metadata.json` after another program wrote it. Pure. Called by [`crate::Files`], by the loader,
//! and by the supervisor through [`rebase`].
//!
//! quackd's own state is the truth, and the file is a view of it. What counts is what the other program
//! **changed**: the difference between its file and the view that it may have read. That is `base`, the last
//! content of the file that quackd wrote or read, or one that quackd replaced a moment ago ([`Recent`]).
//!
//! Rules:
//! - An unknown session or workspace is added. Sessions are identified by id, workspaces by path, because two
//!   programs create different ids for one directory. Our id and the session's workspace stay.
//! - A name, an active session and an unknown key have the other program's value if that program changed it,
//!   because it has the user's attention. If both changed it, that is noted.
//! - `lastActiveAt` is the later value, and `createdAt` never changes. `piSessionFile` stays ours if quackd
//!   changed it, because only quackd starts this Pi.
//! - An empty or missing value removes nothing, because other programs leave out unknown fields.
//! - A value that quackd replaced less than 3 s ago is an old copy and no change.
//! - A session or workspace that quackd deleted stays deleted.
//! - Nothing is deleted here. A missing session is reported as [`Gone`] if the other program must have known it:
//!   not if quackd changed it since or created it less than 10 s ago, if the file was missing or unusable in that
//!   time, or if the file has none of our entries. A missing workspace also has to be unused.

mod recent;
#[cfg(test)]
mod tests;

pub(crate) use recent::Recent;

use quackd_protocol::metadata::{Metadata, Session, Workspace};
use quackd_protocol::{SessionId, WorkspaceId};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// Maximum number of notes of one import.
const MAX_NOTES: usize = 20;

/// Result of an import.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    /// Entries of both sides, including those in `gone`.
    pub(crate) metadata: Metadata,
    pub(crate) gone: Gone,
    /// What both sides changed, for the log.
    pub(crate) notes: Vec<String>,
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
        let mut rest = metadata.clone();
        rest.sessions.retain(|session| !self.sessions.contains(&session.id));
        rest.workspaces.retain(|workspace| !self.workspaces.contains(&workspace.id));
        rest
    }
}

/// Imports `theirs`, a file of another program, into `ours`. The module documentation has the rules.
pub(crate) fn import(
    base: &Metadata,
    recent: &Recent,
    ours: &Metadata,
    theirs: &Metadata,
    now: Instant,
) -> Imported {
    let mut import = Import { base: Index::of(base), recent, now, notes: Vec::new() };
    let mut metadata = ours.clone();
    import.workspaces(&mut metadata.workspaces, theirs);
    import.sessions(&mut metadata, theirs);
    import.top(&mut metadata, base, theirs);
    let gone = import.gone(base, &metadata, &Index::of(theirs));
    Imported { metadata, gone, notes: import.notes }
}

/// Applies the changes in memory since `saved` to `kept`, the result of saving it. Loses neither.
#[must_use]
pub fn rebase(saved: &Metadata, kept: &Metadata, memory: &Metadata) -> Metadata {
    import(saved, &Recent::default(), memory, kept, Instant::now()).metadata
}

/// Returns true if two files have the same entries, in any order.
pub(crate) fn is_equivalent(one: &Metadata, other: &Metadata) -> bool {
    let sessions: HashMap<_, _> = other.sessions.iter().map(|it| (&it.id, it)).collect();
    let workspaces: HashMap<_, _> = other.workspaces.iter().map(|it| (&it.id, it)).collect();
    one.sessions.len() == other.sessions.len()
        && one.workspaces.len() == other.workspaces.len()
        && one.active_voice_session_id == other.active_voice_session_id
        && one.other == other.other
        && one.sessions.iter().all(|it| sessions.get(&it.id) == Some(&it))
        && one.workspaces.iter().all(|it| workspaces.get(&it.id) == Some(&it))
}

/// Entries of a file by their keys. The first of several workspaces with the same path counts.
struct Index<'a> {
    sessions: HashMap<&'a SessionId, &'a Session>,
    workspaces: HashMap<&'a str, &'a Workspace>,
}

impl<'a> Index<'a> {
    fn of(metadata: &'a Metadata) -> Self {
        let sessions = metadata.sessions.iter().map(|it| (&it.id, it)).collect();
        let workspaces = metadata.workspaces.iter().rev().map(|it| (it.path.as_str(), it));
        Self { sessions, workspaces: workspaces.collect() }
    }
}

struct Import<'a> {
    base: Index<'a>,
    recent: &'a Recent,
    now: Instant,
    notes: Vec<String>,
}

impl Import<'_> {
    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    /// Takes their value of a field if they changed it. `theirs` is `None` if it is empty; `is_old` if quackd has
    /// just replaced it.
    fn take<T: PartialEq + Clone + Default>(
        &mut self,
        (field, of): (&str, &str),
        ours: &mut T,
        before: Option<&T>,
        theirs: Option<&T>,
        is_old: bool,
    ) {
        let Some(theirs) = theirs else { return };
        if is_old || before == Some(theirs) || *ours == *theirs {
            return;
        }
        if before != Some(&*ours) && *ours != T::default() {
            self.note(format!("{field:.80} of {of:.80?} was changed by both; kept theirs"));
        }
        *ours = theirs.clone();
    }

    /// Takes keys that quackd does not know.
    fn take_other(
        &mut self,
        of: &str,
        ours: &mut Map<String, Value>,
        before: Option<&Map<String, Value>>,
        theirs: &Map<String, Value>,
    ) {
        let before = |key: &str| before.and_then(|it| it.get(key));
        for (key, value) in theirs {
            let is_nothing = value.is_null() || value == "";
            if !is_nothing && before(key) != Some(value) {
                let known = ours.entry(key.clone()).or_insert(Value::Null);
                self.take((key, of), known, before(key), Some(value), false);
            }
        }
    }

    fn workspaces(&mut self, ours: &mut Vec<Workspace>, theirs: &Metadata) {
        let mut places: HashMap<String, usize> =
            ours.iter().enumerate().rev().map(|(at, it)| (it.path.clone(), at)).collect();
        for workspace in &theirs.workspaces {
            let before = self.base.workspaces.get(workspace.path.as_str()).copied();
            if before == Some(workspace) {
                continue;
            }
            let is_new = before.is_none() && !self.recent.had_workspace(&workspace.path, self.now);
            if let Some(known) = places.get(&workspace.path).and_then(|at| ours.get_mut(*at)) {
                self.workspace(known, before, workspace);
            } else if let Some(moved) = ours.iter_mut().find(|known| known.id == workspace.id) {
                // A new path for a known id: the directory was moved.
                if is_new {
                    moved.path.clone_from(&workspace.path);
                }
            } else if is_new {
                places.insert(workspace.path.clone(), ours.len());
                ours.push(workspace.clone());
            }
        }
    }

    fn workspace(&mut self, ours: &mut Workspace, before: Option<&Workspace>, theirs: &Workspace) {
        let path = &theirs.path;
        if ours.created_at.is_empty() {
            ours.created_at.clone_from(&theirs.created_at);
        }
        let last = &theirs.last_active_session_id;
        let is_old = self.is_deleted(last)
            || self.recent.was_workspace(path, self.now, |it| it.last_active_session_id == *last);
        self.take(
            ("lastActiveSessionId", path),
            &mut ours.last_active_session_id,
            before.map(|it| &it.last_active_session_id),
            Some(last).filter(|it| it.is_some()),
            is_old,
        );
        self.take_other(path, &mut ours.other, before.map(|it| &it.other), &theirs.other);
    }

    fn sessions(&mut self, ours: &mut Metadata, theirs: &Metadata) {
        let known: HashMap<&str, &WorkspaceId> =
            ours.workspaces.iter().rev().map(|it| (it.path.as_str(), &it.id)).collect();
        // Maps their workspace ids to ours.
        let ours_of: HashMap<&WorkspaceId, WorkspaceId> = theirs
            .workspaces
            .iter()
            .filter_map(|it| Some((&it.id, (*known.get(it.path.as_str())?).clone())))
            .collect();
        let places: HashMap<SessionId, usize> =
            ours.sessions.iter().enumerate().map(|(at, it)| (it.id.clone(), at)).collect();
        for session in &theirs.sessions {
            let before = self.base.sessions.get(&session.id).copied();
            if before == Some(session) {
                continue;
            }
            if let Some(known) = places.get(&session.id).and_then(|at| ours.sessions.get_mut(*at)) {
                self.session(known, before, session);
            } else if self.recent.has_deleted(&session.id) {
                let id = &session.id.0;
                self.note(format!(
                    "session {id:.80?} was deleted here and is still there; left out"
                ));
            } else if before.is_none() {
                let mut added = session.clone();
                if let Some(workspace) = ours_of.get(&session.workspace_id) {
                    added.workspace_id = workspace.clone();
                }
                ours.sessions.push(added);
            }
        }
    }

    fn session(&mut self, ours: &mut Session, before: Option<&Session>, theirs: &Session) {
        let (recent, now, id) = (self.recent, self.now, &theirs.id);
        let name = Some(&theirs.name).filter(|it| !it.is_empty());
        let is_old = recent.was_session(id, now, |it| it.name == theirs.name);
        self.take(("name", id.as_str()), &mut ours.name, before.map(|it| &it.name), name, is_old);
        if ours.created_at.is_empty() {
            ours.created_at.clone_from(&theirs.created_at);
        }
        if is_later(&theirs.last_active_at, &ours.last_active_at) {
            ours.last_active_at.clone_from(&theirs.last_active_at);
        }
        let pi = &mut ours.pi_session_file;
        let is_unchanged = pi.is_empty() || before.is_some_and(|it| it.pi_session_file == *pi);
        let is_old = recent.was_session(id, now, |it| it.pi_session_file == theirs.pi_session_file);
        if is_unchanged && !is_old && !theirs.pi_session_file.is_empty() {
            pi.clone_from(&theirs.pi_session_file);
        }
        // quackd never changes it.
        ours.is_voice_active = theirs.is_voice_active;
        let before = before.map(|it| &it.other);
        self.take_other(id.as_str(), &mut ours.other, before, &theirs.other);
    }

    fn top(&mut self, ours: &mut Metadata, base: &Metadata, theirs: &Metadata) {
        let active = &theirs.active_voice_session_id;
        let is_old = self.is_deleted(active) || self.recent.was_active(active, self.now);
        self.take(
            ("activeVoiceSessionId", ""),
            &mut ours.active_voice_session_id,
            Some(&base.active_voice_session_id),
            Some(active).filter(|it| it.is_some()),
            is_old,
        );
        self.take_other("", &mut ours.other, Some(&base.other), &theirs.other);
    }

    /// A deleted session cannot be active.
    fn is_deleted(&self, session: &Option<SessionId>) -> bool {
        session.as_ref().is_some_and(|id| self.recent.has_deleted(id))
    }

    /// Returns the entries that they deleted.
    fn gone(&mut self, base: &Metadata, merged: &Metadata, theirs: &Index<'_>) -> Gone {
        let mut gone = Gone::default();
        let (sessions, workspaces) = (&base.sessions, &base.workspaces);
        let is_anew = !sessions.iter().any(|it| theirs.sessions.contains_key(&it.id))
            && !workspaces.iter().any(|it| theirs.workspaces.contains_key(it.path.as_str()));
        if is_anew {
            if !sessions.is_empty() {
                self.note("none of our entries are in the file; kept all".to_owned());
            }
            return gone;
        }
        let kept = Index::of(merged).sessions;
        for session in sessions.iter().filter(|it| !theirs.sessions.contains_key(&it.id)) {
            match kept.get(&session.id) {
                Some(_) if self.recent.is_new_session(&session.id, self.now) => {}
                Some(ours) if *ours == session => gone.sessions.push(session.id.clone()),
                Some(_) => {
                    let id = &session.id.0;
                    self.note(format!(
                        "session {id:.80?} was deleted there and changed here; kept"
                    ));
                }
                None => {}
            }
        }
        let goes: HashSet<&SessionId> = gone.sessions.iter().collect();
        let stay = merged.sessions.iter().filter(|it| !goes.contains(&it.id));
        let used: HashSet<&WorkspaceId> = stay.map(|it| &it.workspace_id).collect();
        let is_gone = |it: &&Workspace| {
            !theirs.workspaces.contains_key(it.path.as_str())
                && !used.contains(&it.id)
                && !self.recent.is_new_workspace(&it.path, self.now)
        };
        gone.workspaces = workspaces.iter().filter(is_gone).map(|it| it.id.clone()).collect();
        gone
    }
}

/// Compares timestamps up to the second. Both programs write at least whole seconds.
fn is_later(one: &str, other: &str) -> bool {
    other.get(..19) < one.get(..19)
}
