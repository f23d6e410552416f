//! The providers that quackd knows without a configuration, and the usual ports of local servers.

use super::known::maker;
use quackd_protocol::model::ModelApi;
use std::fmt;

/// A provider with a public address.
pub(super) struct Builtin {
    pub(super) name: &'static str,
    /// Variables that may contain the key. The first one that is not blank applies.
    pub(super) keys: &'static [&'static str],
    /// Variable that may contain another base URL.
    pub(super) base_variable: Option<&'static str>,
    pub(super) base_url: &'static str,
    pub(super) api: ModelApi,
    /// Beginning of the provider's keys, if no other provider's keys have it.
    key_prefix: Option<&'static str>,
    /// Models that are listed. The first one is used if none is named. Without those that the provider had retired by
    /// November 2026.
    pub(super) models: &'static [&'static str],
}

/// Source of a key. `Display` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySource {
    /// There is no key.
    None,
    /// A variable.
    Variable(&'static str),
    /// A variable that a client passed on from its shell.
    ShellVariable(&'static str),
    /// The file of `quack login`.
    Login,
    /// `auth.json` of Pi.
    PiAuth,
    /// `models.json` of Pi.
    PiModels,
    /// The configuration.
    Config,
}

impl KeySource {
    /// Returns the reason for a choice because of this key.
    pub(super) fn reason(self) -> String {
        match self {
            Self::Variable(name) | Self::ShellVariable(name) => format!("{name} is set"),
            Self::Login => "`quack login` stored a key".to_owned(),
            Self::None | Self::PiAuth | Self::PiModels | Self::Config => format!("key in {self}"),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no key"),
            Self::Variable(name) => f.write_str(name),
            Self::ShellVariable(name) => {
                write!(f, "{name} of your shell, which the daemon keeps in memory until it stops")
            }
            Self::Login => f.write_str("the file of `quack login`"),
            Self::PiAuth => f.write_str("auth.json of Pi"),
            Self::PiModels => f.write_str("models.json of Pi"),
            Self::Config => f.write_str("`model.key` of the configuration"),
        }
    }
}

/// Providers in the order in which they are preferred.
pub(super) static BUILTINS: &[Builtin] = &[
    Builtin {
        name: "openai",
        keys: &["OPENAI_API_KEY"],
        base_variable: Some("OPENAI_BASE_URL"),
        base_url: "https://api.openai.com/v1",
        api: ModelApi::OpenAiCompletions,
        key_prefix: None,
        models: &["gpt-4o-mini", "gpt-4o", "gpt-4.1", "gpt-4.1-mini", "gpt-5", "gpt-5-mini", "o3"],
    },
    Builtin {
        name: "anthropic",
        keys: &["ANTHROPIC_API_KEY"],
        base_variable: Some("ANTHROPIC_BASE_URL"),
        base_url: "https://api.anthropic.com",
        api: ModelApi::AnthropicMessages,
        key_prefix: Some("sk-ant-"),
        models: &["claude-sonnet-4-5", "claude-opus-4-5", "claude-haiku-4-5"],
    },
    Builtin {
        name: "openrouter",
        keys: &["OPENROUTER_API_KEY"],
        base_variable: None,
        base_url: "https://openrouter.ai/api/v1",
        api: ModelApi::OpenAiCompletions,
        key_prefix: Some("sk-or-"),
        models: &["openai/gpt-4o-mini", "anthropic/claude-sonnet-4.5"],
    },
    Builtin {
        name: "google",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        base_variable: None,
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        api: ModelApi::OpenAiCompletions,
        key_prefix: Some("AIza"),
        models: &["gemini-2.5-flash", "gemini-2.5-pro"],
    },
    Builtin {
        name: "groq",
        keys: &["GROQ_API_KEY"],
        base_variable: None,
        base_url: "https://api.groq.com/openai/v1",
        api: ModelApi::OpenAiCompletions,
        key_prefix: Some("gsk_"),
        models: &["openai/gpt-oss-120b"],
    },
    Builtin {
        name: "mistral",
        keys: &["MISTRAL_API_KEY"],
        base_variable: None,
        base_url: "https://api.mistral.ai/v1",
        api: ModelApi::OpenAiCompletions,
        key_prefix: None,
        models: &["mistral-large-latest", "devstral-medium-latest"],
    },
    Builtin {
        name: "xai",
        keys: &["XAI_API_KEY"],
        base_variable: None,
        base_url: "https://api.x.ai/v1",
        api: ModelApi::OpenAiCompletions,
        key_prefix: Some("xai-"),
        models: &["grok-4.3", "grok-4.5"],
    },
    Builtin {
        name: "deepseek",
        keys: &["DEEPSEEK_API_KEY"],
        base_variable: None,
        base_url: "https://api.deepseek.com/v1",
        api: ModelApi::OpenAiCompletions,
        key_prefix: None,
        models: &["deepseek-flash", "deepseek-v4-pro"],
    },
    Builtin {
        name: "cerebras",
        keys: &["CEREBRAS_API_KEY"],
        base_variable: None,
        base_url: "https://api.cerebras.ai/v1",
        api: ModelApi::OpenAiCompletions,
        key_prefix: Some("csk-"),
        models: &["gpt-oss-120b"],
    },
];

/// Local servers with their base URL.
pub(super) static LOCAL_SERVERS: [(&str, &str); 3] = [
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("lmstudio", "http://127.0.0.1:1234/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
];

/// Name of a provider that is known only by its base URL.
pub(super) const CUSTOM: &str = "custom";

/// Returns the names of the providers that `quack login` knows.
pub fn provider_names() -> impl Iterator<Item = &'static str> {
    BUILTINS.iter().map(|provider| provider.name)
}

/// Returns the variables with the key and the address of each well-known provider. Those of one provider belong together:
/// a key must not go to an address from another source.
pub fn provider_variables() -> impl Iterator<Item = Vec<&'static str>> {
    BUILTINS
        .iter()
        .map(|provider| provider.keys.iter().copied().chain(provider.base_variable).collect())
}

/// Returns the variables of one well-known provider: first the one with its key.
#[must_use]
pub fn variables_of(provider: &str) -> Option<Vec<&'static str>> {
    let known = builtin(canonical(provider))?;
    Some(known.keys.iter().copied().chain(known.base_variable).collect())
}

/// Returns the name of a provider in the catalog.
pub(super) fn canonical(name: &str) -> &str {
    match name.trim() {
        "gemini" => "google",
        "lm-studio" => "lmstudio",
        "llamacpp" => "llama.cpp",
        other => other,
    }
}

/// Returns the built-in provider with this name.
pub(super) fn builtin(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

/// Returns the default base URL of a provider.
pub(super) fn base_url(name: &str) -> Option<&'static str> {
    let local = LOCAL_SERVERS.iter().find(|(local, _)| *local == name).map(|(_, base)| *base);
    local.or_else(|| builtin(name).map(|builtin| builtin.base_url))
}

/// Returns the name of the provider at a base URL: a built-in one, a local server by its port, or [`CUSTOM`].
pub(super) fn at(base: &str) -> &'static str {
    let Ok(url) = url::Url::parse(base.trim()) else { return CUSTOM };
    let of = |known: &str| url::Url::parse(known).ok();

    let known =
        BUILTINS.iter().find(|it| of(it.base_url).is_some_and(|it| it.host() == url.host()));
    let has_port = |known: &str| of(known).is_some_and(|known| known.port() == url.port());
    let local = LOCAL_SERVERS.iter().find(|(_, known)| url.scheme() == "http" && has_port(known));
    known.map(|it| it.name).or_else(|| local.map(|(name, _)| *name)).unwrap_or(CUSTOM)
}

/// Guesses the provider of a key without a provider: by the name of the model, then by the beginning of the key.
pub(super) fn of_key(model: Option<&str>, key: &str) -> &'static str {
    let named = model.and_then(|model| {
        let prefix = model.split_once('/').and_then(|(provider, _)| builtin(provider));
        prefix.map(|it| it.name).or_else(|| maker(model))
    });

    let by_key = || {
        let fits = |it: &&Builtin| it.key_prefix.is_some_and(|prefix| key.starts_with(prefix));
        BUILTINS.iter().find(fits).map(|it| it.name)
    };
    // An aggregator's key is not one of the maker's.
    by_key().or(named).unwrap_or("openai")
}

/// Key that some programs require although the server ignores it.
pub(super) fn is_placeholder(key: &str) -> bool {
    const WORDS: [&str; 14] = [
        "dummy",
        "empty",
        "fake",
        "key",
        "llama.cpp",
        "lm-studio",
        "lmstudio",
        "local",
        "no-key",
        "none",
        "not-needed",
        "ollama",
        "sk-no-key-required",
        "x",
    ];
    WORDS.iter().any(|word| word.eq_ignore_ascii_case(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_known_by_its_address_or_port() {
        for (base, name) in [
            ("http://127.0.0.1:11434", "ollama"),
            ("http://192.168.1.5:1234/v1", "lmstudio"),
            ("http://localhost:8080/v1/", "llama.cpp"),
            ("http://localhost:9999/v1/", CUSTOM),
            ("https://api.anthropic.com/v1", "anthropic"),
            ("https://proxy.example:8080/", CUSTOM),
            ("nonsense", CUSTOM),
        ] {
            assert_eq!(at(base), name, "{base}");
        }
    }

    #[test]
    fn a_key_tells_its_provider() {
        for (model, key, name) in [
            (None, "sk-ant-1", "anthropic"),
            (None, "sk-or-1", "openrouter"),
            (Some("claude-sonnet-4-5"), "k", "anthropic"),
            (Some("anthropic/claude-sonnet-4.5"), "sk-or-1", "openrouter"),
            (Some("groq/llama"), "k", "groq"),
            (Some("m"), "k", "openai"),
            (None, "sk-1", "openai"),
        ] {
            assert_eq!(of_key(model, key), name, "{model:?} {key}");
        }
    }

    #[test]
    fn every_address_is_a_valid_route() {
        for builtin in BUILTINS {
            assert!(!builtin.models.is_empty() && builtin.base_url.starts_with("https://"));
            assert!(url::Url::parse(builtin.base_url).is_ok(), "{}", builtin.name);
        }
        for (name, base) in LOCAL_SERVERS {
            assert_eq!(at(base), name);
        }
    }
}
