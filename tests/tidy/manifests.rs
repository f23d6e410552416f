//! Manifests: crates depend only on lower layers, and versions are only in the root manifest.

use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// Every package, its layer, and its allowed workspace dependencies; `*` allows every lower layer.
/// The code map in ARCHITECTURE.md gives the reasons.
const LAYERS: &[(&str, u8, &[&str])] = &[
    ("quackd-protocol", 0, &[]),
    ("quackd-supervision", 0, &[]),
    ("quackd-home", 0, &[]),
    ("quackd-testkit", 0, &[]),
    ("quackd-policy", 1, &["quackd-protocol"]),
    ("quackd-terminal", 1, &["quackd-protocol"]),
    ("quackd-engines", 1, &["quackd-protocol"]),
    ("quackd-network", 2, &["quackd-policy"]),
    ("quackd-config", 2, &["quackd-protocol", "quackd-policy", "quackd-engines"]),
    ("quackd-schema", 1, &["quackd-protocol"]),
    ("quackd-search", 1, &[]),
    ("quackd-sandbox", 1, &["quackd-protocol"]),
    ("quackd-process", 1, &["quackd-protocol"]),
    ("quackd-egress", 1, &["quackd-protocol"]),
    ("quackd-remote", 1, &["quackd-protocol", "quackd-supervision"]),
    ("quackd-ipc", 1, &["quackd-protocol", "quackd-supervision"]),
    ("quackd-store", 1, &["quackd-protocol"]),
    ("quackd-rubber-duck", 2, &["quackd-protocol", "quackd-store"]),
    ("quackd-service", 1, &["quackd-protocol"]),
    (
        "quackd-tools",
        2,
        &[
            "quackd-protocol",
            "quackd-ipc",
            "quackd-process",
            "quackd-sandbox",
            "quackd-search",
            "quackd-terminal",
        ],
    ),
    ("quackd-isolate", 2, &["quackd-protocol", "quackd-sandbox"]),
    ("quackd-agent", 2, &["quackd-protocol"]),
    ("quackd-client", 2, &["quackd-protocol", "quackd-home", "quackd-ipc", "quackd-process"]),
    ("quackd-facades", 3, &["quackd-protocol", "quackd-sandbox", "quackd-search", "quackd-tools"]),
    (
        "quackd-mcp",
        3,
        &[
            "quackd-protocol",
            "quackd-schema",
            "quackd-client",
            "quackd-ipc",
            "quackd-remote",
            "quackd-supervision",
        ],
    ),
    ("quackd-acp", 3, &["quackd-protocol", "quackd-client", "quackd-ipc", "quackd-agent"]),
    (
        "quackd-supervisor",
        3,
        &[
            "quackd-protocol",
            "quackd-schema",
            "quackd-policy",
            "quackd-home",
            "quackd-config",
            "quackd-engines",
            "quackd-supervision",
            "quackd-ipc",
            "quackd-store",
            "quackd-rubber-duck",
            "quackd-process",
            "quackd-sandbox",
            "quackd-egress",
            "quackd-remote",
            "quackd-service",
        ],
    ),
    (
        "quackd-agent-worker",
        3,
        &[
            "quackd-agent",
            "quackd-ipc",
            "quackd-process",
            "quackd-protocol",
            "quackd-sandbox",
            "quackd-schema",
        ],
    ),
    (
        "quackd-credentials-worker",
        3,
        &["quackd-protocol", "quackd-ipc", "quackd-policy", "quackd-process", "quackd-sandbox"],
    ),
    (
        "quackd-environment-worker",
        3,
        &["quackd-protocol", "quackd-ipc", "quackd-process", "quackd-sandbox"],
    ),
    (
        "quackd-isolate-worker",
        3,
        &["quackd-ipc", "quackd-isolate", "quackd-process", "quackd-protocol", "quackd-sandbox"],
    ),
    (
        "quackd-link-worker",
        4,
        &["quackd-environment-worker", "quackd-ipc", "quackd-process", "quackd-protocol"],
    ),
    ("quackd-pi-worker", 3, &["quackd-protocol", "quackd-ipc", "quackd-process"]),
    (
        "quackd-session-worker",
        4,
        &[
            "quackd-protocol",
            "quackd-ipc",
            "quackd-policy",
            "quackd-process",
            "quackd-sandbox",
            "quackd-tools",
            "quackd-facades",
        ],
    ),
    (
        "quackd-network-worker",
        3,
        &[
            "quackd-ipc",
            "quackd-network",
            "quackd-policy",
            "quackd-process",
            "quackd-protocol",
            "quackd-sandbox",
        ],
    ),
    ("quackd", 5, &["*"]),
    ("quackd-fuzz", 6, &["*"]),
];

/// Forbidden dependencies, also indirect ones. The processes that must not crash run no tools. A
/// worker cannot write metadata, search for state, read configuration or reach the internet.
const NEVER: &[(&str, &[&str])] = &[
    (
        "quackd-agent-worker",
        &["quackd-store", "quackd-home", "quackd-config", "quackd-egress", "quackd-tools"],
    ),
    ("quackd-supervisor", &["quackd-tools", "quackd-search", "quackd-agent"]),
    (
        "quackd-session-worker",
        &["quackd-store", "quackd-home", "quackd-config", "quackd-egress", "quackd-remote"],
    ),
];

/// The only packages with actors.
const ACTORS: &[&str] = &["quackd-supervisor", "quackd-session-worker"];

/// The only packages that use nix: signals, forks and the user database. docs/adr/0012 has the
/// reason.
const NIX: &[&str] =
    &["quackd-process", "quackd-sandbox", "quackd-supervisor", "quackd-environment-worker"];

/// Network crates, and the only packages that may use them: for outgoing connections, for remote control, for agents on
/// this machine, to read the first message of TLS, and to read the variables that name a proxy.
const INTERNET: &[&str] = &["reqwest", "hyper", "hyper-util", "rustls", "tokio-tungstenite"];
const NETWORKED: &[&str] = &[
    "quackd-egress",
    "quackd-mcp",
    "quackd-network",
    "quackd-network-worker",
    "quackd-policy",
    "quackd-remote",
];

/// A manifest's dependencies of the given kinds, including those for one target only.
fn dependencies<'a>(manifest: &'a Table, kinds: &[&str]) -> Vec<(&'a str, &'a Value)> {
    let for_targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = for_targets.filter_map(|(_, table)| table.as_table()).chain([manifest]);
    tables
        .flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()))
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}

fn package(manifest: &Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

/// Dependencies point to lower layers, as in `LAYERS`, and `NEVER` applies to indirect dependencies
/// too. Tests may use any crate.
fn layer_complaints(manifests: &[Table]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut edges = BTreeMap::new();
    for manifest in manifests {
        let Some(name) = package(manifest) else { continue };
        let row = |name| LAYERS.iter().find(|(package, ..)| *package == name);
        let Some((_, layer, may_use)) = row(name) else {
            complaints.push(format!("{name} is not in the table of layers"));
            continue;
        };
        let used = dependencies(manifest, &["dependencies", "build-dependencies"]);
        for (used, _) in &used {
            let is_ours = used.starts_with("quackd");
            let is_below = row(used).is_some_and(|(_, lower, _)| lower < layer);
            let is_named = may_use.iter().any(|named| named == used || *named == "*");
            if is_ours && !(is_below && is_named) {
                complaints.push(format!("{name} may not use {used}"));
            }
            if used.starts_with("actix") && !ACTORS.contains(&name) {
                complaints.push(format!("{name} may not use {used}: it has no actors"));
            }
            if *used == "nix" && !NIX.contains(&name) {
                complaints.push(format!("{name} may not use {used}: rustix has the call"));
            }
            if INTERNET.contains(used) && !NETWORKED.contains(&name) {
                complaints.push(format!("{name} may not use {used}: only {NETWORKED:?} may"));
            }
        }
        edges.insert(name, used.into_iter().map(|(used, _)| used).collect::<Vec<_>>());
    }
    for (from, forbidden) in NEVER {
        let mut reached = BTreeSet::new();
        let mut open = vec![*from];
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(edges.get(next).into_iter().flatten());
            }
        }
        let linked = forbidden.iter().filter(|name| reached.contains(**name));
        complaints.extend(linked.map(|name| format!("{from} must never link {name}")));
    }
    complaints
}

/// Versions, paths and sources are only in the root manifest.
fn version_complaints(manifest: &Table) -> Vec<String> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let is_inherited = |value: &Value| {
        value.get("workspace").and_then(Value::as_bool) == Some(true)
            && !["version", "path", "git"].iter().any(|key| value.get(key).is_some())
    };
    let all = dependencies(manifest, &kinds);
    let own = all.into_iter().filter(|(_, value)| !is_inherited(value));
    own.map(|(name, _)| format!("{name} is not `workspace = true`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NOTHING, Tree, read_tree};

    fn manifest(text: &str) -> Table {
        text.parse().unwrap()
    }

    fn manifests(tree: &Tree) -> Vec<(&str, Table)> {
        let members = tree.iter().filter(|(path, _)| path.ends_with("/Cargo.toml"));
        let members: Vec<_> = members.map(|(path, t)| (path.as_str(), manifest(t))).collect();
        assert!(10 < members.len(), "the tree was not found");
        members
    }

    #[test]
    fn crates_depend_only_downwards() {
        let broken = [
            "[package]\nname = \"quackd-supervisor\"\n[dependencies]\nquackd-store.workspace = true",
            "[package]\nname = \"quackd-store\"\n[target.x.dependencies]\nquackd-tools.workspace = true",
            "[package]\nname = \"quackd-home\"\n[build-dependencies]\nactix-rt.workspace = true",
            "[package]\nname = \"quackd-ipc\"\n[dependencies]\nreqwest.workspace = true",
            "[package]\nname = \"quackd-search\"\n[dev-dependencies]\nquackd-tools.workspace = true",
            "[package]\nname = \"quackd-utils\"",
            "[package]\nname = \"quackd-egress\"\n[dependencies]\nnix.workspace = true",
        ];
        let expected = [
            "quackd-store may not use quackd-tools",
            "quackd-home may not use actix-rt: it has no actors",
            "quackd-ipc may not use reqwest: only [\"quackd-egress\", \"quackd-mcp\", \"quackd-network\", \"quackd-network-worker\", \"quackd-policy\", \"quackd-remote\"] may",
            "quackd-utils is not in the table of layers",
            "quackd-egress may not use nix: rustix has the call",
            "quackd-supervisor must never link quackd-tools",
        ];
        assert_eq!(layer_complaints(&broken.map(manifest)), expected);

        let tree = read_tree().unwrap();
        let tables: Vec<Table> = manifests(&tree).into_iter().map(|(_, table)| table).collect();
        assert_eq!(layer_complaints(&tables), NOTHING);
        for (name, layer, may_use) in LAYERS {
            let lower = LAYERS.iter().filter(|(_, other, _)| other < layer);
            let lower: Vec<&str> = lower.map(|(other, ..)| *other).chain(["*"]).collect();
            assert!(may_use.iter().all(|used| lower.contains(used)), "{name}");
        }
    }

    #[test]
    fn versions_stand_in_the_root_manifest_only() {
        let broken = manifest(
            "[dependencies]\na = \"1\"\nb.workspace = true\nc = { workspace = true, features = [] }\n\
             [dev-dependencies]\nd = { path = \"../d\" }\n[target.x.dependencies]\ne.version = \"1\"",
        );
        let found: BTreeSet<String> = version_complaints(&broken).into_iter().collect();
        let expected = ["a", "d", "e"].map(|name| format!("{name} is not `workspace = true`"));
        assert_eq!(found, expected.into());

        let tree = read_tree().unwrap();
        for (path, table) in manifests(&tree) {
            assert_eq!(version_complaints(&table), NOTHING, "{path}");
        }
    }
}
