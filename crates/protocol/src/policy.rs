//! Permissions of a session's worker as data: profile, network, extra roots.
//!
//! Defines the type, merges layers of settings into one policy, and rejects invalid values. Makes no system calls. The
//! configuration and the supervisor resolve and show policies. The worker's stage 0 (`quackd-sandbox`) translates them
//! into kernel rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Most roots of one kind in a policy. Each costs a mount in every worker.
pub const MAX_ROOTS: usize = 64;

/// Longest path in a policy, in bytes: the kernel's limit for one.
pub const MAX_PATH_BYTES: usize = 4096;

/// File access of a worker and its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Read the workspace. Write only private temporary files.
    ReadOnly,
    /// Write the workspace and the extra roots, except names through which other programs would run code.
    #[default]
    WorkspaceWrite,
    /// Everything that the user may do: no confinement.
    FullAccess,
}

impl Profile {
    /// Every profile, from the narrowest to the widest.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::WorkspaceWrite, Self::FullAccess];

    /// Returns the name in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::FullAccess => "full-access",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|profile| profile.name() == text);
        known.ok_or_else(|| PolicyError::Profile { given: text.chars().take(64).collect() })
    }
}

/// Whether a session may search the web. The query leaves the machine, even if the session's network is off. The
/// supervisor sends the query and enforces the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WebSearchRule {
    /// Without approval.
    #[default]
    On,
    /// Only after the user has approved the search. quackd cannot ask for approval yet, so it refuses the search.
    Ask,
    /// Never.
    Off,
}

impl WebSearchRule {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::On, Self::Ask, Self::Off];

    /// Returns the name in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Ask => "ask",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for WebSearchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WebSearchRule {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|rule| rule.name() == text);
        known.ok_or_else(|| PolicyError::WebSearch { given: text.chars().take(64).collect() })
    }
}

/// Permissions of a session's worker. A running worker keeps its policy until it exits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// File access.
    pub profile: Profile,
    /// True if the worker may use the machine's network. Otherwise it has only its own loopback interface.
    pub network: bool,
    /// Whether the session may search the web through the supervisor. A change takes effect at once, even for a running
    /// worker.
    pub web_search: WebSearchRule,
    /// Writable directories in addition to the workspace: absolute, normalized, existing.
    pub writable_roots: Vec<PathBuf>,
    /// Files and directories that appear empty in the worker, wherever they would be visible.
    pub hidden: Vec<PathBuf>,
}

/// One layer of settings. `None` keeps the value of the layers below.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPatch {
    /// File access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Whether the worker may use the machine's network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// Whether the session may search the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_search: Option<WebSearchRule>,
    /// Writable directories in addition to the workspace. Replaces those of weaker layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writable_roots: Option<Vec<PathBuf>>,
    /// Hidden files and directories. Adds to those of weaker layers: a narrower layer cannot show a path that a wider
    /// one hides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Vec<PathBuf>>,
}

impl PolicyPatch {
    /// Returns this layer with `above` on top of it, as one layer.
    #[must_use]
    pub fn merge(self, above: Self) -> Self {
        let hidden = match (self.hidden, above.hidden) {
            (Some(mut below), Some(above)) => {
                add_new(&mut below, above);
                Some(below)
            }
            (below, above) => above.or(below),
        };
        Self {
            profile: above.profile.or(self.profile),
            network: above.network.or(self.network),
            web_search: above.web_search.or(self.web_search),
            writable_roots: above.writable_roots.or(self.writable_roots),
            hidden,
        }
    }

    /// Returns true if nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn add_new(to: &mut Vec<PathBuf>, from: Vec<PathBuf>) {
    for path in from {
        if !to.contains(&path) {
            to.push(path);
        }
    }
}

/// Reason for rejecting a policy. Each text is one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// No profile has this name.
    #[error("{given:?} is no profile: read-only, workspace-write or full-access")]
    Profile {
        /// The given name, cut to 64 characters.
        given: String,
    },
    /// No rule has this name.
    #[error("{given:?} is no rule for web_search: on, ask or off")]
    WebSearch {
        /// The given text, cut to 64 characters.
        given: String,
    },
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
}

impl Policy {
    /// Applies the layers to the defaults, the narrowest layer last.
    #[must_use]
    pub fn resolve(layers: impl IntoIterator<Item = PolicyPatch>) -> Self {
        let patch = layers.into_iter().fold(PolicyPatch::default(), PolicyPatch::merge);
        Self {
            profile: patch.profile.unwrap_or_default(),
            network: patch.network.unwrap_or_default(),
            web_search: patch.web_search.unwrap_or_default(),
            writable_roots: patch.writable_roots.unwrap_or_default(),
            hidden: patch.hidden.unwrap_or_default(),
        }
    }

    /// Rejects invalid values. `home` is the user's home directory, `state_dir` the daemon's state directory. A
    /// writable root must not be `/`, the home directory or one of its parents. It must not contain the state directory
    /// or be inside it.
    ///
    /// # Errors
    /// The first problem.
    pub fn validate(&self, home: &Path, state_dir: &Path) -> Result<(), PolicyError> {
        check_list("writable", &self.writable_roots)?;
        check_list("hidden", &self.hidden)?;
        for root in &self.writable_roots {
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

    /// Returns true if a worker with this policy may keep running when `other` replaces it. Ignores the fields that the
    /// supervisor enforces itself.
    #[must_use]
    pub fn confines_like(&self, other: &Self) -> bool {
        Self { web_search: other.web_search, ..self.clone() } == *other
    }

    /// Returns true if a worker with this policy may read everything that `other` allows it to read.
    #[must_use]
    pub fn reads_all_of(&self, other: &Self) -> bool {
        let hides = |path: &PathBuf| other.hidden.iter().any(|hidden| path.starts_with(hidden));
        let shows = |root: &PathBuf| self.writable_roots.iter().any(|one| root.starts_with(one));
        let has_all = self.profile == Profile::FullAccess;
        has_all
            || other.profile != Profile::FullAccess
                && self.hidden.iter().all(hides)
                && other.writable_roots.iter().all(shows)
    }

    /// Returns the policy as it is enforced: `FullAccess` leaves the network on.
    #[must_use]
    pub fn in_force(mut self) -> Self {
        self.network |= self.profile == Profile::FullAccess;
        self
    }

    /// Returns true if a worker may change the workspace.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.profile != Profile::ReadOnly
    }
}

impl fmt::Display for Policy {
    /// Writes one line: `workspace-write, network off, 1 extra root`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = if self.network { "on" } else { "off" };
        write!(f, "{}, network {network}", self.profile)?;
        match self.writable_roots.len() {
            0 => {}
            1 => f.write_str(", 1 extra root")?,
            n => write!(f, ", {n} extra roots")?,
        }
        if self.web_search != WebSearchRule::On {
            write!(f, ", web search {}", self.web_search)?;
        }
        match self.hidden.len() {
            0 => Ok(()),
            n => write!(f, ", {n} hidden"),
        }
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
    if path.components().any(|one| matches!(one, Component::ParentDir)) {
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
        policy.validate(Path::new("/home/u"), Path::new("/home/u/.local/state/quackd"))
    }

    #[test]
    fn the_default_writes_the_workspace_and_has_no_network() {
        let policy = Policy::resolve([]);
        assert_eq!(policy, Policy::default());
        assert_eq!(policy.to_string(), "workspace-write, network off");
        assert_eq!(check(&policy), Ok(()));
    }

    #[test]
    fn a_narrower_layer_wins_and_cannot_unhide() {
        let file = PolicyPatch {
            network: Some(true),
            hidden: Some(vec!["/a".into()]),
            ..PolicyPatch::default()
        };
        let session = PolicyPatch {
            profile: Some(Profile::ReadOnly),
            network: Some(false),
            hidden: Some(vec!["/b".into(), "/a".into()]),
            ..PolicyPatch::default()
        };
        let policy = Policy::resolve([file, PolicyPatch::default(), session]);
        assert_eq!(policy.profile, Profile::ReadOnly);
        assert!(!policy.network && !policy.may_write());
        assert_eq!(policy.hidden, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(policy.to_string(), "read-only, network off, 2 hidden");
    }

    #[test]
    fn profiles_have_names_and_others_are_refused_by_a_sentence() {
        for profile in Profile::ALL {
            assert_eq!(profile.name().parse(), Ok(profile));
        }
        let error = "readonly".parse::<Profile>().unwrap_err();
        let text = "\"readonly\" is no profile: read-only, workspace-write or full-access";
        assert_eq!(error.to_string(), text);
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
            assert_eq!(wanted.reads_all_of(given), expected, "{wanted:?} {given:?}");
        }
    }

    #[test]
    fn full_access_has_the_network() {
        let full = Policy { profile: Profile::FullAccess, ..Policy::default() };
        assert_eq!(full.in_force().to_string(), "full-access, network on");
        assert_eq!(Policy::default().in_force(), Policy::default());
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
