//! The rules of hosts for a session's proxy: those of its policy with presets replaced by their hosts, and the user's
//! grants, each with its origin.

use quackd_policy::hosts::{Rule, presets};
use quackd_protocol::SessionId;
use quackd_protocol::WorkspaceId;
use quackd_protocol::approval::{ApprovalKind, Decision, Grant};
use quackd_protocol::client::PolicyLayers;
use quackd_protocol::network::{RuleText, Rules};
use quackd_protocol::policy::Policy;
use quackd_protocol::state::{DaemonState, FoundPreset};
use std::collections::BTreeMap;

/// Returns the rules. Empty if the policy names no hosts.
pub(super) fn rules_of(
    policy: &Policy,
    layers: &PolicyLayers,
    state: &DaemonState,
    session: &SessionId,
    workspace: &WorkspaceId,
) -> Rules {
    let Some(hosts) = &policy.hosts else { return Rules::default() };

    let mut rules = Vec::new();
    let found = &state.presets;
    for rule in hosts {
        let origin = origin(rule, layers);
        match rule.parse() {
            Ok(Rule::Preset { denies, name }) => {
                let text = |rule| RuleText { rule, origin: format!("{origin}, @{name}") };
                rules.extend(of_preset(denies, &name, found).into_iter().map(text));
            }
            _ => rules.push(RuleText { rule: rule.clone(), origin: origin.to_owned() }),
        }
    }

    let of_session = state.sessions.get(session).map(|state| &state.grants);
    let of_workspace = state.workspaces.get(workspace).map(|state| &state.grants);
    let grants = [of_session, of_workspace, Some(&state.grants)];
    for grant in grants.into_iter().flatten().flatten() {
        rules.extend(rules_of_grant(grant, found));
    }
    Rules { rules, ..Rules::default() }
}

fn rules_of_grant(grant: &Grant, found: &BTreeMap<String, FoundPreset>) -> Vec<RuleText> {
    // Grants of the other kinds are about paths, commands and tools, not about hosts.
    if grant.kind != ApprovalKind::Network {
        return Vec::new();
    }
    let mark = if grant.decision == Decision::Deny { "!" } else { "" };
    match grant.target.parse() {
        Ok(Rule::Preset { name, .. }) => {
            let origin = format!("grant {}, @{name}", grant.id);
            let rules = of_preset(grant.decision == Decision::Deny, &name, found).into_iter();
            rules.map(|rule| RuleText { rule, origin: origin.clone() }).collect()
        }
        _ => vec![RuleText {
            rule: format!("{mark}{}", grant.target),
            origin: format!("grant {}", grant.id),
        }],
    }
}

/// Returns the rules of a preset. A denied preset without hosts stays as it is: nothing can apply it, and the proxy then
/// denies all hosts.
fn of_preset(denies: bool, name: &str, found: &BTreeMap<String, FoundPreset>) -> Vec<String> {
    let mark = if denies { "!" } else { "" };
    let hosts: Vec<_> =
        presets::expand(name, found).into_iter().map(|host| format!("{mark}{host}")).collect();
    if denies && hosts.is_empty() { vec![format!("!@{name}")] } else { hosts }
}

/// Returns the strongest layer that has the rule, for display.
fn origin(rule: &String, layers: &PolicyLayers) -> &'static str {
    let has = |hosts: &Option<Vec<String>>| hosts.as_ref().is_some_and(|all| all.contains(rule));
    match () {
        () if has(&layers.session.hosts) => "session",
        () if has(&layers.workspace.hosts) => "workspace",
        () => "configuration",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::policy::PolicyPatch;
    use quackd_protocol::state::{FoundHost, SessionState};

    #[test]
    fn presets_and_grants_become_rules_with_their_origin() {
        let (session, workspace) = (SessionId::from("s"), WorkspaceId::from("w"));
        let mut state = DaemonState::default();
        let grant = |id: &str, decision, target: &str| Grant {
            id: id.into(),
            kind: ApprovalKind::Network,
            target: target.into(),
            decision,
            at: String::new(),
            client: None,
        };
        let grants = vec![
            grant("g1", Decision::Allow, "g.example:22"),
            grant("g2", Decision::Deny, "bad.example"),
        ];
        state.sessions.insert(session.clone(), SessionState { grants, ..SessionState::default() });
        state.grants.push(grant("g3", Decision::Allow, "@openrouter"));
        let found = FoundHost { rule: "npm.test.example:8443".into(), source: String::new() };
        let found = FoundPreset { at: String::new(), hosts: vec![found] };
        state.presets.insert("npm".to_owned(), found);
        let hosts = ["a.example", "!@openrouter", "@registries"].map(str::to_owned).to_vec();
        let layer = PolicyPatch { hosts: Some(hosts.clone()), ..PolicyPatch::default() };
        let layers = PolicyLayers { workspace: layer, ..PolicyLayers::default() };
        let policy = Policy { hosts: Some(hosts), ..Policy::default() };
        let of = |policy: &Policy| rules_of(policy, &layers, &state, &session, &workspace);
        let rules = of(&policy);
        let shown: Vec<_> =
            rules.rules.iter().map(|one| (one.rule.as_str(), one.origin.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("a.example", "workspace"),
                ("!openrouter.ai", "workspace, @openrouter"),
                ("npm.test.example:8443", "workspace, @registries"),
                ("g.example:22", "grant g1"),
                ("!bad.example", "grant g2"),
                ("openrouter.ai", "grant g3, @openrouter"),
            ]
        );
        assert_eq!(of(&Policy::default()), Rules::default());
        assert_eq!(of_preset(true, "gone", &BTreeMap::new()), ["!@gone"], "it denies all hosts");
        assert!(of_preset(false, "gone", &BTreeMap::new()).is_empty());
    }
}
