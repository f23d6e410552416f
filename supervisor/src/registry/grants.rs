//! Answers of the user that are kept: adds and removes grants of a session, of its workspace or of all sessions.

use super::Registry;
use super::host_rules::rule_of;
use super::policies::{FoundPolicy, GrantChange};
use crate::clock::now_text;
use crate::errors::MethodError;
use quackd_policy::hosts::Rule;
use quackd_protocol::approval::{ApprovalKind, Decision, Grant};
use quackd_protocol::client::PolicyScope;
use quackd_protocol::credentials::CredentialUse;
use quackd_protocol::limits::MAX_GRANTS;
use quackd_protocol::metadata::Session;
use quackd_protocol::policy::{NetworkMode, PolicyPatch};
use quackd_protocol::state::DaemonState;
use std::sync::Arc;

/// Most rules that an error names.
const MAX_OTHERS: usize = 8;

impl Registry {
    /// Applies a change in memory. Returns whether anything changed.
    pub(super) fn change_grants(
        &mut self,
        session: &Session,
        change: GrantChange,
    ) -> Result<bool, MethodError> {
        match change {
            GrantChange::Allow { scope, rules, credentials, client } => {
                let mut new = grants_of_rules(&rules, &client)?;
                for (decision, purpose) in credentials {
                    let (kind, client) = (ApprovalKind::Credential, client.clone());
                    new.push(NewGrant { kind, target: purpose.to_string(), decision, client });
                }
                self.add_grants(session, scope, new)?;
                Ok(true)
            }
            GrantChange::Answer { kind, target, decision, scope, client } => {
                let grant = NewGrant { kind, target, decision, client };
                self.add_grants(session, scope, vec![grant])
            }
            GrantChange::Revoke { ids_or_rules } => self.revoke(session, &ids_or_rules),
        }
    }

    /// Adds grants to a scope. Returns whether the grants differ.
    fn add_grants(
        &mut self,
        session: &Session,
        scope: PolicyScope,
        new: Vec<NewGrant>,
    ) -> Result<bool, MethodError> {
        // Only grants that allow: a denied host turns nothing on.
        let allowed_host = (ApprovalKind::Network, Decision::Allow);
        let allows_host = new.iter().any(|grant| (grant.kind, grant.decision) == allowed_host);
        if allows_host {
            self.forget_idle(session);
        }

        let state = Arc::make_mut(&mut self.state);
        let mut number = last_number(state);
        let (grants, _) = of_scope(state, session, scope);
        let mut changed = false;
        for grant in new {
            changed |= add(grants, grant, &mut number)?;
        }
        state.last_grant = number;

        if allows_host {
            self.end_off(session, scope);
        }
        Ok(changed)
    }

    /// Removes the session's own hosts if its network is off. Otherwise the next allowed host would put all in force
    /// again that the user has turned off.
    fn forget_idle(&mut self, session: &Session) {
        if self.policy_of(session).policy.network_mode() != NetworkMode::Off {
            return;
        }
        let is_idle = |grant: &Grant| {
            (grant.kind, grant.decision) == (ApprovalKind::Network, Decision::Allow)
        };
        if let Some(of) = Arc::make_mut(&mut self.state).sessions.get_mut(&session.id) {
            of.grants.retain(|grant| !is_idle(grant));
            if let Some(hosts) = &mut of.policy.hosts {
                hosts.retain(|rule| rule.starts_with('!'));
            }
        }
    }

    /// Turns a network that is off into one limited to hosts, in the scope of a grant, and in the session if its own
    /// setting keeps it off. The workspace's network changes only if it is off: with another one, other sessions of the
    /// workspace would lose hosts.
    fn end_off(&mut self, session: &Session, scope: PolicyScope) {
        for scope in [scope, PolicyScope::Session] {
            let FoundPolicy { policy, layers, .. } = self.policy_of(session);
            let of_workspace = layers.workspace.network.or(layers.configuration.network);
            let is_off = match scope {
                PolicyScope::Workspace => of_workspace.unwrap_or_default() == NetworkMode::Off,
                PolicyScope::Session | PolicyScope::Always => true,
            };

            // Also after the first round: the change of the given scope may suffice.
            if policy.network_mode() != NetworkMode::Off {
                return;
            }

            let (_, patch) = of_scope(Arc::make_mut(&mut self.state), session, scope);
            if let Some(patch) = patch.filter(|_| is_off) {
                patch.network = Some(NetworkMode::Hosts);
            }
        }
    }

    fn revoke(&mut self, session: &Session, ids_or_rules: &[String]) -> Result<bool, MethodError> {
        let state = Arc::make_mut(&mut self.state);
        for id_or_rule in ids_or_rules {
            let normal = normal_form(id_or_rule);
            let rule = normal.as_deref().unwrap_or(id_or_rule);

            // One id or rule may occur in several scopes, and is removed from all.
            let mut found = false;
            for scope in [PolicyScope::Session, PolicyScope::Workspace, PolicyScope::Always] {
                let (grants, policy) = of_scope(state, session, scope);
                let before = grants.len();
                grants.retain(|grant| grant.id != *id_or_rule && rule_of(grant) != rule);
                found |= grants.len() != before;
                if let Some(hosts) = policy.and_then(|policy| policy.hosts.as_mut()) {
                    let before = hosts.len();
                    hosts.retain(|host| {
                        host.parse::<Rule>().map_or(true, |host| host.to_string() != rule)
                    });
                    found |= hosts.len() != before;
                }
            }

            if !found {
                let others = about_same_hosts(state, session, id_or_rule);
                return Err(MethodError::NoSuchRule(
                    id_or_rule.chars().take(100).collect(),
                    others,
                ));
            }
        }
        Ok(true)
    }
}

/// Returns a rule or the use of a credential in normal form. `None` for another text.
fn normal_form(text: &str) -> Option<String> {
    let (mark, purpose) = text.strip_prefix('!').map_or(("", text), |purpose| ("!", purpose));
    match purpose.parse::<CredentialUse>() {
        Ok(purpose) => Some(format!("{mark}{purpose}")),
        Err(_) => text.parse::<Rule>().ok().map(|rule| rule.to_string()),
    }
}

/// Returns the rules of all scopes about the hosts of `rule`, which differ from it in their ports or decision.
fn about_same_hosts(state: &mut DaemonState, session: &Session, rule: &str) -> Vec<String> {
    let Ok(Rule::Host(rule)) = rule.parse::<Rule>() else { return Vec::new() };
    let is_about = |text: &String| match text.parse::<Rule>() {
        Ok(Rule::Host(other)) => other.target == rule.target,
        _ => false,
    };

    let mut others = Vec::new();
    for scope in [PolicyScope::Session, PolicyScope::Workspace, PolicyScope::Always] {
        let (grants, policy) = of_scope(state, session, scope);
        let is_network = |grant: &&Grant| grant.kind == ApprovalKind::Network;
        let of_grants = grants.iter().filter(is_network).map(rule_of);
        let of_policy = policy.and_then(|policy| policy.hosts.clone()).unwrap_or_default();
        for rule in of_grants.chain(of_policy).filter(is_about) {
            if others.len() < MAX_OTHERS && !others.contains(&rule) {
                others.push(rule);
            }
        }
    }
    others
}

/// A new grant without its id.
struct NewGrant {
    kind: ApprovalKind,
    target: String,
    decision: Decision,
    client: String,
}

/// Returns the grants of rules that a client sets for the user.
///
/// # Errors
/// `Policy` if a rule cannot be used.
fn grants_of_rules(rules: &[String], client: &str) -> Result<Vec<NewGrant>, MethodError> {
    quackd_policy::validate_hosts(rules).map_err(MethodError::Policy)?;
    let grant = |rule: Rule| {
        let text = rule.to_string();
        let (target, decision) = match text.strip_prefix('!') {
            Some(target) => (target.to_owned(), Decision::Deny),
            None => (text, Decision::Allow),
        };
        NewGrant { kind: ApprovalKind::Network, target, decision, client: client.to_owned() }
    };
    // The validation has parsed every rule.
    Ok(rules.iter().filter_map(|rule| rule.parse().ok()).map(grant).collect())
}

/// Adds a grant unless an equal one exists. It replaces the opposite decision about the same target. Returns whether
/// anything changed.
fn add(
    grants: &mut Vec<Grant>,
    NewGrant { kind, target, decision, client }: NewGrant,
    number: &mut u64,
) -> Result<bool, MethodError> {
    let is_about = |grant: &Grant| grant.kind == kind && grant.target == target;
    if grants.iter().any(|grant| is_about(grant) && grant.decision == decision) {
        return Ok(false);
    }

    grants.retain(|grant| !is_about(grant));
    if MAX_GRANTS <= grants.len() {
        return Err(MethodError::TooManyGrants);
    }

    *number += 1;
    let (at, client) = (now_text(), Some(client));
    grants.push(Grant { id: format!("g{number}"), kind, target, decision, at, client });
    Ok(true)
}

/// Returns the grants and the policy of a scope. The policy of [`PolicyScope::Always`] is in the
/// configuration, so it is `None`.
fn of_scope<'a>(
    state: &'a mut DaemonState,
    session: &Session,
    scope: PolicyScope,
) -> (&'a mut Vec<Grant>, Option<&'a mut PolicyPatch>) {
    match scope {
        PolicyScope::Session => {
            let of = state.sessions.entry(session.id.clone()).or_default();
            (&mut of.grants, Some(&mut of.policy))
        }
        PolicyScope::Workspace => {
            let of = state.workspaces.entry(session.workspace_id.clone()).or_default();
            (&mut of.grants, Some(&mut of.policy))
        }
        PolicyScope::Always => (&mut state.grants, None),
    }
}

/// Returns the largest number that a grant of the daemon has or had, so that ids are unique in all scopes and never
/// used again.
fn last_number(state: &DaemonState) -> u64 {
    let of_sessions = state.sessions.values().flat_map(|known| &known.grants);
    let of_workspaces = state.workspaces.values().flat_map(|known| &known.grants);

    let all = of_sessions.chain(of_workspaces).chain(&state.grants);
    let numbers = all.filter_map(|grant| grant.id.strip_prefix('g')?.parse().ok());
    // Older versions did not keep the number.
    numbers.max().unwrap_or(0).max(state.last_grant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_revoked_is_compared_in_one_form() {
        for (text, expected) in [
            ("push GitHub.com/me/app.git", Some("push github.com/me/app")),
            ("!fetch github.com/me/app/", Some("!fetch github.com/me/app")),
            ("ssh me@a.example:22", Some("ssh me@a.example")),
            ("sign commits", Some("sign commits")),
            ("pull a.example/x", None),
        ] {
            assert_eq!(normal_form(text).as_deref(), expected, "{text}");
        }
        let rule = "!*.Example.com:443".parse::<Rule>().unwrap().to_string();
        assert_eq!(normal_form("!*.Example.com:443"), Some(rule));
    }
}
