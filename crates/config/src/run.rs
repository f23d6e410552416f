//! Settings of programs on terminals, which `quack run` starts, and of agents among them.

use crate::Setting;
use quackd_protocol::guest_agents::find;
use quackd_protocol::limits::{DEFAULT_SCROLLBACK_BYTES, MAX_SCROLLBACK_BYTES};
use serde_json::{Value as Json, json};

/// Largest size of the lines above the screen, in KiB.
pub(crate) const MAX_SCROLLBACK_KB: u64 = (MAX_SCROLLBACK_BYTES / 1024) as u64;

/// Settings of programs on terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    /// Keys that detach a client, such as `ctrl-\`. The client parses them.
    pub detach_keys: Setting<String>,
    /// Whether programs may set the clipboard of an attached client.
    pub clipboard: Setting<ClipboardChoice>,
    /// Size of the lines above the screen that are kept for one terminal, in KiB. 0 for none.
    pub scrollback_kb: Setting<usize>,
    /// Hosts that the session of a known agent may reach.
    pub network: Setting<RunNetwork>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            detach_keys: Setting::default_of("ctrl-\\".to_owned()),
            clipboard: Setting::default_of(ClipboardChoice::default()),
            scrollback_kb: Setting::default_of(DEFAULT_SCROLLBACK_BYTES / 1024),
            network: Setting::default_of(RunNetwork::default()),
        }
    }
}

/// Access of programs on terminals to the clipboard. Reading is never allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClipboardChoice {
    /// None.
    #[default]
    Off,
    /// Programs may set it.
    Write,
}

impl ClipboardChoice {
    pub(crate) const ALL: [Self; 2] = [Self::Off, Self::Write];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Write => "write",
        }
    }
}

/// Hosts that the session of a known agent may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunNetwork {
    /// Those of the agent, in addition to the session's.
    #[default]
    Agent,
    /// Those of the session only.
    Session,
}

impl RunNetwork {
    pub(crate) const ALL: [Self; 2] = [Self::Agent, Self::Session];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Session => "session",
        }
    }
}

/// Place of an agent's login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoginChoice {
    /// Each workspace has its own.
    #[default]
    Workspace,
    /// All workspaces have the same.
    Shared,
}

impl LoginChoice {
    pub(crate) const ALL: [Self; 2] = [Self::Workspace, Self::Shared];

    /// Returns the word in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Shared => "shared",
        }
    }
}

/// Settings of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestAgentSettings {
    /// Name of the program: 1 to 32 letters, digits, `-` and `_`.
    pub name: String,
    /// Names of variables that `quack run` passes without a question. `None` if the user has not decided.
    pub env: Option<Vec<String>>,
    /// Rules of hosts in place of those of the table.
    pub hosts: Option<Vec<String>>,
    /// Arguments before those of the user, in place of those of the table.
    pub args: Option<Vec<String>>,
    /// Kept directories, relative to the home. Empty for an agent of the table, which has its own.
    pub state: Vec<String>,
    /// Files of the user that sessions get as copies, relative to the home and inside of a kept directory.
    pub read: Vec<String>,
    /// Place of the login. An agent of the user has [`LoginChoice::Workspace`].
    pub login: LoginChoice,
}

impl GuestAgentSettings {
    /// Returns the names of the keys that the user has set.
    #[must_use]
    pub fn configured(&self) -> Vec<&'static str> {
        self.values().into_iter().map(|(key, _)| key).collect()
    }

    /// Returns the kept directories of the agent, relative to the home.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        let known = find(&self.name).map(|agent| agent.state).unwrap_or_default();
        known.iter().copied().chain(self.state.iter().map(String::as_str))
    }

    /// Returns the keys that the user has set, with their values.
    pub(crate) fn values(&self) -> Vec<(&'static str, Json)> {
        let Self { name: _, env, hosts, args, state, read, login } = self;
        let some = |list: &[String]| (!list.is_empty()).then(|| json!(list));
        let login = (*login != LoginChoice::default()).then(|| Json::from(login.word()));
        let values = [
            ("env", env.as_ref().map(|list| json!(list))),
            ("hosts", hosts.as_ref().map(|list| json!(list))),
            ("args", args.as_ref().map(|list| json!(list))),
            ("state", some(state)),
            ("read", some(read)),
            ("login", login),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}
