//! Restrictions of deleted sessions and workspaces.
//!
//! The other program that writes the metadata may restore a session from an old copy. The restored session must not
//! have more rights than before. Pure. Called by the registry at deletions, and by the supervisor at the start.

use quackd_protocol::metadata::Metadata;
use quackd_protocol::state::{DaemonState, SessionState, WorkspaceState};
use quackd_protocol::{SessionId, WorkspaceId};
use std::collections::{BTreeMap, HashSet};

/// Maximum number of deleted sessions that are kept, and of workspaces. Beyond it, arbitrary older entries are dropped.
const MAX_REMEMBERED: usize = 1024;

/// Records the deletion of a session. Drops older entries only if `metadata` contains every existing session.
pub fn session_gone(
    state: &mut DaemonState,
    metadata: &Metadata,
    id: &SessionId,
    are_all_known: bool,
) {
    match state.sessions.get(id).and_then(SessionState::limits) {
        Some(limits) => drop(state.sessions.insert(id.clone(), limits)),
        None => drop(state.sessions.remove(id)),
    }

    // Otherwise a session of the file that was not read yet would lose its restrictions here.
    if are_all_known {
        trim_sessions(state, metadata, |gone| gone == id);
    }
}

/// Reduces the state of sessions that are not in `metadata` to their restrictions. `is_newest` selects the sessions that
/// were just deleted.
pub fn trim_sessions(
    state: &mut DaemonState,
    metadata: &Metadata,
    is_newest: impl Fn(&SessionId) -> bool,
) {
    let known: HashSet<_> = metadata.sessions.iter().map(|session| &session.id).collect();
    trim(&mut state.sessions, |id| known.contains(id), SessionState::limits, is_newest);
}

/// Like [`trim_sessions`], for workspaces.
pub fn trim_workspaces(
    state: &mut DaemonState,
    metadata: &Metadata,
    is_newest: impl Fn(&WorkspaceId) -> bool,
) {
    let known: HashSet<&WorkspaceId> =
        metadata.workspaces.iter().map(|workspace| &workspace.id).collect();
    trim(&mut state.workspaces, |id| known.contains(id), WorkspaceState::limits, is_newest);
}

fn trim<K: Ord + Clone, V>(
    entries: &mut BTreeMap<K, V>,
    exists: impl Fn(&K) -> bool,
    limits: impl Fn(&V) -> Option<V>,
    is_newest: impl Fn(&K) -> bool,
) {
    // The state of an existing entry stays whole; one of a deleted entry is reduced to its limits,
    // and goes if it has none.
    entries.retain(|id, entry| match limits(entry).filter(|_| !exists(id)) {
        Some(limits) => {
            *entry = limits;
            true
        }
        None => exists(id),
    });

    // The newest come first, so that the limit removes older ones.
    let gone = entries.keys().filter(|id| !exists(id));
    let (newest, others): (Vec<&K>, Vec<&K>) = gone.partition(|id| is_newest(id));
    let surplus: Vec<K> = newest.into_iter().chain(others).skip(MAX_REMEMBERED).cloned().collect();

    for id in surplus {
        entries.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::policy::{NetworkMode, PolicyPatch, Profile, WebSearchRule};
    use serde_json::json;

    fn metadata(sessions: &[&str], workspaces: &[&str]) -> Metadata {
        let session = |id: &&str| json!({"id": id, "workspaceId": "w", "name": ""});
        let workspace = |id: &&str| json!({"id": id, "path": format!("/{id}")});
        serde_json::from_value(json!({
            "version": 1,
            "sessions": sessions.iter().map(session).collect::<Vec<_>>(),
            "workspaces": workspaces.iter().map(workspace).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    fn only(profile: Profile) -> PolicyPatch {
        PolicyPatch { profile: Some(profile), ..PolicyPatch::default() }
    }

    #[test]
    fn of_a_workspace_that_is_gone_what_limits_stays_and_what_allows_more_does_not() {
        let open = PolicyPatch {
            profile: Some(Profile::FullAccess),
            network: Some(NetworkMode::On),
            web_search: Some(WebSearchRule::On),
            hosts: Some(vec!["a.example".into()]),
            writable_roots: Some(vec!["/data".into()]),
            hidden: Some(vec!["/secret".into()]),
        };
        let closed = PolicyPatch {
            network: Some(NetworkMode::Off),
            writable_roots: Some(vec![]),
            ..only(Profile::ReadOnly)
        };
        let of = |policy: &PolicyPatch| WorkspaceState {
            policy: policy.clone(),
            ..WorkspaceState::default()
        };
        let mut state = DaemonState::default();
        for (id, policy) in [
            ("here", &open),
            ("open", &open),
            ("closed", &closed),
            ("wide", &only(Profile::FullAccess)),
        ] {
            state.workspaces.insert(id.into(), of(policy));
        }
        trim_workspaces(&mut state, &metadata(&[], &["here"]), |_| false);
        let hidden = PolicyPatch { hidden: open.hidden.clone(), ..PolicyPatch::default() };
        let expected = [("closed", closed), ("here", open), ("open", hidden)];
        let expected = expected.map(|(id, policy)| (id.into(), of(&policy)));
        assert_eq!(state.workspaces, BTreeMap::from(expected));
    }

    #[test]
    fn while_it_is_not_certain_which_sessions_exist_only_the_one_that_went_loses_something() {
        let pinned = SessionState { safe_mode: true, pinned: true, ..SessionState::default() };
        let state = |are_all_known: bool| {
            let mut state = DaemonState::default();
            for id in ["gone", "lost"] {
                state.sessions.insert(id.into(), pinned.clone());
            }
            session_gone(&mut state, &metadata(&[], &[]), &"gone".into(), are_all_known);
            ["gone", "lost"].map(|id| state.sessions[&id.into()].pinned)
        };
        assert_eq!([state(true), state(false)], [[false, false], [false, true]]);
    }

    #[test]
    fn so_many_are_remembered_and_what_has_just_gone_before_others() {
        let mut state = DaemonState::default();
        let safe = SessionState { safe_mode: true, restarts: 3, ..SessionState::default() };
        for n in 0..MAX_REMEMBERED + 10 {
            state.sessions.insert(format!("s{n:05}").as_str().into(), safe.clone());
            let policy = only(Profile::ReadOnly);
            let workspace = WorkspaceState { policy, ..WorkspaceState::default() };
            state.workspaces.insert(format!("w{n:05}").as_str().into(), workspace);
        }
        // Last in the order, so it is dropped first.
        let (newest, here): (SessionId, SessionId) = ("z".into(), "here".into());
        let policy = only(Profile::ReadOnly);
        let safe_workspace = WorkspaceState { policy, ..WorkspaceState::default() };
        let left: [WorkspaceId; 2] = ["y".into(), "z".into()];
        for id in &left {
            state.workspaces.insert(id.clone(), safe_workspace.clone());
        }
        state.sessions.insert(newest.clone(), safe.clone());
        state.sessions.insert(here.clone(), safe.clone());
        state.sessions.insert("free".into(), SessionState { restarts: 9, ..Default::default() });
        let metadata = metadata(&["here"], &[]);
        trim_sessions(&mut state, &metadata, |id| *id == newest);
        trim_workspaces(&mut state, &metadata, |id| left.contains(id));
        assert_eq!(state.workspaces.len(), MAX_REMEMBERED);
        assert_eq!(
            [&state.workspaces[&left[0]], &state.workspaces[&left[1]]],
            [&safe_workspace; 2]
        );
        assert_eq!(state.sessions.len(), MAX_REMEMBERED + 1, "and the one that exists");
        assert_eq!(state.sessions[&here], safe);
        assert_eq!(Some(state.sessions[&newest].clone()), safe.limits());
        let before = state.clone();
        trim_sessions(&mut state, &metadata, |id| *id == newest);
        assert_eq!(state, before);
        // More deletions at once than entries are kept.
        state.workspaces.insert("zz".into(), safe_workspace);
        trim_workspaces(&mut state, &metadata, |_| true);
        assert_eq!(state.workspaces.len(), MAX_REMEMBERED);
    }
}
