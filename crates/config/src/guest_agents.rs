//! The tables `[agents.NAME]`: the user's settings of coding agents that run inside of sessions. A name that
//! [`quackd_protocol::guest_agents`] does not have is an agent of the user.

use crate::error::{excerpt, quoted};
use crate::mcp_servers::{EntryError, table, text};
use crate::value_kind::{ValueError, words};
use crate::{Config, Entry, GuestAgentSettings, LoginChoice, Origin, Setting, validate};
use quackd_protocol::guest_agents::{GUEST_AGENTS, GuestAgent, find};
use serde_json::Value as Json;
use std::path::Path;
use toml::Spanned;
use toml::de::DeValue;

/// Name of the table that has a table for each agent.
pub(crate) const TABLE: &str = "agents";

/// Most tables, and most strings in an array of one.
const MAX_AGENTS: usize = 32;
const MAX_WORDS: usize = 32;

/// Longest name of an agent, and longest path, in bytes. A path is the name of one directory.
const MAX_NAME_BYTES: usize = 32;
const MAX_PATH_BYTES: usize = 200;

/// Directories of the home with keys of the user, or of the sandbox: toolchains, package caches and its own settings. No
/// agent keeps state in them.
const RESERVED: [&str; 18] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".docker",
    ".cache",
    ".cargo",
    ".rustup",
    ".npm",
    ".yarn",
    ".bun",
    ".m2",
    ".gradle",
    ".nuget",
    ".pub-cache",
    ".config/git",
    ".config/quackd",
    ".local/share/pnpm",
];

impl Config {
    /// Returns the agents of the table with the user's settings, then those of the user.
    #[must_use]
    pub fn guest_agents(&self) -> Vec<GuestAgentSettings> {
        let of_user = || self.agents.iter().map(|agent| &agent.value);
        let known = GUEST_AGENTS.iter().map(|agent| {
            let set = of_user().find(|set| set.name == agent.name).cloned();
            set.unwrap_or_else(|| GuestAgentSettings {
                name: agent.name.to_owned(),
                ..GuestAgentSettings::default()
            })
        });
        known.chain(of_user().filter(|set| find(&set.name).is_none()).cloned()).collect()
    }
}

/// Reads the tables. `origin` returns the origin of a position.
pub(crate) fn read(
    value: &Spanned<DeValue<'_>>,
    origin: impl Fn(usize) -> Origin,
) -> Result<Vec<Setting<GuestAgentSettings>>, EntryError> {
    let tables = table(value, TABLE, "must have a table for each agent: write `[agents.NAME]`")?;
    let refused = |key: &str, at, message| EntryError { key: key.to_owned(), message, at };
    if MAX_AGENTS < tables.len() {
        let message = format!("must have at most {MAX_AGENTS} agents, not {}", tables.len());
        return Err(refused(TABLE, value.span().start, Some(message)));
    }

    let mut agents: Vec<(usize, Setting<GuestAgentSettings>)> = Vec::with_capacity(tables.len());
    for (name, value) in tables {
        let (key, at) = (format!("{TABLE}.{}", quoted(name.get_ref())), name.span().start);
        let agent = agent(name.get_ref(), &key, value)?;
        check(&agent).map_err(|message| refused(&key, at, Some(message)))?;
        let mut others = agents.iter().map(|(_, other)| &other.value);
        if let Some(other) = others.find(|other| overlaps(&agent.state, &other.state)) {
            let message = format!("must have no directory of {}", other.name);
            return Err(refused(&key, at, Some(message)));
        }
        agents.push((at, Setting { value: agent, origin: origin(at) }));
    }

    agents.sort_by_key(|(at, _)| *at);
    Ok(agents.into_iter().map(|(_, agent)| agent).collect())
}

/// Reads the table of one agent. Every unknown key is an error.
fn agent(
    name: &str,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<GuestAgentSettings, EntryError> {
    let entries = table(value, key, "must be a table, for example with `env`")?;
    let mut agent = GuestAgentSettings { name: name.to_owned(), ..GuestAgentSettings::default() };

    for (name, value) in entries {
        let key = format!("{key}.{}", quoted(name.get_ref()));
        let list = |check: fn(usize, &str) -> Result<(), String>| few_words(value, &key, check);
        match &**name.get_ref() {
            "env" => agent.env = Some(list(validate::variable_name)?),
            "hosts" => agent.hosts = Some(list(validate::host_rule)?),
            "args" => agent.args = Some(list(|_, _| Ok(()))?),
            "state" => agent.state = list(home_path)?,
            "read" => agent.read = list(home_path)?,
            "login" => {
                let word = text(value, &key)?;
                let choice = LoginChoice::ALL.into_iter().find(|choice| choice.word() == word);
                agent.login = choice.ok_or_else(|| {
                    let message =
                        format!("must be one of workspace, shared, not `{}`", excerpt(&word));
                    EntryError { key, message: Some(message), at: value.span().start }
                })?;
            }
            _ => return Err(EntryError { key, message: None, at: name.span().start }),
        }
    }
    Ok(agent)
}

fn few_words(
    value: &Spanned<DeValue<'_>>,
    key: &str,
    check: fn(usize, &str) -> Result<(), String>,
) -> Result<Vec<String>, EntryError> {
    let check_number = |words: Vec<String>| match words.len() {
        n if MAX_WORDS < n => {
            let message = format!("must have at most {MAX_WORDS} strings, not {n}");
            Err(ValueError { at: value.span().start, message })
        }
        _ => Ok(words),
    };
    words(value, check).and_then(check_number).map_err(|ValueError { at, message }| EntryError {
        key: key.to_owned(),
        message: Some(message),
        at,
    })
}

/// Checks the path of a hidden file or directory, relative to the home.
fn home_path(_index: usize, path: &str) -> Result<(), String> {
    let is_plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if is_plain && path.starts_with('.') && !path.contains('%') && path.len() <= MAX_PATH_BYTES {
        return Ok(());
    }
    Err(format!(
        "must hold paths relative to the home, such as `.config/agent`, without `..` and `%`, of at most \
         {MAX_PATH_BYTES} bytes, not `{}`",
        excerpt(path)
    ))
}

/// Checks what depends on several keys. Returns a verb phrase.
fn check(agent: &GuestAgentSettings) -> Result<(), String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !(1..=MAX_NAME_BYTES).contains(&agent.name.len()) || !agent.name.bytes().all(is_name) {
        return Err(format!(
            "must have a name of 1 to {MAX_NAME_BYTES} letters, digits, `-` and `_`"
        ));
    }

    let known = find(&agent.name);
    if known.is_some() && !agent.state.is_empty() {
        return Err("must be without `state`: quackd has the directories of this agent".to_owned());
    }
    if known.is_none() && agent.login == LoginChoice::Shared {
        return Err("must be without `login`: quackd does not know its login files".to_owned());
    }

    let is_taken = |other: &GuestAgent| overlaps(&agent.state, other.state);
    if overlaps(&agent.state, &RESERVED) || GUEST_AGENTS.iter().any(is_taken) {
        return Err("must have no `state` of other programs, nor above or inside of it".to_owned());
    }
    let is_doubled = |(n, one): (usize, &String)| {
        agent.state.iter().skip(n + 1).any(|other| overlaps(&[one], &[other]))
    };
    if agent.state.iter().enumerate().any(is_doubled) {
        return Err("must have no directory of `state` twice or inside of another".to_owned());
    }

    let is_inside = |path: &&String| {
        agent.kept().any(|state| Path::new(path).starts_with(state) && path.as_str() != state)
    };
    let is_login =
        |path: &&String| known.is_some_and(|known| known.logins.contains(&path.as_str()));
    match agent.read.iter().find(|path| !is_inside(path) || is_login(path)) {
        Some(path) => Err(format!(
            "must `read` files in its kept directories, and no login, not `{}`",
            excerpt(path)
        )),
        None => Ok(()),
    }
}

/// Whether a path of one list is, contains or is inside of a path of the other one.
fn overlaps(one: &[impl AsRef<str>], other: &[impl AsRef<str>]) -> bool {
    one.iter().any(|one| {
        other.iter().any(|other| {
            let (one, other) = (Path::new(one.as_ref()), Path::new(other.as_ref()));
            one.starts_with(other) || other.starts_with(one)
        })
    })
}

/// Returns the entries of an agent that the user has set.
pub(crate) fn entries(agent: &Setting<GuestAgentSettings>) -> Vec<Entry> {
    let Setting { value: agent, origin } = agent;
    let entry = |(key, value): (&str, Json)| Entry {
        key: format!("{TABLE}.{}.{key}", agent.name).into(),
        value,
        origin: origin.to_string(),
    };
    agent.values().into_iter().map(entry).collect()
}
