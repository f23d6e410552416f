//! Import of `metadata.json` after another program wrote it. Pure. Called by [`crate::Files`], by
//! [`crate::open_blocking`], and by the supervisor through [`rebase`].
//!
//! quackd's own state is the truth, and the file is a view of it. Only changes by the other program
//! count: the difference between its file and the view that it may have read. That is `base`, the last
//! content of the file that quackd wrote or read, or one that quackd replaced a moment ago ([`Recent`]).
//!
//! Rules:
//! - An unknown session or workspace is added. Sessions are identified by id, workspaces by path, because two
//!   programs create different ids for one directory. Our id and the session's workspace stay.
//! - A name, an active session and an unknown key have the other program's value if that program changed it,
//!   because it has the user's attention.
//! - `lastActiveAt` is the later value, and `createdAt` never changes. `piSessionFile` stays ours if quackd
//!   changed it, because only quackd starts this Pi.
//! - An empty or missing value removes nothing, because other programs leave out unknown fields.
//! - A value that quackd replaced less than 3 s ago is an old copy and no change.
//! - A session that quackd deleted stays deleted, and a workspace for 10 s.
//! - Nothing is deleted here. A missing session is reported as [`Gone`] if the other program must have known it:
//!   not if quackd changed it since or created it less than 10 s ago, if the file was missing or unusable in that
//!   time, or if the file has none of our entries. A missing workspace also has to be unused.

mod entry;
mod recent;
#[cfg(test)]
mod tests;

pub(crate) use recent::Recent;

use entry::{Entry, index, take, take_other};
use quackd_protocol::metadata::{Metadata, Session, Shared, Workspace};
use quackd_protocol::{SessionId, WorkspaceId};
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
    /// Deletions that did not count, for the log.
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
    let mut metadata = ours.clone();
    let before = index::<Workspace>(base);
    for workspace in &theirs.workspaces {
        // A new path for a known id: the directory was moved.
        let is_new = !before.contains_key(&*workspace.path)
            && !metadata.workspaces.iter().any(|it| it.path == workspace.path)
            && !recent.has_deleted::<Workspace>(&workspace.path, now);
        let mut known = metadata.workspaces.iter_mut();
        if is_new && let Some(moved) = known.find(|it| it.id == workspace.id) {
            moved.path.clone_from(&workspace.path);
        }
    }

    entries::<Workspace>(base, recent, &mut metadata, theirs, now);
    entries::<Session>(base, recent, &mut metadata, theirs, now);

    // New sessions have the other program's workspace ids.
    let ids: HashMap<String, WorkspaceId> =
        metadata.workspaces.iter().rev().map(|it| (it.path.clone(), it.id.clone())).collect();
    for session in metadata.sessions.iter_mut().skip(ours.sessions.len()) {
        let workspace = theirs.workspaces.iter().find(|it| it.id == session.workspace_id);
        if let Some(id) = workspace.and_then(|it| ids.get(&it.path)) {
            session.workspace_id.clone_from(id);
        }
    }

    let active = &theirs.active_voice_session_id;
    let is_deleted = |id: &SessionId| recent.has_deleted::<Session>(id.as_str(), now);
    let is_old = active.as_ref().is_some_and(is_deleted) || recent.was_active(active, now);
    let before = Some(&base.active_voice_session_id);
    take(&mut metadata.active_voice_session_id, before, active, is_old);
    take_other(&mut metadata.other, Some(&base.other), &theirs.other);

    let (gone, notes) = gone(base, recent, &metadata, theirs, now);
    Imported { metadata, gone, notes }
}

/// Takes names and the active session of a file that the other program wrote just before the last daemon was killed. A
/// value that the daemon replaced in its last seconds is an old copy.
pub(crate) fn take_values(
    metadata: &mut Metadata,
    theirs: &Metadata,
    recent: &Recent,
    now: Instant,
) {
    for session in &mut metadata.sessions {
        let Some(new) = theirs.sessions.iter().find(|it| it.id == session.id) else { continue };
        let past = recent.past::<Session>(session.id.as_str(), now);
        if !new.name.is_empty() && past.iter().all(|it| it.name != new.name) {
            session.name.clone_from(&new.name);
        }
    }

    let active = &theirs.active_voice_session_id;
    let exists = metadata.sessions.iter().any(|session| Some(&session.id) == active.as_ref());
    if exists && !recent.was_active(active, now) {
        metadata.active_voice_session_id.clone_from(active);
    }
}

/// Takes the sessions or the workspaces.
fn entries<E: Entry>(
    base: &Metadata,
    recent: &Recent,
    ours: &mut Metadata,
    theirs: &Metadata,
    now: Instant,
) {
    let before = index::<E>(base);
    let numbered = E::all(ours).iter().enumerate().rev();
    let mut places: HashMap<String, usize> =
        numbered.map(|(at, entry)| (entry.key().to_owned(), at)).collect();
    let mut ids: HashSet<String> = E::all(ours).iter().map(|it| it.id().to_owned()).collect();
    let is_deleted = |id: &SessionId| recent.has_deleted::<Session>(id.as_str(), now);

    for entry in E::all(theirs) {
        let (key, was) = (entry.key(), before.get(entry.key()).copied());
        if was == Some(entry) {
            continue;
        }

        let all = E::all_mut(ours);
        if let Some(known) = places.get(key).and_then(|at| all.get_mut(*at)) {
            let was = was.map(|it| &**it);
            known.take(was, entry, &recent.past(key, now), &is_deleted);
        } else if was.is_none()
            && !recent.has_deleted::<E>(key, now)
            // Two directories cannot have one id. This one was moved to a path that another one had.
            && ids.insert(entry.id().to_owned())
        {
            places.insert(key.to_owned(), all.len());
            all.push(entry.clone());
        }
    }
}

/// Returns the entries that the other program deleted, and notes about those that stay.
fn gone(
    base: &Metadata,
    recent: &Recent,
    merged: &Metadata,
    theirs: &Metadata,
    now: Instant,
) -> (Gone, Vec<String>) {
    let (mut gone, mut notes) = (Gone::default(), Vec::new());
    let (sessions, workspaces) = (index::<Session>(theirs), index::<Workspace>(theirs));
    let is_anew = !base.sessions.iter().any(|it| sessions.contains_key(it.key()))
        && !base.workspaces.iter().any(|it| workspaces.contains_key(it.key()));
    // A file with none of our entries is a new one, so it shows no deletions.
    if is_anew {
        if !base.sessions.is_empty() {
            notes.push("none of our entries are in the file; kept all".to_owned());
        }
        return (gone, notes);
    }

    let kept = index::<Session>(merged);
    for session in &base.sessions {
        let id = session.key();
        let Some(ours) = kept.get(id).filter(|_| !sessions.contains_key(id)) else { continue };
        if *ours == session && !recent.is_new(id, now) {
            gone.sessions.push(session.id.clone());
        } else if !recent.is_new(id, now) && notes.len() < MAX_NOTES {
            notes.push(format!("session {id:.80?} was deleted there and changed here; kept"));
        }
    }

    let goes: HashSet<&SessionId> = gone.sessions.iter().collect();
    let stay = merged.sessions.iter().filter(|it| !goes.contains(&it.id));
    let used: HashSet<&WorkspaceId> = stay.map(|it| &it.workspace_id).collect();
    let is_gone = |it: &&Shared<Workspace>| {
        !workspaces.contains_key(it.key())
            && !used.contains(&it.id)
            && !recent.is_new(&it.path, now)
    };
    gone.workspaces = base.workspaces.iter().filter(is_gone).map(|it| it.id.clone()).collect();
    (gone, notes)
}

/// Applies the changes in memory since `saved` to `kept`, the result of saving it. Loses neither.
#[must_use]
pub fn rebase(saved: &Metadata, kept: &Metadata, memory: &Metadata) -> Metadata {
    import(saved, &Recent::default(), memory, kept, Instant::now()).metadata
}

/// Returns true if two files have the same entries, in any order.
pub(crate) fn is_equivalent(one: &Metadata, other: &Metadata) -> bool {
    let sorted = |metadata: &Metadata| {
        let mut sorted = metadata.clone();
        sorted.sessions.sort_by(|one, other| one.id.cmp(&other.id));
        sorted.workspaces.sort_by(|one, other| one.id.cmp(&other.id));
        sorted
    };
    one == other || sorted(one) == sorted(other)
}
