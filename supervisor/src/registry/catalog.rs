//! Workspaces and sessions in memory: pure changes and look-ups of the metadata.
//!
//! The registry owns the metadata and saves it. Times and ids are arguments.

use crate::errors::MethodError;
use quackd_protocol::client::{
    ActivateData, ActivatedSession, AttachData, AttachedSession, AttachedWorkspace,
};
use quackd_protocol::foreign_text::{NameError, check_name};
use quackd_protocol::limits::{MAX_NAME_CHARS, MAX_SESSIONS};
use quackd_protocol::metadata::{Metadata, Session, Shared, Workspace};
use quackd_protocol::{SessionId, WorkspaceId};
use serde_json::Map;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Input of a new session.
#[derive(Debug, Clone)]
pub(crate) struct Fresh {
    /// Unused id.
    pub(crate) session_id: SessionId,
    /// Current time in UTC with whole seconds, ISO 8601.
    pub(crate) now: String,
}

/// Sessions to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Every session.
    All,
    /// Sessions of one workspace id; none if the id is unknown.
    Workspace(String),
    /// Sessions of the active session's workspace, or all if no session is active.
    Active,
}

/// Returns the session with the id `reference`, else with this name, else with a name that starts with it. Names ignore
/// case and must be unambiguous.
pub(crate) fn find<'a>(metadata: &'a Metadata, reference: &str) -> Option<&'a Shared<Session>> {
    // Every name starts with an empty text, so an empty reference would find the only session.
    if reference.trim().is_empty() {
        return None;
    }
    if let Some(exact) = metadata.sessions.iter().find(|s| s.id.as_str() == reference) {
        return Some(exact);
    }

    // An exact name wins over longer names that start with it.
    let lowered = reference.to_lowercase();
    only(metadata.sessions.iter().filter(|s| s.name.to_lowercase() == lowered)).or_else(|| {
        only(metadata.sessions.iter().filter(|s| s.name.to_lowercase().starts_with(&lowered)))
    })
}

pub(crate) fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Returns the session with this id.
pub(super) fn by_id<'a>(metadata: &'a Metadata, id: &SessionId) -> Option<&'a Shared<Session>> {
    metadata.sessions.iter().find(|s| s.id == *id)
}

/// Like [`by_id`], for a change.
pub(super) fn by_id_mut<'a>(
    metadata: &'a mut Metadata,
    id: &SessionId,
) -> Option<&'a mut Shared<Session>> {
    metadata.sessions.iter_mut().find(|s| s.id == *id)
}

/// Returns the active session. `None` also if the active id belongs to no session.
pub(crate) fn active(metadata: &Metadata) -> Option<&Shared<Session>> {
    by_id(metadata, metadata.active_voice_session_id.as_ref()?)
}

/// Returns the path of a session's workspace. Empty without one.
pub(crate) fn path_of<'a>(metadata: &'a Metadata, session: &Session) -> &'a str {
    workspace_of(metadata, session).map_or("", |workspace| workspace.path.as_str())
}

/// Returns the workspace of a session.
pub(crate) fn workspace_of<'a>(
    metadata: &'a Metadata,
    session: &Session,
) -> Option<&'a Shared<Workspace>> {
    metadata.workspaces.iter().find(|w| w.id == session.workspace_id)
}

/// Returns the path of each workspace by its id.
pub(crate) fn paths(metadata: &Metadata) -> HashMap<&WorkspaceId, &str> {
    metadata.workspaces.iter().map(|w| (&w.id, w.path.as_str())).collect()
}

/// Returns the sessions of a selection in stored order.
pub(crate) fn select<'a>(
    metadata: &'a Metadata,
    selection: &'a Selection,
) -> impl Iterator<Item = &'a Shared<Session>> {
    let workspace = match selection {
        Selection::All => None,
        Selection::Workspace(id) => Some(id.as_str()),
        Selection::Active => active(metadata).map(|s| s.workspace_id.as_str()),
    };
    metadata.sessions.iter().filter(move |s| workspace.is_none_or(|w| s.workspace_id.as_str() == w))
}

/// Finds or creates the workspace at `path` and its session, and activates the session if requested. Returns the reply
/// and whether `metadata` changed.
///
/// Chooses the session that was last active in the workspace, else its first session, among those that `is_wanted` accepts.
pub(crate) fn attach(
    metadata: &mut Arc<Metadata>,
    path: &str,
    activate: bool,
    fresh: Fresh,
    is_wanted: impl Fn(&SessionId) -> bool,
) -> Result<(AttachData, bool), MethodError> {
    let known = metadata.workspaces.iter().find(|w| w.path == path);
    let found = known.and_then(|workspace| preferred(metadata, workspace, is_wanted));
    let Some(session) = found else {
        let made = add_session(Arc::make_mut(metadata), path, None, activate, fresh)?;
        return Ok((made, true));
    };

    let id = session.id.clone();
    let changed = activate && set_active(metadata, &id);
    let data = attached(metadata, &id).ok_or(MethodError::WorkspaceUnknown)?;
    Ok((data, changed))
}

/// Returns the session of a workspace for a client that names only the directory.
pub(crate) fn preferred<'a>(
    metadata: &'a Metadata,
    workspace: &Workspace,
    is_wanted: impl Fn(&SessionId) -> bool,
) -> Option<&'a Shared<Session>> {
    let is_here = |s: &&Shared<Session>| s.workspace_id == workspace.id && is_wanted(&s.id);
    let mut sessions = metadata.sessions.iter().filter(is_here);

    let last = workspace.last_active_session_id.as_ref();
    let first = sessions.clone().next();
    sessions.find(|s| Some(&s.id) == last).or(first)
}

/// Creates another session in the workspace at `path`. Creates the workspace if it is new.
pub(crate) fn add_session(
    metadata: &mut Metadata,
    path: &str,
    name: Option<String>,
    activate: bool,
    fresh: Fresh,
) -> Result<AttachData, MethodError> {
    let known = metadata.workspaces.iter().find(|w| w.path == path);

    // All checks come before the first change.
    if MAX_SESSIONS <= metadata.sessions.len() {
        return Err(MethodError::TooManySessions(metadata.sessions.len()));
    }
    if known.is_none() && MAX_SESSIONS <= metadata.workspaces.len() {
        return Err(MethodError::TooManySessions(metadata.workspaces.len()));
    }

    let workspace_id =
        known.map_or_else(|| WorkspaceId(quackd_home::workspace_id(path)), |w| w.id.clone());
    let of_workspace = metadata.sessions.iter().filter(|s| s.workspace_id == workspace_id);
    let taken: HashSet<String> = of_workspace.map(|s| s.name.to_lowercase()).collect();
    let name = match name {
        Some(name) => checked_name(name, &taken)?,
        None => next_name(&taken),
    };

    if known.is_none() {
        let workspace = Workspace {
            id: workspace_id.clone(),
            path: path.to_owned(),
            created_at: fresh.now.clone(),
            last_active_session_id: None,
            other: Map::new(),
        };
        metadata.workspaces.push(workspace.into());
    }

    let id = fresh.session_id.clone();
    let session = Session {
        id: fresh.session_id,
        workspace_id,
        name,
        pi_session_file: String::new(),
        created_at: fresh.now.clone(),
        last_active_at: fresh.now,
        is_voice_active: false,
        other: Map::new(),
    };
    metadata.sessions.push(session.into());

    if activate {
        set_active_in(metadata, &id);
    }
    attached(metadata, &id).ok_or(MethodError::WorkspaceUnknown)
}

/// Checks a name that the user chose: printable, limited in length, and unused in the workspace.
fn checked_name(name: String, taken: &HashSet<String>) -> Result<String, MethodError> {
    if name.trim().len() != name.len() {
        return Err(NameError::Length(MAX_NAME_CHARS).into());
    }
    check_name(&name, MAX_NAME_CHARS)?;
    if taken.contains(&name.to_lowercase()) {
        return Err(MethodError::NameTaken(name));
    }
    Ok(name)
}

/// Returns `duck-<n>` for a new session. Does not reuse the number of a deleted session while a later number is in use.
fn next_name(taken: &HashSet<String>) -> String {
    let mut n = taken.len() + 1;
    loop {
        let name = format!("duck-{n}");
        if !taken.contains(&name) {
            return name;
        }
        n += 1;
    }
}

/// Describes a session and its workspace for clients.
pub(super) fn attached(metadata: &Metadata, id: &SessionId) -> Option<AttachData> {
    let session = by_id(metadata, id)?;
    let workspace = workspace_of(metadata, session)?;
    Some(AttachData {
        workspace: AttachedWorkspace { id: workspace.id.clone(), path: workspace.path.clone() },
        session: AttachedSession { id: session.id.clone(), name: session.name.clone() },
        label: String::new(),
        note: None,
    })
}

/// Activates a session. Returns whether anything changed.
fn set_active(metadata: &mut Arc<Metadata>, id: &SessionId) -> bool {
    let workspace = by_id(metadata, id).and_then(|session| workspace_of(metadata, session));
    let last = workspace.and_then(|workspace| workspace.last_active_session_id.as_ref());
    if metadata.active_voice_session_id.as_ref() == Some(id) && last == Some(id) {
        return false;
    }

    set_active_in(Arc::make_mut(metadata), id);
    true
}

fn set_active_in(metadata: &mut Metadata, id: &SessionId) {
    let workspace_id = by_id(metadata, id).map(|s| s.workspace_id.clone());
    if let Some(workspace) =
        metadata.workspaces.iter_mut().find(|w| Some(&w.id) == workspace_id.as_ref())
    {
        workspace.last_active_session_id = Some(id.clone());
    }

    metadata.active_voice_session_id = Some(id.clone());
}

/// Activates the session of `reference`. Returns the reply and whether anything changed.
pub(crate) fn activate(
    metadata: &mut Arc<Metadata>,
    reference: &str,
) -> Result<(ActivateData, bool), MethodError> {
    let session = find(metadata, reference)
        .ok_or_else(|| MethodError::SessionNotFound(reference.to_owned()))?;
    let workspace = workspace_of(metadata, session)
        .ok_or_else(|| MethodError::WorkspaceNotFound(session.id.0.clone()))?;

    let data = ActivateData {
        session: ActivatedSession {
            id: session.id.clone(),
            name: session.name.clone(),
            workspace_id: workspace.id.clone(),
        },
        workspace: AttachedWorkspace { id: workspace.id.clone(), path: workspace.path.clone() },
    };

    let changed = set_active(metadata, &data.session.id);
    Ok((data, changed))
}

/// Deletes a session. If it was active, or last active in its workspace, the most recently used session of the
/// workspace replaces it. The workspace stays.
pub(crate) fn delete(metadata: &mut Metadata, id: &SessionId) -> Option<AttachedSession> {
    let at = metadata.sessions.iter().position(|s| s.id == *id)?;
    let session = metadata.sessions.remove(at);
    let successor = metadata
        .sessions
        .iter()
        .filter(|s| s.workspace_id == session.workspace_id)
        // Of several with the same time, the one that was made first.
        .rev()
        .max_by(|a, b| a.last_active_at.cmp(&b.last_active_at))
        .map(|s| s.id.clone());

    for workspace in &mut metadata.workspaces {
        if workspace.last_active_session_id.as_ref() == Some(id) {
            workspace.last_active_session_id.clone_from(&successor);
        }
    }

    if metadata.active_voice_session_id.as_ref() == Some(id) {
        metadata.active_voice_session_id = successor;
    }
    Some(AttachedSession { id: session.id.clone(), name: session.name.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(
        metadata: &mut Arc<Metadata>,
        path: &str,
        activate: bool,
        fresh: Fresh,
    ) -> Result<(AttachData, bool), MethodError> {
        super::attach(metadata, path, activate, fresh, |_| true)
    }

    fn fresh(id: &str) -> Fresh {
        Fresh { session_id: id.into(), now: "2026-01-01T00:00:00Z".into() }
    }

    fn two_repositories() -> Arc<Metadata> {
        let mut metadata = Arc::<Metadata>::default();
        attach(&mut metadata, "/a", true, fresh("s1")).unwrap();
        attach(&mut metadata, "/b", false, fresh("s2")).unwrap();
        metadata
    }

    fn workspace(metadata: &mut Arc<Metadata>) -> &mut Workspace {
        &mut Arc::make_mut(metadata).workspaces[0]
    }

    fn second(metadata: &mut Arc<Metadata>) -> &mut Session {
        &mut Arc::make_mut(metadata).sessions[1]
    }

    #[test]
    fn a_session_that_is_not_wanted_is_not_found_and_another_one_is_made() {
        let mut metadata = two_repositories();
        let is_wanted = |id: &SessionId| id.as_str() != "s1";
        let mut attach = |id| {
            super::attach(&mut metadata, "/a", false, fresh(id), is_wanted).unwrap().0.session.id
        };
        assert_eq!(attach("s3").as_str(), "s3");
        assert_eq!(attach("s4").as_str(), "s3");
    }

    #[test]
    fn attaching_twice_gives_the_same_session_and_changes_nothing() {
        let mut metadata = two_repositories();
        let before = metadata.clone();
        let (data, changed) = attach(&mut metadata, "/a", true, fresh("other")).unwrap();
        assert_eq!((data.session.id.as_str(), data.session.name.as_str()), ("s1", "duck-1"));
        assert_eq!(data.workspace.path, "/a");
        assert!(!changed);
        assert_eq!(metadata, before);
    }

    #[test]
    fn attaching_without_activation_leaves_the_active_session_alone() {
        let mut metadata = two_repositories();
        assert_eq!(active(&metadata).unwrap().id.as_str(), "s1");
        let (_, changed) = attach(&mut metadata, "/b", true, fresh("x")).unwrap();
        assert!(changed);
        assert_eq!(active(&metadata).unwrap().id.as_str(), "s2");
    }

    #[test]
    fn attach_prefers_the_session_that_was_last_active_in_the_workspace() {
        let mut metadata = two_repositories();
        let mut one_more = metadata.sessions[0].clone();
        one_more.id = "s9".into();
        Arc::make_mut(&mut metadata).sessions.push(one_more);
        workspace(&mut metadata).last_active_session_id = Some("s9".into());
        let (data, _) = attach(&mut metadata, "/a", false, fresh("x")).unwrap();
        assert_eq!(data.session.id.as_str(), "s9");
        workspace(&mut metadata).last_active_session_id = Some("gone".into());
        let (data, _) = attach(&mut metadata, "/a", false, fresh("x")).unwrap();
        assert_eq!(data.session.id.as_str(), "s1");
    }

    #[test]
    fn references_are_ids_then_names_then_prefixes_and_never_ambiguous() {
        let mut metadata = two_repositories();
        second(&mut metadata).name = "Feature".into();
        let id = |reference| find(&metadata, reference).map(|s| s.id.as_str());
        assert_eq!(id("s2"), Some("s2"));
        assert_eq!(id("S2"), None);
        assert_eq!(id("duck-1"), Some("s1"));
        assert_eq!(id("DUCK"), Some("s1"));
        assert_eq!(id("feat"), Some("s2"));
        assert_eq!(id("nobody"), None);
        second(&mut metadata).name = "duck-1".into();
        assert_eq!(find(&metadata, "duck-1"), None);
        assert_eq!(find(&metadata, "d"), None);
    }

    #[test]
    fn selections_list_all_one_workspace_or_the_active_one() {
        let mut metadata = two_repositories();
        let ids = |metadata: &Metadata, selection| {
            select(metadata, &selection).map(|s| s.id.0.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&metadata, Selection::All), ["s1", "s2"]);
        assert_eq!(ids(&metadata, Selection::Active), ["s1"]);
        let b = metadata.workspaces[1].id.0.clone();
        assert_eq!(ids(&metadata, Selection::Workspace(b)), ["s2"]);
        assert!(ids(&metadata, Selection::Workspace("/b".into())).is_empty());
        Arc::make_mut(&mut metadata).active_voice_session_id = Some("stale".into());
        assert_eq!(ids(&metadata, Selection::Active), ["s1", "s2"]);
    }

    #[test]
    fn a_full_catalog_refuses_new_sessions_and_keeps_serving_known_ones() {
        let mut metadata = two_repositories();
        let template = metadata.sessions[0].clone();
        Arc::make_mut(&mut metadata).sessions.resize(MAX_SESSIONS, template);
        let before = metadata.clone();
        let refused = attach(&mut metadata, "/new", true, fresh("x"));
        assert!(matches!(refused, Err(MethodError::TooManySessions(_))));
        assert_eq!(metadata, before);
        attach(&mut metadata, "/a", true, fresh("x")).unwrap();
    }

    #[test]
    fn more_sessions_of_a_workspace_have_names_of_their_own() {
        let mut metadata = two_repositories();
        let metadata = Arc::make_mut(&mut metadata);
        let mut add = |name: Option<&str>, id| {
            add_session(metadata, "/a", name.map(str::to_owned), false, fresh(id))
                .map(|data| data.session.name)
                .map_err(|error| error.to_string())
        };
        assert_eq!(add(None, "s3").unwrap(), "duck-2");
        assert_eq!(add(Some("Fix it"), "s4").unwrap(), "Fix it");
        assert_eq!(add(None, "s5").unwrap(), "duck-4");
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        for bad in ["", " ", " x", &long] {
            assert_eq!(
                add(Some(bad), "x").unwrap_err(),
                "Session name must be 1 to 100 printable characters"
            );
        }
        assert!(add(Some("a\nb"), "x").unwrap_err().ends_with(" characters, without U+000A"));
        assert!(add(Some("fix IT"), "x").unwrap_err().contains("exists already"));
        assert_eq!(delete(metadata, &"s3".into()).unwrap().name, "duck-2");
        let next = add_session(metadata, "/a", None, false, fresh("s6")).unwrap();
        assert_eq!(next.session.name, "duck-5", "duck-4 is in use");
    }

    #[test]
    fn what_a_deleted_session_was_another_of_its_workspace_becomes() {
        let mut metadata = two_repositories();
        let metadata = Arc::make_mut(&mut metadata);
        add_session(metadata, "/a", None, false, fresh("s3")).unwrap();
        delete(metadata, &"s1".into()).unwrap();
        assert_eq!(active(metadata).unwrap().id.as_str(), "s3");
        assert_eq!(metadata.workspaces[0].last_active_session_id, Some("s3".into()));
        delete(metadata, &"s3".into()).unwrap();
        assert_eq!(metadata.active_voice_session_id, None);
        assert_eq!((metadata.workspaces.len(), metadata.sessions.len()), (2, 1));
        assert!(delete(metadata, &"s3".into()).is_none());
    }

    #[test]
    fn activating_says_whether_anything_is_different() {
        let mut metadata = two_repositories();
        let (data, changed) = activate(&mut metadata, "s2").unwrap();
        assert_eq!((data.session.id.as_str(), data.workspace.path.as_str()), ("s2", "/b"));
        assert!(changed);
        assert!(!activate(&mut metadata, "s2").unwrap().1);
        Arc::make_mut(&mut metadata).workspaces.clear();
        let refused = activate(&mut metadata, "s2").unwrap_err();
        assert_eq!(refused.to_string(), "Workspace not found for session: s2");
    }
}
