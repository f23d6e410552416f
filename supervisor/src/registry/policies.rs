//! Sandbox policy of a session, resolved from the configuration, its workspace and the session. Also the changes of a
//! session that clients ask for.
//!
//! Rules of hosts and searches of the web change at once. Other changes apply to workers that start later: a running one
//! is replaced when nothing runs in it ([`crate::session::worker`]).

use super::Registry;
use super::catalog;
use super::host_rules::rules_of;
use super::saves::{Changed, after_save};
use crate::errors::MethodError;
use crate::session::actors::SessionActors;
use crate::session::agent::AgentChoice;
use actix::prelude::*;
use quackd_config::{Origin, SandboxSettings};
use quackd_policy::MAX_ROOTS;
use quackd_policy::hosts::SessionRules;
use quackd_protocol::approval::{ApprovalKind, Decision, Scope, ScopedGrant};
use quackd_protocol::client::{PolicyLayers, PolicyScope};
use quackd_protocol::credentials::CredentialUse;
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::metadata::{Session, Shared};
use quackd_protocol::policy::{NetworkMode, Policy, PolicyPatch};
use quackd_protocol::state::{DaemonState, WorkspaceState};
use quackd_protocol::{SessionId, WorkspaceId};
use std::path::PathBuf;
use std::sync::Arc;

/// Change of the policy of a session or of its workspace.
#[derive(Debug)]
pub(crate) struct PolicyChange {
    pub(crate) scope: PolicyScope,
    /// Removes earlier settings.
    pub(crate) reset: bool,
    /// New settings.
    pub(crate) patch: PolicyPatch,
}

/// Change of grants.
#[derive(Debug)]
pub(crate) enum GrantChange {
    /// Allow these rules of hosts, and turn the network from off to hosts. And decide about these uses of credentials.
    Allow {
        scope: PolicyScope,
        rules: Vec<String>,
        credentials: Vec<(Decision, CredentialUse)>,
        client: String,
    },
    /// Keep an answer of the user.
    Answer {
        kind: ApprovalKind,
        target: String,
        decision: Decision,
        scope: PolicyScope,
        client: String,
    },
    /// Remove the grants with these ids, and the rules with these texts, from grants and policies.
    Revoke { ids_or_rules: Vec<String> },
}

/// Change a session. Answered with its policy.
#[derive(Debug, Message)]
#[rtype(result = "Result<FoundPolicy, MethodError>")]
pub(crate) struct ChangeSession {
    pub(crate) session: SessionId,
    pub(crate) change: SessionChange,
}

/// See [`ChangeSession`].
#[derive(Debug)]
pub(crate) enum SessionChange {
    Policy(PolicyChange),
    /// Grants of the user.
    Grants(GrantChange),
    /// Exempt the session's processes from eviction, or not.
    Pinned(bool),
    /// Begin or end safe mode.
    SafeMode(bool),
    /// The user's choice of the agent and its model.
    Agent(AgentChange),
    /// The private copy of the session was made again.
    Isolated(CopiedTree),
}

/// Change of a session's agent. `Some(None)` sets the default.
#[derive(Debug, Default)]
pub(crate) struct AgentChange {
    pub(crate) engine: Option<Option<String>>,
    pub(crate) model: Option<Option<String>>,
    /// The file with the conversation.
    pub(crate) file: Option<String>,
}

/// Policy of a session.
#[derive(Debug)]
pub(crate) struct FoundPolicy {
    pub(crate) policy: Policy,
    pub(crate) layers: PolicyLayers,
    /// Rules for the session's proxy.
    pub(crate) rules: SessionRules,
    /// Answers of the user that hold for the session.
    pub(crate) grants: Vec<ScopedGrant>,
}

impl Handler<ChangeSession> for Registry {
    type Result = ResponseFuture<Result<FoundPolicy, MethodError>>;

    fn handle(&mut self, msg: ChangeSession, ctx: &mut Self::Context) -> Self::Result {
        Box::pin(after_save(self.change_session(msg, ctx)))
    }
}

impl Registry {
    fn change_session(
        &mut self,
        ChangeSession { session, change }: ChangeSession,
        ctx: &mut Context<Self>,
    ) -> Changed<FoundPolicy> {
        if self.draining {
            return Err(MethodError::ShuttingDown);
        }
        let known = catalog::by_id(&self.metadata, &session).cloned();
        let session = known.ok_or(MethodError::SessionNotFound(session.0))?;
        let path = catalog::path_of(&self.metadata, &session);
        let isolated = self.state.sessions.get(&session.id).and_then(|it| it.isolated.as_ref());
        if FarWorkspace::of_session(path, isolated).is_some() {
            check_far(&change)?;
        }

        // All are in force before the save: a narrower policy must apply at once, and an eviction must not end the
        // processes of a pinned session now. A failed save takes the change back and publishes the earlier state.
        let changed = match change {
            SessionChange::Policy(change) => {
                let change = |registry: &mut Self| registry.change_policy(&session, change);
                let changed = self.try_change(&session, change)?;
                self.tell_policies(Some(&session.workspace_id));
                changed
            }
            SessionChange::Grants(change) => {
                let is_for_all = matches!(
                    change,
                    GrantChange::Revoke { .. }
                        | GrantChange::Allow { scope: PolicyScope::Always, .. }
                        | GrantChange::Answer { scope: PolicyScope::Always, .. }
                );
                let change = |registry: &mut Self| registry.change_grants(&session, change);
                let changed = self.try_change(&session, change)?;
                self.tell_policies(Some(&session.workspace_id).filter(|_| !is_for_all));
                changed
            }
            SessionChange::SafeMode(is_safe) => {
                let changed = self.change_state(&session.id, |state| state.safe_mode = is_safe);
                self.tell_policy(&session.id);
                changed
            }
            SessionChange::Agent(change) => {
                let changed = self.change_agent(&session.id, change);
                self.tell_policy(&session.id);
                changed
            }
            SessionChange::Isolated(copied) => {
                self.change_state(&session.id, |state| state.isolated = Some(copied))
            }
            SessionChange::Pinned(pinned) => {
                let changed = self.change_state(&session.id, |state| state.pinned = pinned);
                self.tell_pins();
                changed
            }
        };
        Ok((self.policy_of(&session), self.keep(changed, ctx)))
    }

    /// Makes a change, and checks the session's policy with it. A refused change leaves nothing behind.
    fn try_change(
        &mut self,
        session: &Session,
        change: impl FnOnce(&mut Self) -> Result<bool, MethodError>,
    ) -> Result<bool, MethodError> {
        let before = Arc::clone(&self.state);
        change(self)
            .and_then(|changed| self.check(&self.policy_of(session)).map(|()| changed))
            .inspect_err(|_| self.state = before)
    }

    /// Changes the policy of a session or of its workspace. Returns whether it differs.
    fn change_policy(
        &mut self,
        session: &Session,
        PolicyChange { scope, reset, patch }: PolicyChange,
    ) -> Result<bool, MethodError> {
        let change = |policy: &mut PolicyPatch| {
            let below = if reset { PolicyPatch::default() } else { std::mem::take(policy) };
            *policy = layered(patch, below);
        };
        match scope {
            PolicyScope::Always => Err(MethodError::PolicyOfAll),
            PolicyScope::Session => {
                Ok(self.change_state(&session.id, |state| change(&mut state.policy)))
            }
            PolicyScope::Workspace => {
                let workspaces = &mut Arc::make_mut(&mut self.state).workspaces;
                let mut state = workspaces.remove(&session.workspace_id).unwrap_or_default();

                let before = state.clone();
                change(&mut state.policy);
                let changed = state != before;
                // The state contains only workspaces that differ from the default.
                if state != WorkspaceState::default() {
                    workspaces.insert(session.workspace_id.clone(), state);
                }
                Ok(changed)
            }
        }
    }

    /// Rejects a policy that cannot be enforced.
    fn check(&self, found: &FoundPolicy) -> Result<(), MethodError> {
        let home = self.services.daemon.user_home.as_path();
        let state_dir = self.services.daemon.home.dir();
        quackd_policy::check_confinement(&found.layers)
            .and_then(|()| quackd_policy::validate(&found.policy, home, state_dir))
            .map_err(MethodError::Policy)
    }

    /// Resolves the policy of a session now. Does not read the disk.
    pub(super) fn policy_of(&self, session: &Session) -> FoundPolicy {
        let path = catalog::path_of(&self.metadata, session);
        policy_of(&self.state, &self.services.daemon.config.sandbox, session, path)
    }

    /// Sends the policy and the choice of the agent to the actors of a workspace's sessions, or of all sessions.
    pub(super) fn tell_policies(&self, workspace: Option<&WorkspaceId>) {
        let concerned =
            |session: &&Shared<Session>| workspace.is_none_or(|id| session.workspace_id == *id);
        for session in self.metadata.sessions.iter().filter(concerned) {
            if let Some(actors) = self.actors.get(&session.id) {
                self.tell(&actors, session);
            }
        }
    }

    /// Sends the policy and the choice of the agent to the actors of one session.
    pub(super) fn tell_policy(&self, session: &SessionId) {
        let known = catalog::by_id(&self.metadata, session);
        if let (Some(session), Some(actors)) = (known, self.actors.get(session)) {
            self.tell(&actors, session);
        }
    }

    fn tell(&self, actors: &SessionActors, session: &Session) {
        let FoundPolicy { policy, rules, layers, .. } = self.policy_of(session);
        let choice = AgentChoice::from(&self.state_of(&session.id));
        actors.set_policy(policy, Arc::new(rules), layers.safe_mode, choice);
    }
}

/// Refuses changes that cannot be enforced on another machine.
fn check_far(change: &SessionChange) -> Result<(), MethodError> {
    match change {
        SessionChange::Policy(PolicyChange { patch, .. }) => {
            let has_hosts = patch.hosts.as_ref().is_some_and(|rules| !rules.is_empty());
            let has_roots = patch.writable_roots.as_ref().is_some_and(|roots| !roots.is_empty());
            if has_hosts || patch.network == Some(NetworkMode::Hosts) {
                return Err(MethodError::FarHosts);
            }
            let has_hidden = patch.hidden.as_ref().is_some_and(|hidden| !hidden.is_empty());
            if has_roots || has_hidden { Err(MethodError::FarPaths) } else { Ok(()) }
        }
        SessionChange::Grants(GrantChange::Allow { rules, .. }) if !rules.is_empty() => {
            Err(MethodError::FarHosts)
        }
        SessionChange::Grants(GrantChange::Allow { credentials, .. })
            if !credentials.is_empty() =>
        {
            Err(MethodError::FarCredentials)
        }
        _ => Ok(()),
    }
}

/// Resolves the policy of a session from the configuration, its workspace, whose path is `path`, and the session itself.
/// On another machine there are no directories of this one, and no proxy for single hosts: their network is then off.
pub(super) fn policy_of(
    state: &DaemonState,
    settings: &SandboxSettings,
    session: &Session,
    path: &str,
) -> FoundPolicy {
    let workspace = state.workspaces.get(&session.workspace_id);
    let own = state.sessions.get(&session.id).cloned().unwrap_or_default();
    let is_far = FarWorkspace::of_session(path, own.isolated.as_ref()).is_some();
    let layers = PolicyLayers {
        configuration: settings.patch(),
        workspace: workspace.map(|state| state.policy.clone()).unwrap_or_default(),
        session: own.policy,
        safe_mode: own.safe_mode,
    };

    let mut policy = quackd_policy::resolve_layers(layers.clone());
    let grants = grants_of(state, session);
    if is_far {
        policy.hosts = None;
        policy.writable_roots.clear();
        policy.hidden.clear();
    }
    for ScopedGrant { grant, .. } in &grants {
        let directory = PathBuf::from(&grant.target);
        let is_new = !is_far
            && grant.kind == ApprovalKind::Write
            && grant.decision == Decision::Allow
            && policy.writable_roots.len() < MAX_ROOTS
            && !policy.writable_roots.contains(&directory);
        if is_new {
            policy.writable_roots.push(directory);
        }
    }

    let mut rules = rules_of(&policy, &layers, &grants, &state.presets);
    // A network that is off only by default does not count: the proxy may then ask the user.
    let is_set = is_far
        || settings.network.origin != Origin::Default
        || layers.workspace.network.or(layers.session.network).is_some();
    rules.set_off(is_set && policy.network_mode() == NetworkMode::Off);
    FoundPolicy { policy, layers, rules, grants }
}

/// Returns the user's grants that hold for a session: its own first, those of all sessions last.
pub(super) fn grants_of(state: &DaemonState, session: &Session) -> Vec<ScopedGrant> {
    let of_session = state.sessions.get(&session.id).map(|state| &state.grants);
    let of_workspace = state.workspaces.get(&session.workspace_id).map(|state| &state.grants);
    let all = [
        (Scope::Session, of_session),
        (Scope::Workspace, of_workspace),
        (Scope::Always, Some(&state.grants)),
    ];

    let scoped = all.into_iter().flat_map(|(scope, grants)| {
        let grants = grants.into_iter().flatten().cloned();
        grants.map(move |grant| ScopedGrant { scope, grant })
    });
    scoped.collect()
}

/// Returns new settings on top of earlier ones.
pub(super) fn layered(patch: PolicyPatch, below: PolicyPatch) -> PolicyPatch {
    PolicyPatch {
        profile: patch.profile.or(below.profile),
        network: patch.network.or(below.network),
        web_search: patch.web_search.or(below.web_search),
        hosts: patch.hosts.or(below.hosts),
        writable_roots: patch.writable_roots.or(below.writable_roots),
        hidden: patch.hidden.or(below.hidden),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_config::Config;
    use quackd_protocol::state::SessionState;
    use serde_json::json;

    #[test]
    fn a_far_session_has_no_single_hosts_and_no_directory_of_this_machine() {
        let session = json!({"id": "s", "workspaceId": "w", "name": "duck-1"});
        let session: Session = serde_json::from_value(session).unwrap();
        let policy = PolicyPatch {
            network: Some(NetworkMode::Hosts),
            hosts: Some(vec!["a.example".to_owned()]),
            writable_roots: Some(vec![PathBuf::from("/srv/x")]),
            ..PolicyPatch::default()
        };
        let mut state = DaemonState::default();
        let own = SessionState { policy: policy.clone(), ..SessionState::default() };
        state.sessions.insert(session.id.clone(), own);

        let settings = Config::default().sandbox;
        let mode_and_roots = |path: &str| {
            let found = policy_of(&state, &settings, &session, path);
            (found.policy.network_mode(), found.policy.writable_roots.len(), found.rules.is_off())
        };
        assert_eq!(mode_and_roots("/w"), (NetworkMode::Hosts, 1, false));
        assert_eq!(mode_and_roots("ssh:build1:/w"), (NetworkMode::Off, 0, true));
    }

    #[test]
    fn what_another_machine_cannot_enforce_is_refused() {
        let policy = |patch| {
            let scope = PolicyScope::Session;
            check_far(&SessionChange::Policy(PolicyChange { scope, reset: false, patch }))
        };
        let network = |mode| PolicyPatch { network: Some(mode), ..PolicyPatch::default() };
        assert!(
            policy(network(NetworkMode::On)).is_ok() && policy(network(NetworkMode::Off)).is_ok()
        );
        assert!(matches!(policy(network(NetworkMode::Hosts)), Err(MethodError::FarHosts)));

        let roots = Some(vec![PathBuf::from("/srv/x")]);
        let roots = PolicyPatch { writable_roots: roots, ..PolicyPatch::default() };
        assert!(matches!(policy(roots), Err(MethodError::FarPaths)));

        let allow = |rules: &[&str]| {
            check_far(&SessionChange::Grants(GrantChange::Allow {
                scope: PolicyScope::Session,
                rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
                credentials: Vec::new(),
                client: String::new(),
            }))
        };
        assert!(matches!(allow(&["a.example"]), Err(MethodError::FarHosts)));
        assert!(check_far(&SessionChange::Pinned(true)).is_ok());
    }
}
