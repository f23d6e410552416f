//! Reads of the registry. A snapshot is one cheap message; everything else runs outside of the actor, and reads the
//! published state of the sessions.

use super::Registry;
use super::catalog::{self, Selection};
use super::labels::{Found, Labels};
use super::mutations::is_own;
use super::policies::{FoundPolicy, policy_of};
use crate::errors::MethodError;
use crate::session::describe::worker_info;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_config::SandboxSettings;
use quackd_home::Workspace;
use quackd_home::keep::Known;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    FindBy, FoundInfo, ProcessState, SessionInfo, WorkerInfo, WorkspaceInfo, WorkspaceSession,
};
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::metadata::{Metadata, Session, Shared};
use quackd_protocol::state::DaemonState;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Take a snapshot of the registry.
#[derive(Debug, Message)]
#[rtype(result = "RegistrySnapshot")]
pub(crate) struct TakeSnapshot;

/// Workspaces and sessions at one moment.
#[derive(Debug)]
pub(crate) struct RegistrySnapshot {
    pub(super) metadata: Arc<Metadata>,
    pub(super) state: Arc<DaemonState>,
}

impl Handler<TakeSnapshot> for Registry {
    type Result = MessageResult<TakeSnapshot>;

    fn handle(&mut self, _: TakeSnapshot, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.snapshot())
    }
}

impl Registry {
    pub(super) fn snapshot(&self) -> RegistrySnapshot {
        RegistrySnapshot { metadata: Arc::clone(&self.metadata), state: Arc::clone(&self.state) }
    }
}

impl RegistrySnapshot {
    /// Returns whether nothing has changed between the two snapshots. Compares the allocations, in
    /// constant time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.metadata, &other.metadata) && Arc::ptr_eq(&self.state, &other.state)
    }

    /// Returns the rows of the `sessions` method, in stored order.
    pub(crate) fn sessions(
        &self,
        selection: &Selection,
        services: &SessionServices,
    ) -> Vec<SessionInfo> {
        let active = catalog::active(&self.metadata).map(|session| &session.id);
        let paths = catalog::paths(&self.metadata);
        let mut labels = Labels::new(&self.metadata, &self.state).all();
        let now = Instant::now();

        let row = |session: &Shared<Session>| {
            let snapshot = services.table.snapshot(&session.id);
            let state = self.state.sessions.get(&session.id);
            let path = paths.get(&session.workspace_id).copied().unwrap_or("unknown");
            SessionInfo {
                id: session.id.clone(),
                name: session.name.clone(),
                label: labels.remove(&session.id).unwrap_or_default(),
                workspace_path: path.to_owned(),
                is_active: Some(&session.id) == active,
                is_running: snapshot.is_running(),
                last_active_at: session.last_active_at.clone(),
                status: snapshot.status(services.table.is_pinned(&session.id), now),
                isolated: state.is_some_and(|state| state.isolated.is_some()),
                place: state
                    .and_then(|state| {
                        FarWorkspace::of(&state.isolated.as_ref()?.sent.as_ref()?.place)
                    })
                    .map(|far| far.place().to_owned()),
            }
        };

        catalog::select(&self.metadata, selection).map(row).collect()
    }

    /// Returns the rows of the `workspaces` method, with their sessions.
    pub(crate) fn workspaces(&self, services: &SessionServices) -> Vec<WorkspaceInfo> {
        let active = catalog::active(&self.metadata).map(|session| &session.id);
        let mut by_workspace: HashMap<_, Vec<_>> = HashMap::new();
        for session in &self.metadata.sessions {
            by_workspace.entry(&session.workspace_id).or_default().push(session);
        }

        let row = |session: &Shared<Session>| WorkspaceSession {
            id: session.id.clone(),
            name: session.name.clone(),
            is_active: Some(&session.id) == active,
            is_running: services.table.snapshot(&session.id).is_running(),
            last_active_at: session.last_active_at.clone(),
        };

        let workspaces = self.metadata.workspaces.iter().map(|workspace| {
            let sessions = by_workspace.remove(&workspace.id).unwrap_or_default();
            WorkspaceInfo {
                id: workspace.id.clone(),
                path: workspace.path.clone(),
                last_active_session_id: workspace.last_active_session_id.clone(),
                session_count: sessions.len(),
                sessions: sessions.into_iter().map(row).collect(),
            }
        });

        workspaces.collect()
    }

    /// Returns the paths of workspaces without sessions.
    pub(crate) fn empty_workspaces(&self) -> HashSet<String> {
        let used: HashSet<_> =
            self.metadata.sessions.iter().map(|session| &session.workspace_id).collect();
        let workspaces = self.metadata.workspaces.iter();
        workspaces
            .filter(|workspace| !used.contains(&workspace.id))
            .map(|workspace| workspace.path.clone())
            .collect()
    }

    /// Returns the number of sessions of all workspaces, whether used or not.
    pub(crate) fn session_count(&self) -> usize {
        self.metadata.sessions.len()
    }

    /// Returns the rows of `quack.ps`, for sessions that were used since the daemon started.
    pub(crate) fn workers(&self, services: &SessionServices) -> Vec<WorkerInfo> {
        let mut labels = Labels::new(&self.metadata, &self.state).all();
        let paths = catalog::paths(&self.metadata);

        let row = |session: &Shared<Session>| {
            let snapshot = services.table.get(&session.id)?.snapshot();
            let path = paths.get(&session.workspace_id).copied().unwrap_or("unknown");
            let pinned = services.table.is_pinned(&session.id);
            let label = labels.remove(&session.id).unwrap_or_default();
            let isolated = self.state.sessions.get(&session.id).and_then(|it| it.isolated.as_ref());
            Some(WorkerInfo { label, ..worker_info(session, path, isolated, &snapshot, pinned) })
        };

        self.metadata.sessions.iter().filter_map(row).collect()
    }

    /// Returns the sessions and files that garbage collection must keep.
    pub(crate) fn live_set(&self, services: &SessionServices) -> Known {
        let mut known = Known::default();
        for session in &self.metadata.sessions {
            known.sessions.insert(session.id.0.clone());
            let file = Path::new(&session.pi_session_file).file_name();
            known.pi_files.extend(file.map(|name| name.to_string_lossy().into_owned()));
            let workspace = catalog::workspace_of(&self.metadata, session);
            known.workspaces.extend(workspace.map(|workspace| workspace.path.clone()));
        }

        let all = self.metadata.workspaces.iter().map(|workspace| workspace.path.clone());
        known.all_workspaces = all.collect();

        for entry in services.table.all() {
            let (id, worker) = (&entry.id.0, &entry.snapshot().worker);
            if !worker.running().is_none() {
                known.busy.insert(id.clone());
            }

            let child = &worker.process.child;
            if child.state() != ProcessState::Absent || child.monitor_pid.is_some() {
                known.live.insert(id.clone());
            }
        }
        known
    }

    /// Returns the directories that a command of any session may write: all workspaces, and the
    /// directories that policies name.
    pub(crate) fn writable(&self, settings: &SandboxSettings) -> Vec<PathBuf> {
        let workspaces =
            self.metadata.workspaces.iter().map(|workspace| PathBuf::from(&workspace.path));
        let sessions = self.metadata.sessions.iter();
        // A far session has no directory on this machine, and `named` has none of it.
        let workspaces = workspaces.filter(|path| path.is_absolute());
        let paths = catalog::paths(&self.metadata);
        let path =
            |session: &Session| paths.get(&session.workspace_id).copied().unwrap_or_default();
        let named = sessions.flat_map(|session| {
            policy_of(&self.state, settings, session, path(session)).policy.writable_roots
        });
        // A set, because many policies name the same directories.
        let all: BTreeSet<PathBuf> = workspaces.chain(named).collect();
        all.into_iter().collect()
    }

    /// Returns the policy of a session at the moment of the snapshot.
    ///
    /// # Errors
    /// `SessionNotFound` if the session was deleted.
    pub(crate) fn policy(
        &self,
        settings: &SandboxSettings,
        session: &SessionId,
    ) -> Result<FoundPolicy, MethodError> {
        let known = catalog::by_id(&self.metadata, session);
        let known = known.ok_or_else(|| MethodError::SessionNotFound(session.0.clone()))?;
        Ok(policy_of(&self.state, settings, known, catalog::path_of(&self.metadata, known)))
    }

    /// Returns the label of a session. Empty if the session was deleted.
    pub(crate) fn label(&self, session: &SessionId) -> String {
        let known = catalog::by_id(&self.metadata, session);
        known.map(|known| Labels::new(&self.metadata, &self.state).of(known)).unwrap_or_default()
    }

    /// Returns the labels of these sessions, without deleted ones.
    pub(crate) fn labels(&self, ids: &HashSet<SessionId>) -> HashMap<SessionId, String> {
        let labels = Labels::new(&self.metadata, &self.state);
        let sessions = self.metadata.sessions.iter().filter(|session| ids.contains(&session.id));
        sessions.map(|session| (session.id.clone(), labels.of(session))).collect()
    }

    /// Returns the id of the session that a reference means to quackd's own methods.
    ///
    /// # Errors
    /// `SessionNotFound` and `Ambiguous`.
    pub(crate) fn look_up(&self, reference: &str) -> Result<String, MethodError> {
        // Most clients send ids. Labels of all sessions take longer to compute.
        if self.metadata.sessions.iter().any(|session| session.id.0 == reference) {
            return Ok(reference.to_owned());
        }
        Ok(one(&Labels::new(&self.metadata, &self.state), reference, None)?.id.0.clone())
    }

    /// Returns the session that a reference means, else the one of a directory, else the active
    /// one. `directory` also decides between several sessions with the name `reference`. With
    /// `own_only`, a directory means only a session that is not a client's, and the active one is
    /// not used.
    ///
    /// # Errors
    /// As [`RegistrySnapshot::look_up`].
    pub(crate) fn find(
        &self,
        reference: Option<&str>,
        directory: Option<&Workspace>,
        own_only: bool,
    ) -> Result<Option<FoundInfo>, MethodError> {
        let is_wanted = |id: &SessionId| !own_only || is_own(&self.state, id);
        let (metadata, labels) = (&*self.metadata, Labels::new(&self.metadata, &self.state));

        let (session, by) = if let Some(reference) = reference {
            let here = directory.map(|directory| directory.path.as_str());
            (one(&labels, reference, here)?, FindBy::Reference)
        } else if let Some(session) = directory.and_then(|it| of_directory(metadata, it, is_wanted))
        {
            (session, FindBy::Directory)
        } else if let Some(session) = catalog::active(metadata).filter(|_| !own_only) {
            (session, FindBy::Active)
        } else {
            return Ok(None);
        };

        let path = catalog::workspace_of(metadata, session).map(|workspace| workspace.path.clone());
        Ok(Some(FoundInfo {
            session_id: session.id.clone(),
            session_name: session.name.clone(),
            label: labels.of(session),
            workspace_path: path.unwrap_or_else(|| "unknown".to_owned()),
            by,
        }))
    }
}

fn one<'a>(
    labels: &Labels<'a>,
    reference: &str,
    directory: Option<&str>,
) -> Result<&'a Shared<Session>, MethodError> {
    let reference = || reference.to_owned();
    match labels.look_up(&reference(), directory) {
        Found::One(session) => Ok(session),
        Found::Nothing => Err(MethodError::SessionNotFound(reference())),
        Found::Several { labels, has_more } => {
            Err(MethodError::Ambiguous { reference: reference(), labels, has_more })
        }
    }
}

/// Returns the session of the workspace at a directory. Without one, and outside of repositories, the session of the
/// nearest workspace that contains the directory.
fn of_directory<'a>(
    metadata: &'a Metadata,
    directory: &Workspace,
    is_wanted: impl Fn(&SessionId) -> bool,
) -> Option<&'a Shared<Session>> {
    let path = Path::new(&directory.path);
    // A directory in another repository inside of a workspace is another project.
    let levels = if directory.is_repository { 1 } else { usize::MAX };
    // The root contains every directory.
    let above = path.ancestors().take(levels).filter(|above| above.parent().is_some());
    above.filter_map(Path::to_str).find_map(|above| {
        let workspace = metadata.workspaces.iter().find(|workspace| workspace.path == above)?;
        catalog::preferred(metadata, workspace, &is_wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known() -> Metadata {
        serde_json::from_value(json!({
            "version": 1, "activeVoiceSessionId": "i3",
            "workspaces": [{"id": "w1", "path": "/src/app"}, {"id": "w2", "path": "/src/app/sub/lib"},
                {"id": "w3", "path": "/src/web"}, {"id": "w4", "path": "/src/app/none"}, {"id": "w5", "path": "/"}],
            "sessions": [{"id": "i1", "workspaceId": "w1", "name": "duck-1"},
                {"id": "i2", "workspaceId": "w2", "name": "duck-1"}, {"id": "i3", "workspaceId": "w3", "name": "duck-1"},
                {"id": "i5", "workspaceId": "w5", "name": "root"}],
        }))
        .unwrap()
    }

    #[test]
    fn a_reference_counts_before_the_directory_and_the_directory_before_the_active_session() {
        let snapshot = RegistrySnapshot { metadata: Arc::new(known()), state: Arc::default() };
        for (reference, directory, is_repository, expected) in [
            (Some("web"), Some("/src/app"), false, Some(("i3", FindBy::Reference))),
            (Some("duck-1"), Some("/src/app"), false, Some(("i1", FindBy::Reference))),
            (Some("duck-1"), Some("/elsewhere"), false, None),
            (Some("none"), Some("/src/app"), false, None),
            (None, Some("/src/app"), true, Some(("i1", FindBy::Directory))),
            (None, Some("/src/app/sub"), false, Some(("i1", FindBy::Directory))),
            (None, Some("/src/app/none/x"), false, Some(("i1", FindBy::Directory))),
            (None, Some("/src/app/sub"), true, Some(("i3", FindBy::Active))),
            (None, Some("/src/app/sub/lib/x/y"), false, Some(("i2", FindBy::Directory))),
            (None, Some("/src/application"), false, Some(("i3", FindBy::Active))),
            (None, Some("/"), false, Some(("i3", FindBy::Active))),
            (None, None, false, Some(("i3", FindBy::Active))),
        ] {
            let at = directory.map(|path| Workspace {
                path: path.to_owned(),
                foreign: None,
                is_repository,
            });
            let found = snapshot.find(reference, at.as_ref(), false).ok().flatten();
            let found = found.as_ref().map(|found| (found.session_id.as_str(), found.by));
            assert_eq!(found, expected, "{reference:?} {directory:?}");
        }
    }
}
