//! Presets: lists of hosts with a name, as data. Hosts that only receive uploads are in none.
//!
//! For package registries a row has the kind of the user's tools that know the hosts, and no host.

use super::{HostRule, HostTarget, Rule};
use quackd_protocol::environment::ToolKind;
use quackd_protocol::state::FoundPreset;
use std::collections::BTreeMap;

/// A preset.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Name without `@`.
    pub name: &'static str,
    /// Purpose, for display.
    pub about: &'static str,
    /// Source of its hosts.
    pub hosts: PresetHosts,
    /// Date of the last test of fixed hosts with the real program. `None` if they were never tested.
    pub tested: Option<&'static str>,
    /// Warning for display.
    pub warning: Option<&'static str>,
}

/// Source of a preset's hosts.
#[derive(Debug, Clone, Copy)]
pub enum PresetHosts {
    /// These rules.
    Fixed(&'static [&'static str]),
    /// The hosts of these presets.
    All(&'static [&'static str]),
    /// The hosts that the user's tools are configured to use. Asked when a rule is set.
    Derived(ToolKind),
}

const fn fixed(name: &'static str, about: &'static str, hosts: &'static [&'static str]) -> Preset {
    Preset { name, about, hosts: PresetHosts::Fixed(hosts), tested: None, warning: None }
}

const fn all(name: &'static str, about: &'static str, presets: &'static [&'static str]) -> Preset {
    Preset { name, about, hosts: PresetHosts::All(presets), tested: None, warning: None }
}

const fn derived(name: &'static str, about: &'static str, tool: ToolKind) -> Preset {
    Preset { name, about, hosts: PresetHosts::Derived(tool), tested: None, warning: None }
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
    derived("crates", "registries of your cargo", ToolKind::Crates),
    Preset {
        warning: Some("npm also publishes to the registries that it reads from"),
        ..derived("npm", "registries of your npm", ToolKind::Npm)
    },
    derived("pypi", "package indexes of your pip and uv", ToolKind::Pypi),
    derived("go", "module proxies of your go", ToolKind::Go),
    derived("system", "package sources of your system (apt)", ToolKind::System),
    derived("rust", "servers of your rustup", ToolKind::Rust),
    derived("node", "server of your Node.js releases", ToolKind::Node),
    all(
        "registries",
        "all of your tools above, except @rust and @node",
        &["crates", "npm", "pypi", "go", "system"],
    ),
];

/// Returns the preset with this name, without `@`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// Returns the fixed and derived presets of a preset, itself included. None for a name that no preset has.
#[must_use]
pub fn parts(name: &str) -> Vec<&'static Preset> {
    match find(name) {
        Some(Preset { hosts: PresetHosts::All(names), .. }) => {
            names.iter().flat_map(|part| parts(part)).collect()
        }
        Some(preset) => vec![preset],
        None => Vec::new(),
    }
}

/// Returns the rules of a preset. `found` has the hosts of derived presets.
#[must_use]
pub fn expand<'a>(name: &str, found: &'a BTreeMap<String, FoundPreset>) -> Vec<&'a str> {
    let rules_of = |part: &'static Preset| -> Vec<&'a str> {
        match part.hosts {
            PresetHosts::Fixed(hosts) => hosts.to_vec(),
            PresetHosts::All(_) => Vec::new(),
            PresetHosts::Derived(_) => {
                let hosts = found.get(part.name).map(|found| found.hosts.as_slice());
                hosts.unwrap_or_default().iter().map(|host| host.rule.as_str()).collect()
            }
        }
    };
    parts(name).into_iter().flat_map(rules_of).collect()
}

/// Returns the derived presets that the rules name, each with the name of the rule's preset.
#[must_use]
pub fn derived_in(rules: &[String]) -> Vec<(&'static Preset, &'static Preset)> {
    let named =
        rules.iter().filter_map(|rule| find(rule.trim_start_matches('!').strip_prefix('@')?));

    let all = named.flat_map(|named| parts(named.name).into_iter().map(move |part| (named, part)));
    all.filter(|(_, part)| matches!(part.hosts, PresetHosts::Derived(_))).collect()
}

/// Returns true if a tool's host may become a rule: a name, or an address of another machine.
#[must_use]
pub fn is_usable(rule: &str) -> bool {
    let Ok(Rule::Host(HostRule { denies: false, raw: false, target, .. })) = rule.parse() else {
        return false;
    };
    match target {
        HostTarget::Name(name) => name != "localhost" && !name.ends_with(".localhost"),
        HostTarget::Addresses(net) => {
            let (address, is_one) = (net.addr(), net.prefix_len() == net.max_prefix_len());
            is_one && !address.is_loopback() && !address.is_unspecified()
        }
        HostTarget::Below(_) | HostTarget::Machine | HostTarget::All => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::state::FoundHost;

    #[test]
    fn every_preset_has_rules_that_can_be_read() {
        let found = BTreeMap::new();
        for preset in PRESETS {
            assert!(matches!(format!("@{}", preset.name).parse(), Ok(Rule::Preset { .. })));
            for rule in expand(preset.name, &found) {
                let parsed: Rule = rule.parse().unwrap();
                assert_eq!(parsed.to_string(), rule);
            }
            if let PresetHosts::All(parts) = preset.hosts {
                assert!(parts.iter().all(|part| find(part).is_some()), "{}", preset.name);
            }
        }
        assert!(expand("models", &found).len() > expand("openai", &found).len());
    }

    #[test]
    fn derived_presets_have_the_hosts_that_were_found() {
        let host = |rule: &str| FoundHost { rule: rule.into(), source: String::new() };
        let preset = |rule| FoundPreset { at: String::new(), hosts: vec![host(rule)] };
        let found = [("npm", "npm.test.example"), ("go", "go.test.example:8443")];
        let found = found.map(|(name, rule)| (name.to_owned(), preset(rule))).into();
        assert_eq!(expand("npm", &found), ["npm.test.example"]);
        assert_eq!(expand("registries", &found), ["npm.test.example", "go.test.example:8443"]);
        assert!(expand("crates", &found).is_empty() && expand("no", &found).is_empty());
        let rules = ["a.example", "!@go", "@github", "@registries"].map(str::to_owned);
        let named: Vec<_> = derived_in(&rules).iter().map(|(by, of)| (by.name, of.name)).collect();
        assert_eq!(named.first(), Some(&("go", "go")));
        assert_eq!(named.len(), 6);
    }

    #[test]
    fn a_tool_cannot_name_this_machine_or_more_than_a_host() {
        for rule in ["a.example", "a.example:8443", "10.0.0.7:8081", "[2001:db8::1]:80"] {
            assert!(is_usable(rule), "{rule}");
        }
        for rule in [
            "machine:80",
            "host.quackd.internal:80",
            "localhost",
            "a.localhost:80",
            "127.0.0.1",
            "[::1]:80",
            "0.0.0.0",
            "*.a.example",
            "!a.example",
            "@npm",
            "10.0.0.0/8",
            "a.example/raw",
            "a b",
            "",
        ] {
            assert!(!is_usable(rule), "{rule}");
        }
    }
}
