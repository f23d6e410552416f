//! Describes the layers that confine a session. Pure: the tier determines the layers.

use crate::Confinement;
use quackd_protocol::client::{ExplainLayer, ExplainReport};
use quackd_protocol::policy::{Policy, Profile};
use quackd_protocol::tiers::{self, Tier};

/// Returns the layers of a tier, outermost first.
pub(super) fn layers(confinement: &Confinement, tier: Option<Tier>) -> Vec<ExplainLayer> {
    let policy = &confinement.policy_now();
    if !confinement.is_confined {
        return vec![unconfined(policy)];
    }
    let is_far = confinement.is_far;
    let mut layers =
        vec![files(policy, tier, is_far), protected(policy, tier), network(policy, tier)];

    if tier == Some(Tier::M) {
        let holds = "commands signal and inspect their own processes only";
        layers.push(layer("processes", holds, None));
    } else if tier == Some(Tier::D) {
        layers.push(layer(
            "processes",
            "other processes can be seen, and cannot be signalled where the kernel knows how",
            None,
        ));
    } else {
        layers.push(layer("processes", "the session sees and ends its own processes only", None));
    }

    if tier == Some(Tier::A) {
        let holds =
            "a control group ends all processes together; open files and file sizes are limited";
        layers.push(layer("limits", holds, Some("[limits] in the configuration")));
    } else {
        let holds = "open files and file sizes are limited for each process";
        layers.push(layer("limits", holds, Some("[limits] in the configuration")));
    }

    // macOS has no filter.
    if tier != Some(Tier::M) {
        let holds = "a filter refuses what no tool needs; no program gains rights";
        layers.push(layer("system calls", holds, Some("only quack sandbox set full-access")));
    }
    layers
}

fn unconfined(policy: &Policy) -> ExplainLayer {
    match policy.profile {
        Profile::FullAccess => layer(
            "none",
            "the session may do whatever you may",
            Some("quack sandbox set workspace-write"),
        ),
        Profile::ReadOnly | Profile::WorkspaceWrite => layer(
            "tools",
            "this system has no confinement: commands and writing are refused, reading and searching work",
            Some("quack sandbox set full-access, without any confinement"),
        ),
    }
}

fn files(policy: &Policy, tier: Option<Tier>, is_far: bool) -> ExplainLayer {
    let workspace = match policy.profile {
        Profile::ReadOnly => "the workspace can be read",
        Profile::WorkspaceWrite | Profile::FullAccess => "the workspace can be written",
    };
    let roots = match policy.writable_roots.len() {
        0 => String::new(),
        1 => ", and 1 directory beside it".to_owned(),
        n => format!(", and {n} directories beside it"),
    };

    let rest = if matches!(tier, Some(Tier::D | Tier::M)) {
        "the system and toolchains can be read, other files cannot be opened, and their names be seen"
    } else {
        "the system and toolchains can be read, nothing else of the machine is there; the home and /tmp are \
         private and go with the worker"
    };

    let change = match policy.profile {
        Profile::ReadOnly => "quack sandbox set workspace-write",
        Profile::WorkspaceWrite | Profile::FullAccess if is_far => "quack sandbox set read-only",
        Profile::WorkspaceWrite | Profile::FullAccess => {
            "quack sandbox set --writable DIR, --hide PATH, or read-only"
        }
    };
    layer("files", &format!("{workspace}{roots}; {rest}"), Some(change))
}

fn protected(policy: &Policy, tier: Option<Tier>) -> ExplainLayer {
    let holds = match (policy.profile, tier) {
        (Profile::ReadOnly, _) => "nothing is written, so that nothing needs protection",
        (_, Some(Tier::D)) => {
            "no repository that was there when the worker began can be written, and no name made beside its \
             .git; the file tools refuse other names that later programs run or obey, and what commands write \
             there is audited"
        }
        (_, Some(Tier::M)) => {
            "commands cannot write the hooks and settings of the workspace's repositories; the file tools refuse other \
             names that later programs run or obey, and what commands write there is audited"
        }
        _ => {
            "git's hooks and settings are mounted read-only; the file tools refuse other names that later programs run or \
             obey, and what commands write there is audited"
        }
    };
    layer("protected names", holds, Some("write them by hand; quack sandbox audit shows them"))
}

fn network(policy: &Policy, tier: Option<Tier>) -> ExplainLayer {
    match (policy.network, tier) {
        (true, _) => layer(
            "network",
            "on: everything that you can reach",
            Some("quack sandbox set --network off"),
        ),
        (false, _) if policy.hosts.is_some() => layer(
            "network",
            "hosts: those that rules allow, through a proxy; quack sandbox explain HOST names the rule",
            Some("quack sandbox allow HOST"),
        ),
        (false, Some(Tier::D)) => layer(
            "network",
            "off: no socket can be made but connected pairs",
            Some("quack sandbox set --network on"),
        ),
        (false, Some(Tier::M)) => layer(
            "network",
            "off: no address and no socket of another program",
            Some("quack sandbox set --network on"),
        ),
        (false, _) => layer(
            "network",
            "off: only the session's own loopback",
            Some("quack sandbox set --network on"),
        ),
    }
}

fn layer(name: &str, holds: &str, change: Option<&str>) -> ExplainLayer {
    let change = change.map(str::to_owned);
    ExplainLayer { name: name.to_owned(), holds: holds.to_owned(), change }
}

/// Returns the answer as text.
pub(super) fn text(report: &ExplainReport) -> String {
    let mut lines = vec![head(report)];
    for ExplainLayer { name, holds, change } in &report.layers {
        lines.push(format!("{name}: {holds}"));
        if let Some(change) = change {
            lines.push(format!("  to change it: {change}"));
        }
    }
    for note in &report.notes {
        lines.push(format!("note: {note}"));
    }
    lines.join("\n")
}

/// Returns the policy in force, on one line.
pub(super) fn head(report: &ExplainReport) -> String {
    let network = match (report.network, report.hosts) {
        (true, _) => "on",
        (false, true) => "hosts",
        (false, false) => "off",
    };
    let profile = report.profile.map_or("unknown", Profile::name);
    let confinement = report.tier.map_or(tiers::UNKNOWN, Tier::in_words);
    format!("{profile}, network {network}, {confinement}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(profile: Profile, is_confined: bool, tier: Tier) -> Vec<String> {
        let policy = Policy { profile, ..Policy::default() };
        let layers = layers(&Confinement::new(policy, is_confined, String::new()), Some(tier));
        layers.into_iter().map(|layer| format!("{}: {}", layer.name, layer.holds)).collect()
    }

    #[test]
    fn a_tier_is_told_by_what_it_holds() {
        let a = names(Profile::WorkspaceWrite, true, Tier::A);
        assert_eq!(a.len(), 6);
        assert!(a[1].contains("mounted read-only") && a[4].contains("control group"), "{a:?}");
        let d = names(Profile::WorkspaceWrite, true, Tier::D);
        assert!(!d[1].contains("mounted read-only") && !d[4].contains("control group"), "{d:?}");
        let m = names(Profile::WorkspaceWrite, true, Tier::M);
        assert_eq!(m.len(), 5);
        assert!(!m.join("").contains("mounted") && !m.join("").contains("filter"), "{m:?}");
        let read_only = names(Profile::ReadOnly, true, Tier::B);
        assert!(read_only[0].starts_with("files: the workspace can be read;"), "{read_only:?}");
    }

    #[test]
    fn without_confinement_nothing_is_claimed() {
        let full = names(Profile::FullAccess, false, Tier::Unconfined);
        assert_eq!(full, ["none: the session may do whatever you may"]);
        let refused = names(Profile::WorkspaceWrite, false, Tier::Unconfined);
        assert!(refused[0].contains("are refused") && refused.len() == 1, "{refused:?}");
    }
}
