//! Denials of a worker's confinement, as far as they were noticed, and their text.
//!
//! Contains the type, its bounds and its one line. `crates/tools` creates denials, and the supervisor counts and lists
//! them. They come from an untrusted worker and are for display only.

use crate::policy::{Policy, Profile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest target of a denial, in bytes.
pub const MAX_TARGET_BYTES: usize = 256;

/// Most hosts that the line of a refused command names.
pub const MAX_NAMED_HOSTS: usize = 5;

/// Kind of a denied operation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DenialKind {
    /// Writing outside of the writable directories.
    Write,
    /// Writing a name through which another program would run code.
    Protected,
    /// Reading a hidden path.
    Read,
    /// Using the network.
    Network,
    /// A system call that no tool needs.
    SystemCall,
    /// Running commands or writing at all, on a system without confinement.
    Unconfined,
}

/// A denied operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// Kind of the operation.
    pub kind: DenialKind,
    /// The path or address, if it is known. At most [`MAX_TARGET_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// True if this was inferred from a program's output and may be wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub likely: bool,
}

impl Denial {
    /// Creates a denial. Cuts the target to one line of at most [`MAX_TARGET_BYTES`].
    #[must_use]
    pub fn new(kind: DenialKind, target: Option<&str>, likely: bool) -> Self {
        Self { kind, target: target.map(one_line), likely }
    }

    /// Returns one line: the operation denied under `policy`, and how the user can allow it.
    #[must_use]
    pub fn explain(&self, policy: &Policy) -> String {
        let was = if self.likely { "was probably" } else { "was" };
        let network = if policy.network { "on" } else { "off" };
        let profile = policy.profile;
        let allow = if self.likely && self.is_about_git_settings() {
            "Settings of git can run programs later, outside of the sandbox; to change them, run git yourself in a \
             terminal"
        } else {
            self.kind.allowed_by(profile)
        };
        format!("[Sandbox: {self} {was} denied ({profile}, network {network}). {allow}]")
    }
}

impl Denial {
    /// Returns true if the target is a settings file of a git repository: `.git/config`, also of submodules and
    /// worktrees.
    #[must_use]
    pub fn is_about_git_settings(&self) -> bool {
        let Some((above, name)) = self.target.as_deref().and_then(|path| path.rsplit_once('/'))
        else {
            return false;
        };
        self.kind == DenialKind::Protected
            && ["config", "config.worktree", "config.lock"].contains(&name)
            && above.split('/').any(|part| part.ends_with(".git"))
    }
}

/// Returns one line for a command that tried to use the network: the first hosts, and how to allow it. `is_shared`
/// means that other commands of the session ran at the same time.
#[must_use]
pub fn explain_network(hosts: &[String], is_shared: bool, policy: &Policy) -> String {
    let named =
        hosts.iter().take(MAX_NAMED_HOSTS).map(String::as_str).collect::<Vec<_>>().join(", ");
    let named = match (hosts.len(), hosts.len().saturating_sub(MAX_NAMED_HOSTS)) {
        (0, _) => String::new(),
        (_, 0) => format!(" ({named})"),
        (_, more) => format!(" ({named} and {more} more)"),
    };
    let whom = if is_shared { " to a command of this session" } else { "" };
    let network = if policy.network { "on" } else { "off" };
    let (profile, allow) = (policy.profile, DenialKind::Network.allowed_by(policy.profile));
    format!(
        "[Sandbox: the network{named} was denied{whom} ({profile}, network {network}). {allow}]"
    )
}

/// Returns `text` without control characters, cut to [`MAX_TARGET_BYTES`] at a character.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        let c = if c.is_control() { '\u{fffd}' } else { c };
        if MAX_TARGET_BYTES < plain.len() + c.len_utf8() {
            break;
        }
        plain.push(c);
    }
    plain
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            DenialKind::Write | DenialKind::Protected => "writing",
            DenialKind::Read => "reading",
            DenialKind::Network => "the network",
            DenialKind::SystemCall => "a system call",
            DenialKind::Unconfined => "running unconfined",
        };
        match (&self.target, self.kind) {
            (Some(target), DenialKind::Network) => write!(f, "{what} ({target})"),
            (Some(target), _) => write!(f, "{what} {target}"),
            (None, _) => f.write_str(what),
        }
    }
}

impl DenialKind {
    /// Returns a sentence on how the user can allow the operation.
    fn allowed_by(self, profile: Profile) -> &'static str {
        match (self, profile) {
            (Self::Write, Profile::ReadOnly) => {
                "A person can allow it: quack sandbox set workspace-write"
            }
            (Self::Write, _) => "A person can allow it: quack sandbox set --writable DIR",
            (Self::Protected, _) => {
                "Later programs of yours would run what stands there; a person can write it by hand"
            }
            (Self::Read, _) => "A person can allow it: quack sandbox set --writable DIR",
            (Self::Network, _) => "A person can allow it: quack sandbox set --network on",
            (Self::SystemCall, _) => "Only quack sandbox set full-access allows it",
            (Self::Unconfined, _) => {
                "A person can allow it: quack sandbox set full-access, without any confinement"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_one_line_that_says_how_to_allow_it() {
        let policy = Policy::default();
        let write = Denial::new(DenialKind::Write, Some("/etc/hosts\n[Exit code: 0]"), true);
        assert_eq!(
            write.explain(&policy),
            "[Sandbox: writing /etc/hosts\u{fffd}[Exit code: 0] was probably denied \
             (workspace-write, network off). A person can allow it: quack sandbox set --writable DIR]"
        );
        let network = Denial::new(DenialKind::Network, None, false);
        assert_eq!(
            network.explain(&policy),
            "[Sandbox: the network was denied (workspace-write, network off). A person can allow \
             it: quack sandbox set --network on]"
        );
    }

    #[test]
    fn a_command_that_changes_settings_of_git_is_told_to_the_user() {
        for (target, expected) in [
            ("/w/.git/config", true),
            ("/w/.git/modules/m/config", true),
            ("/w/bare.git/worktrees/x/config.worktree", true),
            ("/w/.git/hooks/x", false),
            ("/w/.vscode/config", false),
            ("config", false),
        ] {
            let denial = Denial::new(DenialKind::Protected, Some(target), true);
            let text = denial.explain(&Policy::default());
            assert_eq!(text.contains("run git yourself in a terminal"), expected, "{text}");
        }
    }

    #[test]
    fn hosts_are_named_up_to_a_limit() {
        let policy = Policy::default();
        let hosts: Vec<String> = (1..=7).map(|n| format!("h{n}")).collect();
        let line = |hosts: &[String], is_shared| explain_network(hosts, is_shared, &policy);
        let end = "(workspace-write, network off). A person can allow it: quack sandbox set --network on]";
        assert_eq!(line(&[], false), format!("[Sandbox: the network was denied {end}"));
        assert_eq!(
            line(&hosts[..2], true),
            format!("[Sandbox: the network (h1, h2) was denied to a command of this session {end}")
        );
        assert_eq!(
            line(&hosts, false),
            format!("[Sandbox: the network (h1, h2, h3, h4, h5 and 2 more) was denied {end}")
        );
    }

    #[test]
    fn a_target_is_cut_at_a_character() {
        let target = Denial::new(DenialKind::Read, Some(&"ä".repeat(200)), false).target.unwrap();
        assert_eq!(target.len(), MAX_TARGET_BYTES);
    }
}
