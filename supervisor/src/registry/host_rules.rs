//! The rules of hosts for a session's proxy: those of its policy with presets replaced by their hosts, and the user's
//! grants, each with its origin. And the user's grants for uses of credentials.

use quackd_policy::hosts::{Rule, SessionRules, presets};
use quackd_protocol::approval::{ApprovalKind, Decision, Grant, ScopedGrant};
use quackd_protocol::client::PolicyLayers;
use quackd_protocol::policy::Policy;
use quackd_protocol::state::FoundPreset;
use std::collections::BTreeMap;

/// Returns the rules. Without hosts if the policy names none.
pub(super) fn rules_of(
    policy: &Policy,
    layers: &PolicyLayers,
    grants: &[ScopedGrant],
    found: &BTreeMap<String, FoundPreset>,
) -> SessionRules {
    let mut rules = SessionRules::default();
    for grant in grants.iter().map(|scoped| &scoped.grant) {
        // A grant that this version cannot read allows nothing. It was checked when it was given.
        if grant.kind == ApprovalKind::Credential
            && let Ok(purpose) = grant.target.parse()
        {
            rules.add_credential(grant.decision, purpose);
        }
    }
    let Some(hosts) = &policy.hosts else { return rules };

    for rule in hosts {
        add(&mut rules, rule.clone(), origin(rule, layers), found);
    }

    // Grants of the other kinds are about paths, commands and tools, not about hosts.
    let is_about_host = |grant: &&Grant| grant.kind == ApprovalKind::Network;
    for grant in grants.iter().map(|scoped| &scoped.grant).filter(is_about_host) {
        add(&mut rules, rule_of(grant), &format!("grant {}", grant.id), found);
    }
    rules
}

/// Returns the rule of a grant as the user writes it, with `!` in front if the grant denies.
pub(super) fn rule_of(grant: &Grant) -> String {
    let mark = if grant.decision == Decision::Deny { "!" } else { "" };
    format!("{mark}{}", grant.target)
}

/// Adds a rule, or the rules of the preset that it names.
fn add(
    rules: &mut SessionRules,
    rule: String,
    origin: &str,
    found: &BTreeMap<String, FoundPreset>,
) {
    match rule.parse() {
        Ok(Rule::Preset { denies, name }) => {
            for rule in of_preset(denies, &name, found) {
                let parsed = rule.parse();
                rules.add(rule, parsed, format!("{origin}, @{name}"));
            }
        }
        parsed => rules.add(rule, parsed, origin.to_owned()),
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
    use crate::registry::policies::grants_of;
    use quackd_protocol::approval::Scope;
    use quackd_protocol::metadata::Session;
    use quackd_protocol::policy::PolicyPatch;
    use quackd_protocol::state::{DaemonState, FoundHost, SessionState};
    use serde_json::json;

    #[test]
    fn presets_and_grants_become_rules_with_their_origin() {
        let session = json!({"id": "s", "workspaceId": "w", "name": "duck-1"});
        let session: Session = serde_json::from_value(session).unwrap();
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
        let id = session.id.clone();
        state.sessions.insert(id, SessionState { grants, ..SessionState::default() });
        state.grants.push(grant("g3", Decision::Allow, "@openrouter"));
        let found = FoundHost { rule: "npm.test.example:8443".into(), source: String::new() };
        let found = FoundPreset { at: String::new(), hosts: vec![found] };
        state.presets.insert("npm".to_owned(), found);
        let hosts = ["a.example", "!@openrouter", "@registries"].map(str::to_owned).to_vec();
        let layer = PolicyPatch { hosts: Some(hosts.clone()), ..PolicyPatch::default() };
        let layers = PolicyLayers { workspace: layer, ..PolicyLayers::default() };
        let policy = Policy { hosts: Some(hosts), ..Policy::default() };
        let grants = grants_of(&state, &session);
        let of = |policy: &Policy| rules_of(policy, &layers, &grants, &state.presets);
        let rules = of(&policy);
        let shown: Vec<_> = rules
            .texts()
            .rules
            .iter()
            .map(|one| (one.rule.as_str(), one.origin.as_str()))
            .collect();
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
        assert_eq!(of(&Policy::default()), SessionRules::default());
        assert_eq!(of_preset(true, "gone", &BTreeMap::new()), ["!@gone"], "it denies all hosts");
        assert!(of_preset(false, "gone", &BTreeMap::new()).is_empty());
    }

    #[test]
    fn grants_for_credentials_count_also_without_hosts() {
        let grant = |decision, target: &str| ScopedGrant {
            scope: Scope::Session,
            grant: Grant {
                id: "g1".into(),
                kind: ApprovalKind::Credential,
                target: target.into(),
                decision,
                at: String::new(),
                client: None,
            },
        };
        let grants = [
            grant(Decision::Allow, "push a.example/x"),
            grant(Decision::Deny, "sign commits"),
            grant(Decision::Allow, "unreadable"),
        ];
        let none = BTreeMap::new();
        let rules = rules_of(&Policy::default(), &PolicyLayers::default(), &grants, &none);
        let decided = |text: &str| rules.credentials().decide(&text.parse().unwrap());
        assert_eq!(decided("fetch a.example/x"), Some(Decision::Allow));
        assert_eq!(decided("sign commits"), Some(Decision::Deny));
        assert_eq!(decided("push a.example/y"), None);
        assert!(rules.texts().rules.is_empty());
    }
}
