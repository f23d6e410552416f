//! Presets: lists of hosts with a name, as data. Hosts that only receive uploads are in none.

/// A preset.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Name without `@`.
    pub name: &'static str,
    /// Purpose, for display.
    pub about: &'static str,
    /// Source of its hosts.
    pub hosts: PresetHosts,
}

/// Source of a preset's hosts.
#[derive(Debug, Clone, Copy)]
pub enum PresetHosts {
    /// These rules.
    Fixed(&'static [&'static str]),
    /// The hosts of these presets.
    All(&'static [&'static str]),
}

const fn fixed(name: &'static str, about: &'static str, hosts: &'static [&'static str]) -> Preset {
    Preset { name, about, hosts: PresetHosts::Fixed(hosts) }
}

const fn all(name: &'static str, about: &'static str, presets: &'static [&'static str]) -> Preset {
    Preset { name, about, hosts: PresetHosts::All(presets) }
}

/// All presets.
pub const PRESETS: &[Preset] = &[
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

/// Returns the rules of a preset. None for a name that no preset has.
#[must_use]
pub fn expand(name: &str) -> Vec<&'static str> {
    match find(name).map(|preset| preset.hosts) {
        Some(PresetHosts::Fixed(hosts)) => hosts.to_vec(),
        Some(PresetHosts::All(parts)) => parts.iter().flat_map(|part| expand(part)).collect(),
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
            for rule in expand(preset.name) {
                let parsed: Rule = rule.parse().unwrap();
                assert_eq!(parsed.to_string(), rule);
            }
            if let PresetHosts::All(parts) = preset.hosts {
                assert!(parts.iter().all(|part| find(part).is_some()), "{}", preset.name);
            }
        }
        assert!(expand("models").len() > expand("openai").len());
    }
}
