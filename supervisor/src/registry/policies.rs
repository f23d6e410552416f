//! Sandbox policy of a session, resolved from the configuration, its workspace and the session. Also the changes of a
//! session that clients ask for.
//!
//! Rules of hosts and searches of the web change at once. Other changes apply to workers that start later: a running one
//! is replaced when nothing runs in it ([`crate::session::worker`]).

use super::Registry;
use super::host_rules::rules_of;
use super::saves::{Saved, kept};
use crate::errors::MethodError;
use crate::session::actors::SessionActors;
use crate::session::agent::AgentChoice;
use actix::prelude::*;
use quackd_config::{Origin, SandboxSettings};
use quackd_policy::MAX_ROOTS;
use quackd_policy::hosts::SessionRules;
use quackd_protocol::approval::{ApprovalKind, Decision, Scope, ScopedGrant};
use quackd_protocol::client::{PolicyLayers, PolicyScope};
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
    /// Allow these rules of hosts, and turn the network from off to hosts.
    Allow { scope: PolicyScope, rules: Vec<String>, client: String },
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
        let ChangeSession { session, change } = msg;
        match self.change_session(&session, change, ctx) {
            Ok((found, saved)) => Box::pin(async move { kept(saved).await.map(|()| found) }),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

impl Registry {
    fn change_session(
        &mut self,
        session: &SessionId,
        change: SessionChange,
        ctx: &mut Context<Self>,
    ) -> Result<(FoundPolicy, Option<Saved>), MethodError> {
        if self.draining {
            return Err(MethodError::ShuttingDown);
        }
        let known = self.metadata.sessions.iter().find(|known| known.id == *session).cloned();
        let session = known.ok_or_else(|| MethodError::SessionNotFound(session.0.clone()))?;

        let change = match change {
            SessionChange::Policy(change) => change,
            SessionChange::Grants(change) => {
                // A refused change must leave nothing behind.
                let before = Arc::clone(&self.state);
                let is_for_all = matches!(
                    change,
                    GrantChange::Revoke { .. }
                        | GrantChange::Allow { scope: PolicyScope::Always, .. }
                        | GrantChange::Answer { scope: PolicyScope::Always, .. }
                );
                // The policy is checked with the new grants, because their directories are added to
                // it.
                let changed = self
                    .change_grants(&session, change)
                    .and_then(|changed| self.check(&self.policy_of(&session)).map(|()| changed));
                let changed = changed.inspect_err(|_| self.state = before)?;
                // In force before the save, like a policy.
                let workspace = Some(&session.workspace_id).filter(|_| !is_for_all);
                self.tell_policies(workspace);
                return Ok((self.policy_of(&session), self.keep(changed, ctx)));
            }
            SessionChange::SafeMode(is_safe) => {
                let changed = self.change_state(&session.id, |state| state.safe_mode = is_safe);
                self.tell_policy(&session.id);
                return Ok((self.policy_of(&session), self.keep(changed, ctx)));
            }
            SessionChange::Agent(change) => {
                let changed = self.change_agent(&session.id, change);
                self.tell_policy(&session.id);
                return Ok((self.policy_of(&session), self.keep(changed, ctx)));
            }
            SessionChange::Isolated(copied) => {
                let changed = self.change_state(&session.id, |state| state.isolated = Some(copied));
                return Ok((self.policy_of(&session), self.keep(changed, ctx)));
            }
            SessionChange::Pinned(pinned) => {
                let changed = self.change_state(&session.id, |state| state.pinned = pinned);
                // In force before the save: an eviction must not end the session's processes now. A failed save takes
                // the change back and publishes the pins again.
                self.tell_pins();
                return Ok((self.policy_of(&session), self.keep(changed, ctx)));
            }
        };

        // A refused change must leave nothing behind.
        let before = Arc::clone(&self.state);
        let changed = match change.scope {
            PolicyScope::Always => return Err(MethodError::PolicyOfAll),
            PolicyScope::Session => self.change_state(&session.id, |state| {
                state.policy = apply(std::mem::take(&mut state.policy), change.reset, change.patch);
            }),
            PolicyScope::Workspace => {
                self.change_workspace_policy(&session.workspace_id, change.reset, change.patch)
            }
        };

        let found = self.policy_of(&session);
        if let Err(error) = self.check(&found) {
            self.state = before;
            return Err(error);
        }

        // In force before the save: a narrower policy must apply at once. If the save fails, the workers get the old
        // policy again.
        self.tell_policies(Some(&session.workspace_id));
        Ok((found, self.keep(changed, ctx)))
    }

    /// Rejects a policy that cannot be enforced.
    fn check(&self, found: &FoundPolicy) -> Result<(), MethodError> {
        let home = self.services.daemon.user_home.as_path();
        let state_dir = self.services.daemon.home.dir();
        quackd_policy::check_confinement(&found.layers)
            .and_then(|()| quackd_policy::validate(&found.policy, home, state_dir))
            .map_err(MethodError::Policy)
    }

    fn change_workspace_policy(
        &mut self,
        workspace: &WorkspaceId,
        reset: bool,
        patch: PolicyPatch,
    ) -> bool {
        let workspaces = &mut Arc::make_mut(&mut self.state).workspaces;
        let mut state = workspaces.remove(workspace).unwrap_or_default();

        let before = state.clone();
        state.policy = apply(std::mem::take(&mut state.policy), reset, patch);
        let changed = state != before;
        // The state contains only workspaces that differ from the default.
        if state != WorkspaceState::default() {
            workspaces.insert(workspace.clone(), state);
        }
        changed
    }

    /// Resolves the policy of a session now. Does not read the disk.
    pub(super) fn policy_of(&self, session: &Session) -> FoundPolicy {
        policy_of(&self.state, &self.services.daemon.config.sandbox, session)
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
        let known = self.metadata.sessions.iter().find(|known| known.id == *session);
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

/// Resolves the policy of a session from the configuration, its workspace and the session itself.
pub(super) fn policy_of(
    state: &DaemonState,
    settings: &SandboxSettings,
    session: &Session,
) -> FoundPolicy {
    let workspace = state.workspaces.get(&session.workspace_id);
    let own = state.sessions.get(&session.id).cloned().unwrap_or_default();
    let layers = PolicyLayers {
        configuration: settings.patch(),
        workspace: workspace.map(|state| state.policy.clone()).unwrap_or_default(),
        session: own.policy,
        safe_mode: own.safe_mode,
    };

    let mut policy = quackd_policy::resolve_layers(layers.clone());
    let grants = grants_of(state, session);
    for ScopedGrant { grant, .. } in &grants {
        let directory = PathBuf::from(&grant.target);
        let is_new = grant.kind == ApprovalKind::Write
            && grant.decision == Decision::Allow
            && policy.writable_roots.len() < MAX_ROOTS
            && !policy.writable_roots.contains(&directory);
        if is_new {
            policy.writable_roots.push(directory);
        }
    }

    let mut rules = rules_of(&policy, &layers, state, &session.id, &session.workspace_id);
    // A network that is off only by default does not count: the proxy may then ask the user.
    let is_set = settings.network.origin != Origin::Default
        || layers.workspace.network.or(layers.session.network).is_some();
    rules.set_off(is_set && policy.network_mode() == NetworkMode::Off);
    FoundPolicy { policy, layers, rules, grants }
}

fn grants_of(state: &DaemonState, session: &Session) -> Vec<ScopedGrant> {
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

fn apply(before: PolicyPatch, reset: bool, patch: PolicyPatch) -> PolicyPatch {
    let below = if reset { PolicyPatch::default() } else { before };
    PolicyPatch {
        profile: patch.profile.or(below.profile),
        network: patch.network.or(below.network),
        web_search: patch.web_search.or(below.web_search),
        hosts: patch.hosts.or(below.hosts),
        writable_roots: patch.writable_roots.or(below.writable_roots),
        hidden: patch.hidden.or(below.hidden),
    }
}
