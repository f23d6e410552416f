//! Restrictions that a new session takes over from another one.

use super::{add_new, denies};
use quackd_protocol::policy::{NetworkMode, Policy, PolicyPatch, Profile, WebSearchRule};

/// Returns the settings with which a session with the policy `base` may do nothing that `limit` forbids. Empty if it is
/// as narrow already.
#[must_use]
pub fn restriction(base: &Policy, limit: &Policy) -> PolicyPatch {
    let profile = (rank(limit.profile) < rank(base.profile)).then_some(limit.profile);
    let web_search =
        (rank_of_web(limit.web_search) < rank_of_web(base.web_search)).then_some(limit.web_search);
    let (network, hosts) = restricted_network(base, limit);

    let is_known = |root: &&std::path::PathBuf| limit.writable_roots.contains(root);
    let roots: Vec<_> = base.writable_roots.iter().filter(is_known).cloned().collect();

    let mut hidden = base.hidden.clone();
    add_new(&mut hidden, limit.hidden.clone());

    PolicyPatch {
        profile,
        network,
        web_search,
        hosts,
        writable_roots: (roots.len() < base.writable_roots.len()).then_some(roots),
        hidden: (base.hidden.len() < hidden.len()).then_some(hidden),
    }
}

fn rank(profile: Profile) -> u8 {
    match profile {
        Profile::ReadOnly => 0,
        Profile::WorkspaceWrite => 1,
        Profile::FullAccess => 2,
    }
}

fn rank_of_web(rule: WebSearchRule) -> u8 {
    match rule {
        WebSearchRule::Off => 0,
        WebSearchRule::Ask => 1,
        WebSearchRule::On => 2,
    }
}

fn restricted_network(base: &Policy, limit: &Policy) -> (Option<NetworkMode>, Option<Vec<String>>) {
    let off = (Some(NetworkMode::Off), None);
    match (base.network_mode(), limit.network_mode()) {
        (NetworkMode::Off, _) | (_, NetworkMode::On) => (None, None),
        (_, NetworkMode::Off) => off,
        (from, NetworkMode::Hosts) => {
            let allowed = limit.hosts.clone().unwrap_or_default();
            let given = base.hosts.clone().unwrap_or_default();
            // With the whole network, every host is given.
            let is_given =
                |rule: &String| from == NetworkMode::On || denies(rule) || given.contains(rule);
            let mut hosts: Vec<_> = allowed.into_iter().filter(is_given).collect();

            let allows = |rules: &[String]| rules.iter().any(|rule| !denies(rule));
            // A layer without an allowed host would leave the allowed hosts of the layers below.
            if !allows(&hosts) && (from == NetworkMode::On || allows(&given)) {
                return off;
            }
            add_new(&mut hosts, given.iter().filter(|rule| denies(rule)).cloned().collect());

            let is_same = from == NetworkMode::Hosts
                && hosts.len() == given.len()
                && hosts.iter().all(|rule| given.contains(rule));
            let mode = (from == NetworkMode::On).then_some(NetworkMode::Hosts);
            (mode, (!is_same).then_some(hosts))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;

    fn hosts(rules: &[&str]) -> Policy {
        Policy {
            hosts: Some(rules.iter().map(|rule| (*rule).to_owned()).collect()),
            ..Policy::default()
        }
    }

    /// The policy of a session whose layers give `base` and whose own layer is the restriction.
    fn restricted(base: &Policy, limit: &Policy) -> Policy {
        let below = PolicyPatch {
            profile: Some(base.profile),
            network: Some(base.network_mode()),
            web_search: Some(base.web_search),
            hosts: base.hosts.clone(),
            writable_roots: Some(base.writable_roots.clone()),
            hidden: Some(base.hidden.clone()),
        };
        resolve([below, restriction(base, limit)])
    }

    #[test]
    fn a_narrower_policy_is_taken_over_and_a_wider_one_is_not() {
        let narrow = Policy {
            profile: Profile::ReadOnly,
            web_search: WebSearchRule::Off,
            hidden: vec!["/a/keys".into()],
            ..Policy::default()
        };
        let wide = Policy {
            profile: Profile::FullAccess,
            network: true,
            writable_roots: vec!["/b".into()],
            ..Policy::default()
        };
        assert_eq!(restricted(&wide, &narrow), narrow);
        assert_eq!(restriction(&narrow, &wide), PolicyPatch::default());
        assert_eq!(restriction(&narrow, &narrow), PolicyPatch::default());
        let other = Policy { hidden: vec!["/a/more".into()], ..narrow.clone() };
        assert_eq!(restricted(&narrow, &other).hidden.len(), 2);
    }

    #[test]
    fn of_hosts_only_those_remain_that_both_allow() {
        let on = Policy { network: true, ..Policy::default() };
        let limit = hosts(&["a.example", "b.example", "!x.a.example"]);
        assert_eq!(restricted(&on, &limit).hosts, limit.hosts);
        let base = hosts(&["b.example", "c.example", "!y.example"]);
        let both = restricted(&base, &limit).hosts.unwrap();
        let mut both: Vec<_> = both.iter().map(String::as_str).collect();
        both.sort_unstable();
        assert_eq!(both, ["!x.a.example", "!y.example", "b.example"]);
        assert_eq!(restricted(&base, &hosts(&["!b.example"])).network_mode(), NetworkMode::Off);
        assert_eq!(restricted(&base, &hosts(&["d.example"])).network_mode(), NetworkMode::Off);
        assert_eq!(restriction(&base, &base), PolicyPatch::default());
        assert_eq!(restriction(&hosts(&[]), &hosts(&[])), PolicyPatch::default());
        let denied = hosts(&["!a.example"]);
        assert_eq!(restricted(&hosts(&[]), &denied).hosts, denied.hosts);
        assert_eq!(restricted(&on, &Policy::default()).network_mode(), NetworkMode::Off);
    }
}
