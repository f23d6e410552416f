//! Policies of sessions: resolves layers of settings into one policy, rejects invalid values, and compares policies. Also
//! the rules of hosts, and the names of hosts in ssh's files.
//!
//! The types are in `quackd_protocol::policy`. Pure functions without system calls. Called by the configuration, the
//! supervisor, the proxy, and the workers that read `known_hosts`.

mod credentials;
pub mod hosts;
pub mod known_hosts;
mod restrict;
pub mod upstream;

pub use credentials::CredentialGrants;
pub use restrict::restriction;

use hosts::{Rule, RuleError};
use quackd_protocol::client::PolicyLayers;
use quackd_protocol::limits::MAX_HOST_RULES;
use quackd_protocol::policy::{NetworkMode, Policy, PolicyPatch, Profile, WebSearchRule};
use std::path::{Component, Path, PathBuf};

/// Maximum number of roots of one kind in a policy. Each costs a mount in every worker.
pub const MAX_ROOTS: usize = 64;

/// Maximum length of a path in a policy, in bytes: the kernel's limit for one.
const MAX_PATH_BYTES: usize = 4096;

/// Reason for rejecting a policy. Each text is one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A list is too long.
    #[error("too many {list} paths: {count}, and {MAX_ROOTS} are allowed")]
    TooMany {
        /// `writable` or `hidden`.
        list: &'static str,
        /// Number of paths in the list.
        count: usize,
    },
    /// A path cannot be used.
    #[error("{list} path {path:?} {reason}")]
    Path {
        /// `writable` or `hidden`.
        list: &'static str,
        /// The path. Invalid UTF-8 is replaced.
        path: String,
        /// The problem, to read after the path.
        reason: &'static str,
    },
    /// A rule for hosts cannot be used.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The list of hosts is too long.
    #[error("too many rules for hosts: {0}, and {MAX_HOST_RULES} are allowed")]
    TooManyRules(usize),
    /// No preset has this name.
    #[error("no preset is called @{0}: quack sandbox presets lists them")]
    UnknownPreset(String),
    /// Nothing can enforce a list of hosts.
    #[error("a list of hosts needs confinement: full-access has none")]
    HostsUnconfined,
}

/// Applies the layers to the defaults, the narrowest layer last.
#[must_use]
pub fn resolve(layers: impl IntoIterator<Item = PolicyPatch>) -> Policy {
    let patch = layers.into_iter().fold(PolicyPatch::default(), merge);
    let network = patch.network.unwrap_or_default();
    let hosts = (network == NetworkMode::Hosts).then(|| patch.hosts.unwrap_or_default());
    Policy {
        profile: patch.profile.unwrap_or_default(),
        network: network == NetworkMode::On,
        hosts,
        web_search: patch.web_search.unwrap_or_default(),
        writable_roots: patch.writable_roots.unwrap_or_default(),
        hidden: patch.hidden.unwrap_or_default(),
    }
}

/// Resolves the layers of a session. Its safe mode permits reading only, and searches of the web only if a layer names
/// a rule for them: a query could contain text that the model has read.
#[must_use]
pub fn resolve_layers(layers: PolicyLayers) -> Policy {
    let PolicyLayers { configuration, workspace, session, safe_mode } = layers;
    let patches = [configuration, workspace, session];
    let is_web_set = patches.iter().any(|patch| patch.web_search.is_some());

    let mut policy = resolve(patches);
    if safe_mode {
        policy.profile = Profile::ReadOnly;
        if !is_web_set {
            policy.web_search = WebSearchRule::Off;
        }
    }
    in_force(policy)
}

/// Returns the layer `below` with `above` on top of it, as one layer.
fn merge(below: PolicyPatch, above: PolicyPatch) -> PolicyPatch {
    // Every layer can hide paths, and no layer can undo it.
    let hidden = match (below.hidden, above.hidden) {
        (Some(mut all), Some(more)) => {
            add_new(&mut all, more);
            Some(all)
        }
        (wider, narrower) => narrower.or(wider),
    };

    PolicyPatch {
        profile: above.profile.or(below.profile),
        network: above.network.or(below.network),
        web_search: above.web_search.or(below.web_search),
        hosts: merge_hosts(below.hosts, above.hosts),
        writable_roots: above.writable_roots.or(below.writable_roots),
        hidden,
    }
}

/// Merges rules for hosts. A layer that allows any host replaces what weaker layers allow. Each
/// layer can deny, and no layer can undo it.
fn merge_hosts(below: Option<Vec<String>>, above: Option<Vec<String>>) -> Option<Vec<String>> {
    let (Some(mut below), Some(above)) = (below.clone(), above.clone()) else {
        return above.or(below);
    };
    if above.iter().any(|rule| !denies(rule)) {
        below.retain(|rule| denies(rule));
    }
    add_new(&mut below, above);
    Some(below)
}

fn denies(rule: &str) -> bool {
    rule.starts_with('!')
}

fn add_new<T: PartialEq>(to: &mut Vec<T>, from: Vec<T>) {
    for value in from {
        if !to.contains(&value) {
            to.push(value);
        }
    }
}

/// Rejects invalid values. `home` is the user's home directory, `state_dir` the daemon's state directory. A
/// writable root must not be `/`, the home directory or one of its parents. It must not contain the state directory
/// or be inside it.
///
/// # Errors
/// The first problem.
pub fn validate(policy: &Policy, home: &Path, state_dir: &Path) -> Result<(), PolicyError> {
    check_list("writable", &policy.writable_roots)?;
    check_list("hidden", &policy.hidden)?;
    validate_hosts(policy.hosts.as_deref().unwrap_or_default())?;

    for root in &policy.writable_roots {
        let refuse = |reason| Err(path_error("writable", root, reason));
        if home.starts_with(root) {
            return refuse("is the home directory or above it; name a directory beneath it");
        }
        if state_dir.starts_with(root) || root.starts_with(state_dir) {
            return refuse("holds or lies in the daemon's own state directory");
        }
    }
    Ok(())
}

/// Rejects rules for hosts that cannot be used.
///
/// # Errors
/// The first problem.
pub fn validate_hosts(rules: &[String]) -> Result<(), PolicyError> {
    if MAX_HOST_RULES < rules.len() {
        return Err(PolicyError::TooManyRules(rules.len()));
    }
    for rule in rules {
        if let Rule::Preset { name, .. } = rule.parse::<Rule>()?
            && hosts::presets::find(&name).is_none()
        {
            return Err(PolicyError::UnknownPreset(name));
        }
    }
    Ok(())
}

/// Returns true if a worker with this policy may keep running when `other` replaces it. Ignores the fields that the
/// supervisor and the proxy enforce: whether the web may be searched, and, if a proxy can serve the worker
/// (`has_proxy`), which hosts are allowed.
#[must_use]
pub fn confines_like(policy: &Policy, other: &Policy, has_proxy: bool) -> bool {
    let is_same_mode = policy.network_mode() == other.network_mode();
    let enforced_here =
        Policy { web_search: other.web_search, hosts: other.hosts.clone(), ..policy.clone() };
    (is_same_mode || has_proxy) && enforced_here == *other
}

/// Returns true if a worker with this policy may read everything that `other` allows it to read.
#[must_use]
pub fn reads_all_of(policy: &Policy, other: &Policy) -> bool {
    let hides = |path: &PathBuf| other.hidden.iter().any(|hidden| path.starts_with(hidden));
    let shows = |root: &PathBuf| policy.writable_roots.iter().any(|known| root.starts_with(known));
    let has_all = policy.profile == Profile::FullAccess;
    has_all
        || other.profile != Profile::FullAccess
            && policy.hidden.iter().all(hides)
            && other.writable_roots.iter().all(shows)
}

/// Returns true if this policy allows everything that `other` allows, apart from the fields that the supervisor and the
/// proxy enforce: a worker with `other` then allows nothing too much.
#[must_use]
pub fn allows_all_of(policy: &Policy, other: &Policy) -> bool {
    let order = |policy: &Policy| Profile::ALL.iter().position(|known| *known == policy.profile);
    let modes = |policy: &Policy| {
        let mode = policy.network_mode();
        NetworkMode::ALL.iter().position(|known| *known == mode)
    };
    order(other) <= order(policy) && modes(other) <= modes(policy) && reads_all_of(policy, other)
}

/// Returns the policy as it is enforced: `FullAccess` leaves the network on. [`check_confinement`] refuses a list of
/// hosts then.
fn in_force(mut policy: Policy) -> Policy {
    if policy.profile == Profile::FullAccess {
        policy.network = true;
        policy.hosts = None;
    }
    policy
}

/// Rejects layers that request a list of hosts without the confinement that enforces it.
///
/// # Errors
/// [`PolicyError::HostsUnconfined`].
pub fn check_confinement(layers: &PolicyLayers) -> Result<(), PolicyError> {
    // Safe mode is left out: it only narrows, and may end at any time.
    let PolicyLayers { configuration, workspace, session, .. } = layers.clone();
    let policy = resolve([configuration, workspace, session]);
    if policy.profile == Profile::FullAccess && policy.network_mode() == NetworkMode::Hosts {
        Err(PolicyError::HostsUnconfined)
    } else {
        Ok(())
    }
}

fn check_list(list: &'static str, paths: &[PathBuf]) -> Result<(), PolicyError> {
    if MAX_ROOTS < paths.len() {
        return Err(PolicyError::TooMany { list, count: paths.len() });
    }
    for path in paths {
        if let Some(reason) = path_problem(path) {
            return Err(path_error(list, path, reason));
        }
    }
    Ok(())
}

fn path_error(list: &'static str, path: &Path, reason: &'static str) -> PolicyError {
    let path = path.to_string_lossy().chars().take(200).collect();
    PolicyError::Path { list, path, reason }
}

/// Returns the reason why a path is not valid in a policy or a plan, or `None` if it is valid.
#[must_use]
pub fn path_problem(path: &Path) -> Option<&'static str> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.contains(&0) {
        return Some("has a NUL byte");
    }
    if MAX_PATH_BYTES <= bytes.len() {
        return Some("is too long");
    }

    if !path.is_absolute() {
        return Some("is not absolute");
    }
    if path.parent().is_none() {
        return Some("is the root of the file system");
    }

    // `components` already drops `.` and double slashes.
    if path.components().any(|component| matches!(component, Component::ParentDir)) {
        return Some("has a `..`");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_root(root: &str) -> Policy {
        Policy { writable_roots: vec![root.into()], ..Policy::default() }
    }

    fn check(policy: &Policy) -> Result<(), PolicyError> {
        validate(policy, Path::new("/home/u"), Path::new("/home/u/.local/state/quackd"))
    }

    #[test]
    fn the_default_writes_the_workspace_and_has_no_network() {
        let policy = resolve([]);
        assert_eq!(policy, Policy::default());
        assert_eq!(policy.to_string(), "workspace-write, network off");
        assert_eq!(check(&policy), Ok(()));
    }

    #[test]
    fn a_narrower_layer_wins_and_cannot_unhide() {
        let file = PolicyPatch {
            network: Some(NetworkMode::On),
            hidden: Some(vec!["/a".into()]),
            ..PolicyPatch::default()
        };
        let session = PolicyPatch {
            profile: Some(Profile::ReadOnly),
            network: Some(NetworkMode::Off),
            hidden: Some(vec!["/b".into(), "/a".into()]),
            ..PolicyPatch::default()
        };
        let policy = resolve([file, PolicyPatch::default(), session]);
        assert_eq!(policy.profile, Profile::ReadOnly);
        assert!(!policy.network && !policy.may_write());
        assert_eq!(policy.hidden, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(policy.to_string(), "read-only, network off, 2 hidden");
    }

    #[test]
    fn roots_that_would_open_everything_are_refused() {
        let refused = [
            "/",
            "relative",
            "/home",
            "/home/u",
            "/home/u/.local/state",
            "/home/u/.local/state/quackd/run",
            "/srv/../home/u",
            "/a\0b",
        ];
        for root in refused {
            assert!(check(&with_root(root)).is_err(), "{root:?} was accepted");
        }
        for root in ["/home/u/work", "/home/u2", "/srv/data"] {
            assert_eq!(check(&with_root(root)), Ok(()), "{root}");
        }
    }

    #[test]
    fn a_narrower_policy_does_not_read_all_of_a_wider_one() {
        let usual = Policy::default();
        let full = Policy { profile: Profile::FullAccess, ..Policy::default() };
        let hiding = |paths: &[&str]| Policy {
            hidden: paths.iter().map(PathBuf::from).collect(),
            ..Policy::default()
        };
        let read_only = Policy { profile: Profile::ReadOnly, ..Policy::default() };
        for (wanted, given, expected) in [
            (&usual, &usual, true),
            (&read_only, &usual, true),
            (&full, &usual, true),
            (&usual, &full, false),
            (&hiding(&["/w/env"]), &usual, false),
            (&usual, &hiding(&["/w/env"]), true),
            (&hiding(&["/w/env/deep"]), &hiding(&["/w/env"]), true),
            (&hiding(&["/w"]), &hiding(&["/w/env"]), false),
            (&usual, &with_root("/srv/data"), false),
            (&with_root("/srv"), &with_root("/srv/data"), true),
            (&with_root("/srv"), &usual, true),
        ] {
            assert_eq!(reads_all_of(wanted, given), expected, "{wanted:?} {given:?}");
        }
    }

    #[test]
    fn the_strongest_list_of_hosts_counts_and_denied_hosts_add_up() {
        let layer = |hosts: &[&str]| PolicyPatch {
            network: Some(NetworkMode::Hosts),
            hosts: Some(hosts.iter().map(|&rule| rule.to_owned()).collect()),
            ..PolicyPatch::default()
        };
        let hosts =
            |layers: &[&[&str]]| resolve(layers.iter().map(|rules| layer(rules))).hosts.unwrap();
        assert_eq!(
            hosts(&[&["a.example", "!x.example"], &["b.example"]]),
            ["!x.example", "b.example"]
        );
        assert_eq!(hosts(&[&["a.example"], &["!x.example"]]), ["a.example", "!x.example"]);
        assert_eq!(hosts(&[&["a.example"], &[]]), ["a.example"]);
        assert_eq!(hosts(&[&[]]), [""; 0]);
        let off = PolicyPatch { network: Some(NetworkMode::Off), ..PolicyPatch::default() };
        assert_eq!(resolve([layer(&["a.example"]), off]).network_mode(), NetworkMode::Off);
        let full = PolicyPatch { profile: Some(Profile::FullAccess), ..layer(&[]) };
        let layers = PolicyLayers { session: full, ..PolicyLayers::default() };
        assert_eq!(check_confinement(&layers), Err(PolicyError::HostsUnconfined));
        assert_eq!(resolve_layers(layers).network_mode(), NetworkMode::On);
    }

    #[test]
    fn a_worker_with_a_proxy_keeps_running_when_its_hosts_or_their_mode_change() {
        let with = |hosts: Option<&[&str]>| Policy {
            hosts: hosts.map(|rules| rules.iter().map(|&rule| rule.to_owned()).collect()),
            ..Policy::default()
        };
        let on = Policy { network: true, ..Policy::default() };
        for has_proxy in [false, true] {
            assert!(confines_like(&with(Some(&["a.example"])), &with(Some(&[])), has_proxy));
            assert_eq!(confines_like(&with(None), &with(Some(&[])), has_proxy), has_proxy);
            assert_eq!(confines_like(&with(Some(&[])), &with(None), has_proxy), has_proxy);
            assert!(!confines_like(&with(Some(&[])), &on, has_proxy));
            assert!(!confines_like(&on, &with(None), has_proxy));
        }
    }

    #[test]
    fn full_access_has_the_network() {
        let full = Policy { profile: Profile::FullAccess, ..Policy::default() };
        assert_eq!(in_force(full).to_string(), "full-access, network on");
        assert_eq!(in_force(Policy::default()), Policy::default());
    }

    #[test]
    fn lists_are_bounded() {
        let many = (0..=MAX_ROOTS).map(|n| PathBuf::from(format!("/r/{n}"))).collect();
        let policy = Policy { hidden: many, ..Policy::default() };
        assert_eq!(check(&policy), Err(PolicyError::TooMany { list: "hidden", count: 65 }));
        let long =
            Policy { hidden: vec![format!("/{}", "x".repeat(4096)).into()], ..Policy::default() };
        assert!(check(&long).is_err());
    }
}
