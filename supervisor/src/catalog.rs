//! Workspaces and sessions in memory: pure changes and look-ups on the metadata.
//!
//! The [`crate::registry`] owns the one instance and decides when a change is durable. Times and ids
//! come in as arguments.

use crate::errors::MethodError;
use quackd_protocol::client::{AttachData, AttachedSession, AttachedWorkspace};
use quackd_protocol::limits::MAX_SESSIONS;
use quackd_protocol::metadata::{Metadata, Session, Workspace};
use quackd_protocol::{SessionId, WorkspaceId};
use serde_json::Map;
use std::collections::HashMap;

/// What a new session needs from outside.
#[derive(Debug, Clone)]
pub(crate) struct Fresh {
    /// A new session id.
    pub(crate) session_id: SessionId,
    /// Now, whole seconds, ISO 8601 UTC.
    pub(crate) now: String,
}

/// Which sessions to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Every session.
    All,
    /// Those of one workspace id; none if it is unknown.
    Workspace(String),
    /// Those of the active session's workspace, or all if no session is active.
    Active,
}

/// The session whose id is exactly `reference`, else the one with that name, else the one whose name
/// begins so; names ignore case and must be unambiguous.
pub(crate) fn find<'a>(metadata: &'a Metadata, reference: &str) -> Option<&'a Session> {
    if let Some(exact) = metadata.sessions.iter().find(|s| s.id.as_str() == reference) {
        return Some(exact);
    }
    let wanted = reference.to_lowercase();
    only(metadata.sessions.iter().filter(|s| s.name.to_lowercase() == wanted)).or_else(|| {
        only(metadata.sessions.iter().filter(|s| s.name.to_lowercase().starts_with(&wanted)))
    })
}

fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// The active session, unless its id is stale.
pub(crate) fn active(metadata: &Metadata) -> Option<&Session> {
    let id = metadata.active_voice_session_id.as_ref()?;
    metadata.sessions.iter().find(|s| s.id == *id)
}

/// The workspace of a session.
pub(crate) fn workspace_of<'a>(metadata: &'a Metadata, session: &Session) -> Option<&'a Workspace> {
    metadata.workspaces.iter().find(|w| w.id == session.workspace_id)
}

/// Notes that a session did something at `now`.
pub(crate) fn touch(metadata: &mut Metadata, id: &SessionId, now: String) {
    if let Some(session) = metadata.sessions.iter_mut().find(|s| s.id == *id) {
        session.last_active_at = now;
    }
}

/// Every workspace's path by its id, for lists.
pub(crate) fn paths(metadata: &Metadata) -> HashMap<&WorkspaceId, &str> {
    metadata.workspaces.iter().map(|w| (&w.id, w.path.as_str())).collect()
}

/// The sessions of a selection, in stored order.
pub(crate) fn select<'a>(
    metadata: &'a Metadata,
    selection: &'a Selection,
) -> impl Iterator<Item = &'a Session> {
    let workspace = match selection {
        Selection::All => None,
        Selection::Workspace(id) => Some(id.as_str()),
        Selection::Active => active(metadata).map(|s| s.workspace_id.as_str()),
    };
    metadata.sessions.iter().filter(move |s| workspace.is_none_or(|w| s.workspace_id.as_str() == w))
}

/// Finds or makes the workspace at `path` and its session, and makes it the active one if asked.
/// Returns the answer and whether `metadata` was changed.
///
/// The session is the one that was last active in that workspace, else its first one.
pub(crate) fn attach(
    metadata: &mut Metadata,
    path: &str,
    activate: bool,
    fresh: Fresh,
) -> Result<(AttachData, bool), MethodError> {
    let mut changed = false;
    if !metadata.workspaces.iter().any(|w| w.path == path) {
        room_for_one_more(metadata)?;
        metadata.workspaces.push(Workspace {
            id: WorkspaceId(quackd_home::workspace_id(path)),
            path: path.to_owned(),
            created_at: fresh.now.clone(),
            last_active_session_id: None,
            other: Map::new(),
        });
        changed = true;
    }
    // Present by now: it was there or was pushed above.
    let Some(workspace) = metadata.workspaces.iter_mut().find(|w| w.path == path) else {
        return Err(MethodError::WorkspaceUnknown);
    };
    let of_workspace = |s: &&Session| s.workspace_id == workspace.id;
    let known = metadata
        .sessions
        .iter()
        .filter(of_workspace)
        .find(|s| Some(&s.id) == workspace.last_active_session_id.as_ref())
        .or_else(|| metadata.sessions.iter().find(of_workspace))
        .map(|s| AttachedSession { id: s.id.clone(), name: s.name.clone() });
    let session = match known {
        Some(session) => session,
        None => {
            let made = new_session(&metadata.sessions, &workspace.id, fresh)?;
            let attached = AttachedSession { id: made.id.clone(), name: made.name.clone() };
            metadata.sessions.push(made);
            changed = true;
            attached
        }
    };
    if activate {
        let id = Some(session.id.clone());
        changed |= workspace.last_active_session_id != id || metadata.active_voice_session_id != id;
        workspace.last_active_session_id.clone_from(&id);
        metadata.active_voice_session_id = id;
    }
    let workspace = AttachedWorkspace { id: workspace.id.clone(), path: workspace.path.clone() };
    Ok((AttachData { workspace, session }, changed))
}

fn new_session(
    sessions: &[Session],
    workspace_id: &WorkspaceId,
    fresh: Fresh,
) -> Result<Session, MethodError> {
    if MAX_SESSIONS <= sessions.len() {
        return Err(MethodError::TooManySessions(sessions.len()));
    }
    let n = sessions.iter().filter(|s| s.workspace_id == *workspace_id).count() + 1;
    Ok(Session {
        id: fresh.session_id,
        workspace_id: workspace_id.clone(),
        name: format!("duck-{n}"),
        pi_session_file: String::new(),
        created_at: fresh.now.clone(),
        last_active_at: fresh.now,
        is_voice_active: false,
        other: Map::new(),
    })
}

fn room_for_one_more(metadata: &Metadata) -> Result<(), MethodError> {
    let n = metadata.sessions.len().max(metadata.workspaces.len());
    if MAX_SESSIONS <= n { Err(MethodError::TooManySessions(n)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(id: &str) -> Fresh {
        Fresh { session_id: id.into(), now: "2026-01-01T00:00:00Z".into() }
    }

    fn two_repositories() -> Metadata {
        let mut metadata = Metadata::default();
        attach(&mut metadata, "/a", true, fresh("s1")).unwrap();
        attach(&mut metadata, "/b", false, fresh("s2")).unwrap();
        metadata
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
        let mut second = metadata.sessions[0].clone();
        second.id = "s9".into();
        metadata.sessions.push(second);
        metadata.workspaces[0].last_active_session_id = Some("s9".into());
        let (data, _) = attach(&mut metadata, "/a", false, fresh("x")).unwrap();
        assert_eq!(data.session.id.as_str(), "s9");
        metadata.workspaces[0].last_active_session_id = Some("gone".into());
        let (data, _) = attach(&mut metadata, "/a", false, fresh("x")).unwrap();
        assert_eq!(data.session.id.as_str(), "s1");
    }

    #[test]
    fn references_are_ids_then_names_then_prefixes_and_never_ambiguous() {
        let mut metadata = two_repositories();
        metadata.sessions[1].name = "Feature".into();
        let id = |reference| find(&metadata, reference).map(|s| s.id.as_str());
        assert_eq!(id("s2"), Some("s2"));
        assert_eq!(id("S2"), None);
        assert_eq!(id("duck-1"), Some("s1"));
        assert_eq!(id("DUCK"), Some("s1"));
        assert_eq!(id("feat"), Some("s2"));
        assert_eq!(id("nobody"), None);
        metadata.sessions[1].name = "duck-1".into();
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
        metadata.active_voice_session_id = Some("stale".into());
        assert_eq!(ids(&metadata, Selection::Active), ["s1", "s2"]);
    }

    #[test]
    fn a_full_catalog_refuses_new_sessions_and_keeps_serving_known_ones() {
        let mut metadata = two_repositories();
        let template = metadata.sessions[0].clone();
        metadata.sessions.resize(MAX_SESSIONS, template);
        let before = metadata.clone();
        let refused = attach(&mut metadata, "/new", true, fresh("x"));
        assert!(matches!(refused, Err(MethodError::TooManySessions(_))));
        assert_eq!(metadata, before);
        attach(&mut metadata, "/a", true, fresh("x")).unwrap();
    }
}
