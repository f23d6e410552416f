//! The environment of a session's Pi. Pi is the only process of the daemon that gets the user's keys, because Pi calls
//! the model providers itself.
//!
//! Three layers, the later ones win: the daemon's own variables, the environment of commands, and the login shell's
//! variables for model providers. The last layer is only kept in memory. The daemon's key for web searches and the
//! variables that control the daemon are left out. The `PATH` of a daemon that a shell has started comes first, because
//! the user's `pi` runs with the node of that shell. Whether the login shell has answered makes no difference then.

use crate::children::command_env::{Variables, of, path};
use quackd_protocol::environment::{MAX_LOGIN_BYTES, MAX_VALUE_BYTES};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Variables of the login shell that Pi gets.
pub(crate) const NAMES: &[&str] = &[
    "AI_GATEWAY_API_KEY",
    "COPILOT_GITHUB_TOKEN",
    "HF_TOKEN",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];

/// Prefixes of further variables: the key, address and account of each provider.
pub(crate) const PREFIXES: &[&str] = &[
    "ANTHROPIC_",
    "AWS_",
    "AZURE_",
    "CEREBRAS_",
    "CLOUDFLARE_",
    "DEEPSEEK_",
    "FIREWORKS_",
    "GEMINI_",
    "GOOGLE_",
    "GROQ_",
    "KIMI_",
    "MINIMAX_",
    "MISTRAL_",
    "MOONSHOT_",
    "OLLAMA_",
    "OPENAI_",
    "OPENCODE_",
    "OPENROUTER_",
    "PI_",
    "TOGETHER_",
    "XAI_",
    "ZAI_",
];

/// Never passed to Pi: the key of the daemon's own searches.
const NEVER: &[&str] = &["EXA_API_KEY", "RUBBER_DUCK_EXA_API_KEY"];

/// Prefixes of variables that control the daemon or come from service managers.
const NEVER_PREFIXES: &[&str] =
    &["QUACKD_", "RUBBER_DUCK_", "_RUBBER_DUCK_", "LISTEN_", "NOTIFY_SOCKET", "INVOCATION_ID"];

/// Whether a login shell's variable is for Pi. `extra` contains names from the configuration.
pub(crate) fn is_for_pi(name: &str, extra: &[String]) -> bool {
    let is_named = NAMES.contains(&name) || extra.iter().any(|extra| extra == name);
    let is_named = is_named || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    is_named && !NEVER.contains(&name)
}

/// Whether a variable is the key of a model provider.
pub(crate) fn is_key(name: &str) -> bool {
    name.ends_with("_API_KEY") && is_for_pi(name, &[])
}

/// Returns the login shell's variables for Pi, up to a size limit.
pub(crate) fn of_login_shell(all: &[(String, String)], extra: &[String]) -> Variables {
    let mut room = MAX_LOGIN_BYTES;
    let is_sound = |text: &str| text.len() <= MAX_VALUE_BYTES && !text.contains('\0');
    let mut fits = |name: &str, value: &str| {
        let left = room.checked_sub(name.len() + value.len());
        room = left.unwrap_or(room);
        left.is_some()
    };
    let for_pi = all.iter().filter(|(name, value)| {
        is_for_pi(name, extra) && is_sound(name) && is_sound(value) && fits(name, value)
    });
    for_pi.cloned().collect()
}

/// Merges Pi's environment.
pub(crate) fn merge(
    own: impl Iterator<Item = (OsString, OsString)>,
    commands: &[(String, String)],
    login: &[(String, String)],
) -> Variables {
    let own = own.filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
    let may_pass = |name: &str| {
        !NEVER.contains(&name) && !NEVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let mut env: BTreeMap<String, String> =
        own.filter(|(name, value)| may_pass(name) && value.len() <= MAX_VALUE_BYTES).collect();
    for (name, value) in commands.iter().chain(login) {
        env.insert(name.clone(), value.clone());
    }
    env.into_iter().collect()
}

/// Puts the directories of the daemon's own `PATH` first, if a shell has started the daemon.
pub(crate) fn begin_with(own: Option<OsString>, is_from_shell: bool, env: &mut Variables) {
    let own = own.filter(|_| is_from_shell).and_then(|own| own.into_string().ok());
    if let (Some(own), Some((_, there))) = (own, env.iter_mut().find(|(name, _)| name == "PATH")) {
        *there = path(&own, there);
    }
}

/// Whether a variable is set and not empty.
pub(crate) fn has(env: &[(String, String)], name: &str) -> bool {
    !of(env, name).trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> Variables {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn pi_gets_provider_keys_and_not_the_daemons_own() {
        let own = [
            ("OPENAI_API_KEY", "own"),
            ("EXA_API_KEY", "secret"),
            ("RUBBER_DUCK_EXA_API_KEY", "secret"),
            ("QUACKD_CONFIG", "x"),
            ("RUBBER_DUCK_PI_MODEL", "x"),
            ("EDITOR", "vi"),
        ];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let commands = variables(&[("PATH", "/bin"), ("EDITOR", "ed")]);
        let login = variables(&[("OPENAI_API_KEY", "login"), ("MY_EXTRA", "1")]);
        let env = merge(own.into_iter(), &commands, &login);
        let expected = variables(&[
            ("EDITOR", "ed"),
            ("MY_EXTRA", "1"),
            ("OPENAI_API_KEY", "login"),
            ("PATH", "/bin"),
        ]);
        assert_eq!(env, expected);
        assert!(has(&env, "OPENAI_API_KEY") && !has(&env, "ANTHROPIC_API_KEY"));
    }

    #[test]
    fn the_path_of_the_shell_that_started_the_daemon_comes_first_also_after_the_login_shell_has_answered()
     {
        let (before, after) = ("/nvm/22:/bin", "/nvm/20:/bin:/nvm/22");
        let merged = |commands: &str, is_from_shell| {
            let mut env = variables(&[("PATH", commands)]);
            begin_with(Some("/nvm/22:/bin".into()), is_from_shell, &mut env);
            of(&env, "PATH").to_owned()
        };
        assert_eq!(merged(before, true), "/nvm/22:/bin");
        assert_eq!(merged(after, true), "/nvm/22:/bin:/nvm/20");
        assert_eq!(merged(after, false), "/nvm/20:/bin:/nvm/22");
    }

    #[test]
    fn of_a_login_shell_only_what_is_named_is_kept() {
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        let all = variables(&[
            ("ANTHROPIC_API_KEY", "k"),
            ("EXA_API_KEY", "secret"),
            ("GROQ_API_KEY", &long),
            ("MINE", "1"),
            ("OTHER", "2"),
        ]);
        let kept = of_login_shell(&all, &["MINE".to_owned(), "EXA_API_KEY".to_owned()]);
        assert_eq!(kept, variables(&[("ANTHROPIC_API_KEY", "k"), ("MINE", "1")]));
        let value = "x".repeat(MAX_VALUE_BYTES - 100);
        let many: Vec<_> = (0..9).map(|n| (format!("OPENAI_{n}"), value.clone())).collect();
        let bytes: usize = of_login_shell(&many, &[]).iter().map(|(n, v)| n.len() + v.len()).sum();
        assert!(bytes <= MAX_LOGIN_BYTES && MAX_LOGIN_BYTES / 2 < bytes, "{bytes}");
    }
}
