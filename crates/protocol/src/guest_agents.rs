//! Known coding agents that users start on a terminal inside a session, as data. Not quackd's own agent, whose frames are
//! in [`crate::agent`].
//!
//! The rows of Claude Code 2.1.197, Codex 0.171.0, Gemini CLI 0.61.0 and opencode 1.18.33 are from runs of these programs in
//! sessions, with a scripted model and made-up keys: `docs/agents-inside.md` has what was tried. Those of pi 0.73.1, Qwen
//! Code 0.24.4 and Copilot CLI 1.0.102 are from the programs themselves: their help, their text, and the files that a start
//! without a network creates. Amp's hosts and variables, and the rows of aider, goose and Cursor are from documentation.
//! No row has a test with a real login.

/// Maximum age of the state of an agent that was not used. Afterwards `quack gc` deletes it.
pub const STATE_KEPT: std::time::Duration = std::time::Duration::from_secs(90 * 24 * 60 * 60);

/// Maximum disk usage of the state of all agents of a workspace, in bytes. Above it, the next worker keeps none.
pub const MAX_STATE_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// Note about state above [`MAX_STATE_BYTES`].
pub const STATE_IS_FULL: &str = "the state of agents here has more than 2 GiB and is not kept; quack agents shows it, and quack agents forget deletes it";

/// A known agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestAgent {
    /// Name of the program, without its directory. Unique.
    pub name: &'static str,
    /// Name of the product, for display.
    pub product: &'static str,
    /// Directories with its settings, logins and conversations, relative to the home. None is inside another.
    pub state: &'static [&'static str],
    /// Files with a login, relative to the home and directly in one of `state`. Any of them is a login.
    pub logins: &'static [&'static str],
    /// Variables with a key that the agent reads. By default, none of them is passed.
    pub keys: &'static [AgentKey],
    /// Rules for the hosts that it needs in each case: presets, names and patterns of names.
    pub hosts: &'static [&'static str],
    /// Variables that quackd sets for it.
    pub sets: &'static [AgentVariable],
    /// Variable that names one of `state`, for commands of a session that keeps it: the agent would otherwise use
    /// a file next to the directory, or the directory that the user's own variable names.
    pub directory: Option<AgentVariable>,
    /// Arguments that quackd puts before the user's.
    pub arguments: &'static [&'static str],
    /// True if `sets` or `arguments` turn the agent's own sandbox off, because it would fail inside of quackd's.
    pub sandbox_off: bool,
    /// Arguments that continue the last conversation. `None` if the agent has none, or none that is known.
    pub resume: Option<&'static [&'static str]>,
    /// Day of the last test with the real program in a session, as `YYYY-MM-DD`: start, login, changes, detaching, and
    /// continuing. The model may be a scripted one, and the key a made-up one. `None` if there was none.
    pub tested: Option<&'static str>,
}

impl GuestAgent {
    /// Returns the [`kept_path`] of one of `state`.
    #[must_use]
    pub fn kept_path(&self, state: &str) -> String {
        kept_path(self.name, state)
    }
}

/// Returns the path of the directory that keeps a directory of an agent's home, relative to the directory of a workspace:
/// the name of the agent, and the path with `%` for each slash.
#[must_use]
pub fn kept_path(agent: &str, state: &str) -> String {
    format!("{agent}/{}", state.replace('/', "%"))
}

/// A variable with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentKey {
    /// Name of the variable.
    pub name: &'static str,
    /// Rule for the hosts of the key's provider, if they are not in [`GuestAgent::hosts`].
    pub host: Option<&'static str>,
}

/// A variable with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentVariable {
    /// Name of the variable.
    pub name: &'static str,
    /// Value. For [`GuestAgent::directory`], the directory relative to the home.
    pub value: &'static str,
}

/// Key of a provider whose hosts the agent needs in each case.
const fn own_key(name: &'static str) -> AgentKey {
    AgentKey { name, host: None }
}

/// Key of one provider among several.
const fn key(name: &'static str, host: &'static str) -> AgentKey {
    AgentKey { name, host: Some(host) }
}

const fn set(name: &'static str, value: &'static str) -> AgentVariable {
    AgentVariable { name, value }
}

/// A row without anything but its name, to be completed.
const fn named(name: &'static str, product: &'static str) -> GuestAgent {
    GuestAgent {
        name,
        product,
        state: &[],
        logins: &[],
        keys: &[],
        hosts: &[],
        sets: &[],
        directory: None,
        arguments: &[],
        sandbox_off: false,
        resume: None,
        tested: None,
    }
}

/// Keys that agents for several providers read.
const PROVIDER_KEYS: &[AgentKey] = &[
    key("ANTHROPIC_API_KEY", "@anthropic"),
    key("OPENAI_API_KEY", "@openai"),
    key("GEMINI_API_KEY", "@google"),
    key("OPENROUTER_API_KEY", "@openrouter"),
];

/// All known agents, in display order.
pub const GUEST_AGENTS: &[GuestAgent] = &[
    GuestAgent {
        state: &[".claude"],
        logins: &[".claude/.credentials.json"],
        keys: &[
            own_key("ANTHROPIC_API_KEY"),
            own_key("ANTHROPIC_AUTH_TOKEN"),
            own_key("CLAUDE_CODE_OAUTH_TOKEN"),
        ],
        hosts: &["@anthropic"],
        // Without IS_SANDBOX, user 0 cannot skip its questions.
        sets: &[set("DISABLE_AUTOUPDATER", "1"), set("IS_SANDBOX", "1")],
        // Without it, `.claude.json` with the account is next to the directory and would not be kept.
        directory: Some(set("CLAUDE_CONFIG_DIR", ".claude")),
        resume: Some(&["--continue"]),
        tested: Some("2026-11-30"),
        ..named("claude", "Claude Code")
    },
    GuestAgent {
        state: &[".codex"],
        logins: &[".codex/auth.json"],
        keys: &[own_key("OPENAI_API_KEY"), own_key("CODEX_API_KEY"), own_key("CODEX_ACCESS_TOKEN")],
        hosts: &["@openai"],
        directory: Some(set("CODEX_HOME", ".codex")),
        arguments: &["-c", "sandbox_mode=\"danger-full-access\""],
        sandbox_off: true,
        resume: Some(&["resume", "--last"]),
        tested: Some("2026-11-30"),
        ..named("codex", "Codex")
    },
    GuestAgent {
        state: &[".gemini"],
        // A key that the user types is in the second, because a session has no keyring.
        logins: &[".gemini/oauth_creds.json", ".gemini/gemini-credentials.json"],
        keys: &[own_key("GEMINI_API_KEY"), own_key("GOOGLE_API_KEY")],
        hosts: &["@google"],
        sets: &[set("GEMINI_SANDBOX", "false")],
        sandbox_off: true,
        resume: Some(&["--resume", "latest"]),
        tested: Some("2026-11-30"),
        ..named("gemini", "Gemini CLI")
    },
    GuestAgent {
        state: &[".config/opencode", ".local/share/opencode", ".local/state/opencode"],
        logins: &[".local/share/opencode/auth.json"],
        keys: &[
            own_key("OPENCODE_API_KEY"),
            key("ANTHROPIC_API_KEY", "@anthropic"),
            key("OPENAI_API_KEY", "@openai"),
            key("GEMINI_API_KEY", "@google"),
            key("OPENROUTER_API_KEY", "@openrouter"),
        ],
        hosts: &["opencode.ai", "*.opencode.ai"],
        sets: &[set("OPENCODE_DISABLE_AUTOUPDATE", "1")],
        resume: Some(&["--continue"]),
        tested: Some("2026-11-30"),
        ..named("opencode", "opencode")
    },
    GuestAgent {
        state: &[".aider"],
        logins: &[".aider/oauth-keys.env"],
        keys: PROVIDER_KEYS,
        sets: &[set("AIDER_CHECK_UPDATE", "false"), set("AIDER_ANALYTICS", "false")],
        resume: Some(&["--restore-chat-history"]),
        ..named("aider", "aider")
    },
    GuestAgent {
        state: &[".config/goose", ".local/share/goose", ".local/state/goose"],
        logins: &[".config/goose/secrets.yaml"],
        keys: &[
            key("ANTHROPIC_API_KEY", "@anthropic"),
            key("OPENAI_API_KEY", "@openai"),
            key("GOOGLE_API_KEY", "@google"),
            key("OPENROUTER_API_KEY", "@openrouter"),
        ],
        // A session has no keyring.
        sets: &[set("GOOSE_DISABLE_KEYRING", "1")],
        resume: Some(&["session", "--resume"]),
        ..named("goose", "goose")
    },
    GuestAgent {
        state: &[".pi/agent"],
        logins: &[".pi/agent/auth.json"],
        keys: PROVIDER_KEYS,
        sets: &[set("PI_SKIP_VERSION_CHECK", "1")],
        directory: Some(set("PI_CODING_AGENT_DIR", ".pi/agent")),
        resume: Some(&["--continue"]),
        ..named("pi", "pi")
    },
    GuestAgent {
        state: &[".config/amp", ".local/share/amp"],
        logins: &[".local/share/amp/secrets.json"],
        keys: &[own_key("AMP_API_KEY")],
        hosts: &["ampcode.com", "*.ampcode.com"],
        sets: &[set("AMP_SKIP_UPDATE_CHECK", "1")],
        resume: Some(&["last"]),
        ..named("amp", "Amp")
    },
    GuestAgent {
        state: &[".copilot"],
        logins: &[".copilot/config.json"],
        keys: &[own_key("COPILOT_GITHUB_TOKEN"), own_key("GH_TOKEN"), own_key("GITHUB_TOKEN")],
        hosts: &["github.com", "api.github.com", "*.githubcopilot.com"],
        sets: &[set("COPILOT_AUTO_UPDATE", "false")],
        directory: Some(set("COPILOT_HOME", ".copilot")),
        resume: Some(&["--continue"]),
        ..named("copilot", "GitHub Copilot CLI")
    },
    GuestAgent {
        state: &[".qwen"],
        logins: &[".qwen/oauth_creds.json"],
        keys: &[own_key("DASHSCOPE_API_KEY"), key("OPENAI_API_KEY", "@openai")],
        hosts: &["chat.qwen.ai", "dashscope.aliyuncs.com", "*.dashscope.aliyuncs.com"],
        sets: &[set("QWEN_SANDBOX", "false")],
        sandbox_off: true,
        resume: Some(&["--continue"]),
        ..named("qwen", "Qwen Code")
    },
    GuestAgent {
        state: &[".cursor", ".config/cursor"],
        logins: &[".config/cursor/auth.json"],
        keys: &[own_key("CURSOR_API_KEY")],
        hosts: &["cursor.com", "*.cursor.com", "*.cursor.sh"],
        // It has no browser inside; so it prints the address of the login.
        sets: &[set("NO_OPEN_BROWSER", "1")],
        resume: Some(&["resume"]),
        ..named("cursor-agent", "Cursor CLI")
    },
];

/// Returns the agent with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static GuestAgent> {
    GUEST_AGENTS.iter().find(|agent| agent.name == name)
}

/// Returns the name of the program that a command starts: the file name of its first word.
#[must_use]
pub fn program(argv: &[String]) -> Option<&str> {
    std::path::Path::new(argv.first()?).file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Component, Path};

    fn is_variable(name: &str) -> bool {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    }

    #[test]
    fn names_and_directories_are_unique_and_names_are_file_names() {
        let names: BTreeSet<&str> = GUEST_AGENTS.iter().map(|agent| agent.name).collect();
        assert_eq!(names.len(), GUEST_AGENTS.len());
        for name in names {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
            assert_eq!(find(name).map(|agent| agent.name), Some(name));
        }
        let all = || GUEST_AGENTS.iter().flat_map(|agent| agent.state);
        for (number, one) in all().enumerate() {
            let others = all().enumerate().filter(|(other, _)| *other != number);
            for (_, other) in others {
                assert!(!Path::new(one).starts_with(other), "{one} is in {other}");
            }
        }
    }

    #[test]
    fn directories_are_hidden_ones_of_the_home_and_contain_the_logins() {
        for agent in GUEST_AGENTS {
            assert!(!agent.state.is_empty(), "{}", agent.name);
            for state in agent.state {
                let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
                assert!(Path::new(state).components().all(is_plain), "{state}");
                assert!(state.starts_with('.') && !state.contains('%'), "{state}");
                assert_eq!(agent.kept_path(state).split('/').count(), 2, "{state}");
            }
            for login in agent.logins {
                let above = Path::new(login).parent();
                assert!(agent.state.iter().any(|state| above == Some(Path::new(state))));
            }
            if let Some(directory) = agent.directory {
                assert!(agent.state.contains(&directory.value), "{}", agent.name);
            }
        }
    }

    #[test]
    fn variables_have_names_and_a_key_is_not_set_by_quackd() {
        for agent in GUEST_AGENTS {
            let keys: BTreeSet<&str> = agent.keys.iter().map(|key| key.name).collect();
            assert_eq!(keys.len(), agent.keys.len(), "{}", agent.name);
            assert!(!keys.is_empty() && keys.iter().all(|key| is_variable(key)), "{}", agent.name);
            let set = agent.sets.iter().chain(&agent.directory);
            for variable in set {
                assert!(is_variable(variable.name) && !keys.contains(variable.name));
            }
            let has_switch = !agent.sets.is_empty() || !agent.arguments.is_empty();
            assert!(!agent.sandbox_off || has_switch, "{}", agent.name);
        }
    }

    #[test]
    fn a_day_of_a_test_is_a_day() {
        for day in GUEST_AGENTS.iter().filter_map(|agent| agent.tested) {
            let parts: Vec<&str> = day.split('-').collect();
            let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
            let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            assert!(lengths == [4, 2, 2] && parts.iter().all(is_number), "{day}");
        }
    }

    #[test]
    fn the_first_word_decides() {
        let of = |line: &str| {
            let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            program(&argv).and_then(find).map(|agent| agent.name)
        };
        assert_eq!(of("claude --continue"), Some("claude"));
        assert_eq!(of("/opt/bin/codex"), Some("codex"));
        for other in ["", "/", "bash -c claude", "claude.sh"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
