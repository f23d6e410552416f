//! Presets: lists of hosts with a name, as data.
//!
//! The hosts of package registries are not here: `@npm` and the like stand for the servers that the user's own tools are
//! configured to use, so that mirrors work. The daemon asks these tools when a rule names the preset.

use quackd_protocol::state::DerivedPreset;
use std::collections::BTreeMap;

/// A preset.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Name without `@`.
    pub name: &'static str,
    /// Purpose, for display.
    pub about: &'static str,
    /// Where its hosts come from.
    pub hosts: PresetHosts,
}

/// Where the hosts of a preset come from.
#[derive(Debug, Clone, Copy)]
pub enum PresetHosts {
    /// These rules.
    Fixed(&'static [&'static str]),
    /// The configuration of the user's tool.
    Derived,
    /// The hosts of these presets.
    All(&'static [&'static str]),
}

const fn fixed(name: &'static str, about: &'static str, hosts: &'static [&'static str]) -> Preset {
    Preset { name, about, hosts: PresetHosts::Fixed(hosts) }
}

const fn derived(name: &'static str, about: &'static str) -> Preset {
    Preset { name, about, hosts: PresetHosts::Derived }
}

const fn all(name: &'static str, about: &'static str, presets: &'static [&'static str]) -> Preset {
    Preset { name, about, hosts: PresetHosts::All(presets) }
}

/// All presets. Hosts that only receive uploads are in none.
pub const PRESETS: &[Preset] = &[
    derived("crates", "the registries that cargo is configured to use"),
    derived("npm", "the registries that npm is configured to use; npm also publishes to them"),
    derived("pypi", "the package indexes that pip is configured to use"),
    derived("go", "the module proxy and checksum database that go is configured to use"),
    derived("system", "the package sources of the system, such as apt's"),
    all("registries", "all of the above", &["crates", "npm", "pypi", "go", "system"]),
    fixed(
        "github",
        "GitHub over https",
        &[
            "github.com",
            "api.github.com",
            "codeload.github.com",
            "raw.githubusercontent.com",
            "objects.githubusercontent.com",
            "release-assets.githubusercontent.com",
        ],
    ),
    fixed("github-ssh", "GitHub over ssh", &["github.com:22", "ssh.github.com:443/raw"]),
    fixed("gitlab", "GitLab over https", &["gitlab.com"]),
    fixed(
        "anthropic",
        "Anthropic's models",
        &["api.anthropic.com", "claude.ai", "platform.claude.com"],
    ),
    fixed("openai", "OpenAI's models", &["api.openai.com", "auth.openai.com", "chatgpt.com"]),
    fixed("openrouter", "OpenRouter's models", &["openrouter.ai"]),
    fixed(
        "google",
        "Google's models",
        &[
            "generativelanguage.googleapis.com",
            "cloudcode-pa.googleapis.com",
            "oauth2.googleapis.com",
            "accounts.google.com",
        ],
    ),
    all("models", "all model providers above", &["anthropic", "openai", "openrouter", "google"]),
];

/// Finds a preset.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// Returns the names of the derived presets that `name` needs.
#[must_use]
pub fn derived_parts(name: &str) -> Vec<&'static str> {
    match find(name) {
        Some(Preset { name, hosts: PresetHosts::Derived, .. }) => vec![name],
        Some(Preset { hosts: PresetHosts::All(parts), .. }) => {
            parts.iter().flat_map(|part| derived_parts(part)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the rules of a preset. A derived preset that was never asked for has none.
#[must_use]
pub fn expand(name: &str, derived: &BTreeMap<String, DerivedPreset>) -> Vec<String> {
    match find(name).map(|preset| preset.hosts) {
        Some(PresetHosts::Fixed(hosts)) => hosts.iter().map(|&host| host.to_owned()).collect(),
        Some(PresetHosts::Derived) => {
            derived.get(name).map(|found| found.hosts.clone()).unwrap_or_default()
        }
        Some(PresetHosts::All(parts)) => {
            parts.iter().flat_map(|part| expand(part, derived)).collect()
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::Rule;

    #[test]
    fn every_preset_has_rules_that_can_be_read() {
        for preset in PRESETS {
            assert!(matches!(format!("@{}", preset.name).parse(), Ok(Rule::Preset { .. })));
            for rule in expand(preset.name, &BTreeMap::new()) {
                let parsed: Rule = rule.parse().unwrap();
                assert_eq!(parsed.to_string(), rule);
            }
            if let PresetHosts::All(parts) = preset.hosts {
                assert!(parts.iter().all(|part| find(part).is_some()), "{}", preset.name);
            }
        }
        assert_eq!(derived_parts("registries").len(), 5);
        let found = DerivedPreset { hosts: vec!["a.example".into()], ..DerivedPreset::default() };
        let derived = BTreeMap::from([("npm".to_owned(), found)]);
        assert_eq!(expand("registries", &derived), ["a.example"]);
    }
}
