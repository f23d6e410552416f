//! Permissions of a session's worker as data: profile, network, hosts, extra roots.
//!
//! `quackd-policy` resolves, checks and compares policies. The worker's stage 0 (`quackd-sandbox`) translates them into
//! kernel rules.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
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

/// Network of a worker and its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// Only the worker's own loopback interface.
    #[default]
    Off,
    /// The hosts that rules name, through a proxy.
    Hosts,
    /// The machine's network, without restriction.
    On,
}

impl NetworkMode {
    /// Every mode, from the narrowest to the widest.
    pub const ALL: [Self; 3] = [Self::Off, Self::Hosts, Self::On];

    /// Returns the name in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Hosts => "hosts",
            Self::On => "on",
        }
    }
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for NetworkMode {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| UnknownName::Network { given: text.chars().take(64).collect() })
    }
}

/// Permissions of a session's worker. A running worker keeps it until it exits, except for `hosts`,
/// `web_search`, and a change between a network that is off and one of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// File access.
    pub profile: Profile,
    /// True if the worker may use the machine's network without restriction.
    pub network: bool,
    /// Rules of the hosts that commands may reach, if the mode is [`NetworkMode::Hosts`]. A change takes effect at once,
    /// also for a running worker. The grants of the user are in addition to these rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Whether the session may search the web through the supervisor. A change takes effect at once, even for a running
    /// worker.
    pub web_search: WebSearchRule,
    /// Writable directories in addition to the workspace: absolute, normalized, existing.
    pub writable_roots: Vec<PathBuf>,
    /// Files and directories that appear empty in the worker, wherever they would be visible.
    pub hidden: Vec<PathBuf>,
}

/// One layer of settings. `None` keeps the value of the layers below.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "PatchText", into = "PatchText")]
pub struct PolicyPatch {
    /// File access.
    pub profile: Option<Profile>,
    /// Network of the worker.
    pub network: Option<NetworkMode>,
    /// Whether the session may search the web.
    pub web_search: Option<WebSearchRule>,
    /// Rules of the hosts for [`NetworkMode::Hosts`]. The strongest layer that allows any host replaces the allowed hosts
    /// of weaker layers. Denied hosts of all layers add up.
    pub hosts: Option<Vec<String>>,
    /// Writable directories in addition to the workspace. Replaces those of weaker layers.
    pub writable_roots: Option<Vec<PathBuf>>,
    /// Hidden files and directories. Adds to those of weaker layers: a narrower layer cannot show a path that a wider
    /// one hides.
    pub hidden: Option<Vec<PathBuf>>,
}

/// A [`PolicyPatch`] as JSON. Programs that do not know `networkMode` see a network that is off in place of
/// [`NetworkMode::Hosts`].
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "PolicyPatch")]
struct PatchText {
    /// File access.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
    /// Network of the worker: `"off"`, `"hosts"` or `"on"`, or false for off and true for on. Replies have a boolean,
    /// which is true only for an unrestricted network.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkText>,
    /// `hosts` if the worker may reach the hosts of its rules only. Wins over `network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    network_mode: Option<NetworkMode>,
    /// Whether the session may search the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    web_search: Option<WebSearchRule>,
    /// Rules of the hosts that commands may reach, if the mode is `hosts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<Vec<String>>,
    /// Writable directories in addition to the workspace. Replaces those of weaker layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    writable_roots: Option<Vec<PathBuf>>,
    /// Hidden files and directories. Adds to those of weaker layers: a narrower layer cannot show a path that a wider
    /// one hides.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<Vec<PathBuf>>,
}

/// [`PatchText::network`].
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum NetworkText {
    IsOn(bool),
    Mode(NetworkMode),
}

impl From<PatchText> for PolicyPatch {
    fn from(text: PatchText) -> Self {
        let network = text.network.map(|network| match network {
            NetworkText::IsOn(false) => NetworkMode::Off,
            NetworkText::IsOn(true) => NetworkMode::On,
            NetworkText::Mode(mode) => mode,
        });
        Self {
            profile: text.profile,
            network: text.network_mode.or(network),
            web_search: text.web_search,
            hosts: text.hosts,
            writable_roots: text.writable_roots,
            hidden: text.hidden,
        }
    }
}

impl From<PolicyPatch> for PatchText {
    fn from(patch: PolicyPatch) -> Self {
        Self {
            profile: patch.profile,
            network: patch.network.map(|mode| NetworkText::IsOn(mode == NetworkMode::On)),
            network_mode: patch.network.filter(|mode| *mode == NetworkMode::Hosts),
            web_search: patch.web_search,
            hosts: patch.hosts,
            writable_roots: patch.writable_roots,
            hidden: patch.hidden,
        }
    }
}

impl JsonSchema for PolicyPatch {
    fn schema_name() -> Cow<'static, str> {
        PatchText::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PatchText::json_schema(generator)
    }
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
    /// No mode of the network has this name.
    #[error("{given:?} is not a mode of the network: off, hosts or on")]
    Network {
        /// The given text, cut to 64 characters.
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
    /// Returns the mode of the network.
    #[must_use]
    pub fn network_mode(&self) -> NetworkMode {
        match (self.network, &self.hosts) {
            (true, _) => NetworkMode::On,
            (false, Some(_)) => NetworkMode::Hosts,
            (false, None) => NetworkMode::Off,
        }
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
        write!(f, "{}, network {}", self.profile, self.network_mode())?;
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

    #[test]
    fn a_list_of_hosts_looks_like_no_network_to_older_programs() {
        let read = |text: &str| serde_json::from_str::<PolicyPatch>(text).unwrap();
        for (text, mode) in [
            (r#"{"network":false}"#, NetworkMode::Off),
            (r#"{"network":true}"#, NetworkMode::On),
            (r#"{"network":"hosts"}"#, NetworkMode::Hosts),
            (r#"{"network":"off"}"#, NetworkMode::Off),
            (r#"{"network":false,"networkMode":"hosts"}"#, NetworkMode::Hosts),
        ] {
            assert_eq!(read(text).network, Some(mode), "{text}");
            let back = serde_json::to_string(&read(text)).unwrap();
            assert_eq!(read(&back), read(text));
        }
        let hosts = read(r#"{"network":"hosts","hosts":["a.example"]}"#);
        let text = r#"{"network":false,"networkMode":"hosts","hosts":["a.example"]}"#;
        assert_eq!(serde_json::to_string(&hosts).unwrap(), text);
        assert!(serde_json::from_str::<PolicyPatch>(r#"{"network":"some"}"#).is_err());
    }
}
