//! Permissions of a session's worker as data: profile, network, extra roots.
//!
//! `quackd-policy` resolves, checks and compares policies. The worker's stage 0 (`quackd-sandbox`) translates them into
//! kernel rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

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
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|profile| profile.name() == text);
        known.ok_or_else(|| UnknownName::Profile { given: text.chars().take(64).collect() })
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
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|rule| rule.name() == text);
        known.ok_or_else(|| UnknownName::WebSearch { given: text.chars().take(64).collect() })
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
    /// Returns true if nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An unknown name of a profile or of a rule. The text is one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownName {
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
}

impl Policy {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_names_and_others_are_refused_by_a_sentence() {
        for profile in Profile::ALL {
            assert_eq!(profile.name().parse(), Ok(profile));
        }
        let error = "readonly".parse::<Profile>().unwrap_err();
        let text = "\"readonly\" is no profile: read-only, workspace-write or full-access";
        assert_eq!(error.to_string(), text);
    }
}
