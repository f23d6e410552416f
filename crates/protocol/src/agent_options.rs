//! Settings of an agent's turns, and options of a session's agent that a client sets, as Pi has them on its command line: the tools of the model, prompts
//! and models. Used by the supervisor, which passes them on, and by the agent, which obeys them.

use crate::foreign_text::first_unsafe;
use crate::state::is_false;
use crate::tools::{self, Offer, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most entries of a list.
const MAX_ENTRIES: usize = 128;

/// Longest name of a tool or a model, in bytes.
const MAX_NAME: usize = 256;

/// Most bytes of all prompts together.
pub const MAX_PROMPT_BYTES: usize = 128 * 1024;

/// Options of a session's agent. Kept until the daemon stops, in memory only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentOptions {
    /// Tools that the model may use, by their names or by those of Pi. `*` matches any text. If every entry begins with
    /// `+` or `-`, they change the usual tools. The usual tools if absent. Tools of MCP servers stay, unless an entry
    /// begins with `mcp__`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools that the model may not use, also of MCP servers. `*` matches any text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_tools: Vec<String>,
    /// True: no MCP servers.
    #[serde(skip_serializing_if = "is_false")]
    pub no_mcp: bool,
    /// Text in place of quackd's own rules at the beginning of the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Further paragraphs of the system prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub append_system_prompt: Vec<String>,
    /// True: `AGENTS.md` and similar files are not read.
    #[serde(skip_serializing_if = "is_false")]
    pub no_context_files: bool,
    /// Models among which `cycle_model` changes, as `provider/model` or a part of it, perhaps with `*` or `:LEVEL` at the
    /// end. A new session begins with the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
}

/// Settings of an agent's turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// Whether failed requests are sent again.
    pub auto_retry: bool,
    /// Most further attempts after a failed request.
    pub max_retries: u32,
    /// Delay before the first further attempt, in milliseconds. Doubles with each.
    pub base_delay_ms: u64,
    /// Longest delay that is waited for, in milliseconds. A provider that wants a longer one ends the turn.
    pub max_delay_ms: u64,
    /// Whether the conversation is summarized when it becomes too long.
    pub auto_compaction: bool,
    /// Tokens of the context window that stay free.
    pub reserve_tokens: u64,
    /// Tokens of the newest messages that a summary leaves as they are.
    pub keep_recent_tokens: u64,
    /// Most requests to the model in one run.
    pub max_turns: u32,
    /// Largest cost of a run in US dollars. 0 for no limit.
    pub max_cost_usd: f64,
    /// Whether the supervisor limits the cost of a day, so that the cost of each answer must be known.
    pub has_daily_limit: bool,
    /// Whether calls of one answer run at the same time.
    pub parallel_tools: bool,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            auto_retry: true,
            max_retries: 3,
            base_delay_ms: 2_000,
            max_delay_ms: 60_000,
            auto_compaction: true,
            reserve_tokens: 16_384,
            keep_recent_tokens: 20_000,
            max_turns: 200,
            max_cost_usd: 0.0,
            has_daily_limit: false,
            parallel_tools: true,
        }
    }
}

/// Error of checking options. Each text is a sentence about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AgentOptionsError {
    /// A list is too long.
    #[error("a list of tools or models has at most {MAX_ENTRIES} entries")]
    TooMany,
    /// A name is empty or too long.
    #[error("a name of a tool or model has 1 to {MAX_NAME} bytes and no control characters")]
    Name,
    /// A name has an unsafe character.
    #[error("a name of a tool or model has 1 to {MAX_NAME} bytes, without U+{code:04X}", code = u32::from(*.0))]
    UnsafeName(char),
    /// The prompts are too long.
    #[error("the prompts together have at most {MAX_PROMPT_BYTES} bytes")]
    Prompts,
    /// Names and changes are mixed.
    #[error("tool names cannot be mixed with +name or -name entries")]
    Mixed,
}

impl AgentOptions {
    /// Checks the bounds.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), AgentOptionsError> {
        let none = Vec::new();
        let tools = self.tools.as_ref().unwrap_or(&none);
        for list in [tools, &self.exclude_tools, &self.models] {
            if MAX_ENTRIES < list.len() {
                return Err(AgentOptionsError::TooMany);
            }
            if !list.iter().all(|name| (1..=MAX_NAME).contains(&name.len())) {
                return Err(AgentOptionsError::Name);
            }
            if let Some(c) = list.iter().find_map(|name| first_unsafe(name)) {
                return Err(AgentOptionsError::UnsafeName(c));
            }
        }

        let changes = tools.iter().filter(|entry| change(entry).is_some()).count();
        if changes != 0 && changes != tools.len() {
            return Err(AgentOptionsError::Mixed);
        }

        let prompts = self.system_prompt.iter().chain(&self.append_system_prompt);
        if MAX_ENTRIES < self.append_system_prompt.len() {
            return Err(AgentOptionsError::TooMany);
        }

        match prompts.map(String::len).sum::<usize>() {
            ..=MAX_PROMPT_BYTES => Ok(()),
            _ => Err(AgentOptionsError::Prompts),
        }
    }

    /// Whether the model may call this tool of the session.
    #[must_use]
    pub fn permits(&self, tool: &str) -> bool {
        let is_it = |entry: &str| spellings(tool).any(|name| matches(entry, name));
        // `ls` is only one of the ways to call `find`.
        if self.exclude_tools.iter().any(|entry| entry != "ls" && is_it(entry)) {
            return false;
        }

        let Some(tools) = &self.tools else { return true };
        let mut names = tools.iter().filter(|entry| change(entry).is_none()).peekable();
        let is_named = if names.peek().is_none() && !tools.is_empty() {
            // A list that has only changes begins with all tools.
            true
        } else {
            names.any(|entry| is_it(entry))
        };

        let changes = tools.iter().filter_map(|entry| change(entry));
        let last = changes.rev().find(|(_, name)| is_it(name));
        last.map_or(is_named, |(is_added, _)| is_added)
    }

    /// Whether the model may call a tool by this name, which may be another spelling of the session's tool `tool`.
    #[must_use]
    pub fn permits_call(&self, name: &str, tool: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.permits(tool) && !self.exclude_tools.iter().any(|entry| matches(entry, &name))
    }

    /// Whether the model is offered this tool of the session: the usual ones, and those with a name in the list.
    #[must_use]
    pub fn offers(&self, tool: &Tool) -> bool {
        let entries = self.tools.iter().flatten();
        let mut names = entries.map(|entry| change(entry).map_or(entry.as_str(), |(_, name)| name));
        let is_usual = tool.offer != Offer::Ask;
        self.permits(tool.name) && (is_usual || names.any(|entry| matches(entry, tool.name)))
    }

    /// Whether the model may use the tool of an MCP server with this name.
    #[must_use]
    pub fn permits_of_server(&self, name: &str) -> bool {
        if self.no_mcp || self.exclude_tools.iter().any(|entry| matches(entry, name)) {
            return false;
        }

        let entries = self.tools.iter().flatten();
        let mut of_servers = entries.filter(|entry| entry.starts_with("mcp__")).peekable();
        of_servers.peek().is_none() || of_servers.any(|entry| matches(entry, name))
    }
}

/// Returns whether an entry adds or removes a tool, and its name. `None` for a plain name.
fn change(entry: &str) -> Option<(bool, &str)> {
    let added = entry.strip_prefix('+').map(|name| (true, name));
    added.or_else(|| entry.strip_prefix('-').map(|name| (false, name)))
}

/// Returns the names of a tool of the session: its own, and those of Pi's tools that do the same.
fn spellings(tool: &str) -> impl Iterator<Item = &str> {
    // Reads a file that is an image.
    let tool = if tool == tools::IMAGE { tools::READ_FILE.name } else { tool };
    let of_pi = tools::find(tool).map_or(&[][..], |tool| tool.of_pi);
    std::iter::once(tool).chain(of_pi.iter().copied())
}

/// Whether `text` matches a pattern in which `*` stands for any text.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(begin) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();

    for part in parts {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(tools: Option<&[&str]>, exclude: &[&str]) -> AgentOptions {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        AgentOptions {
            tools: tools.map(owned),
            exclude_tools: owned(exclude),
            ..AgentOptions::default()
        }
    }

    fn offered(options: &AgentOptions) -> Vec<&'static str> {
        tools::all().filter(|tool| options.offers(tool)).map(|tool| tool.name).collect()
    }

    #[test]
    fn a_list_limits_the_tools_by_the_names_of_pi_or_of_the_session() {
        let listed = options(Some(&["read", "grep"]), &[]);
        assert_eq!(offered(&listed), ["read_file", "search"]);
        assert!(listed.permits("grep_search") && listed.permits(tools::IMAGE));
        for other in ["write_file", "edit_file", "bash", "jobs", "find", "web_search", "replace"] {
            assert!(!listed.permits(other), "{other}");
        }
        assert_eq!(
            offered(&options(Some(&["bash"]), &[])),
            ["bash", "jobs", "job_output", "job_kill"]
        );
        assert_eq!(offered(&options(Some(&["web_search", "ls"]), &[])), ["find", "web_search"]);
        assert_eq!(offered(&options(Some(&[]), &[])), [""; 0]);
        assert_eq!(offered(&options(Some(&["edit*"]), &[])), ["edit_file"]);
    }

    #[test]
    fn changes_keep_the_usual_tools_and_an_excluded_tool_is_never_permitted() {
        let usual = offered(&AgentOptions::default());
        let less = options(Some(&["-bash", "+web_search"]), &[]);
        let found = offered(&less);
        assert!(!found.contains(&"bash") && !found.contains(&"jobs"), "{found:?}");
        assert!(found.contains(&"web_search") && found.contains(&"edit_file"), "{found:?}");
        let without = options(Some(&["bash", "read"]), &["bash", "mcp__db__*"]);
        assert_eq!(offered(&without), ["read_file"]);
        assert!(!without.permits_call("Bash", "bash"));
        assert!(!without.permits_of_server("mcp__db__query"));
        assert!(without.permits_of_server("mcp__web__get"));
        assert!(!options(Some(&["mcp__web__*"]), &[]).permits_of_server("mcp__db__query"));
        assert!(usual.contains(&"bash") && !usual.contains(&"web_search"));
        // Calls by another spelling of an excluded one.
        let no_ls = options(None, &["ls"]);
        assert!(!no_ls.permits_call("ls", "find") && no_ls.permits_call("find", "find"));
    }

    #[test]
    fn stars_match_any_text() {
        for (pattern, text, expected) in [
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("*b*", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("*", "", true),
            ("a*a", "a", false),
            ("abc", "abcd", false),
            ("*x*", "abc", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn every_bound_is_checked() {
        assert_eq!(options(Some(&["read", "+bash"]), &[]).check(), Err(AgentOptionsError::Mixed));
        assert_eq!(options(Some(&[""]), &[]).check(), Err(AgentOptionsError::Name));
        assert_eq!(options(None, &["x"; 129]).check(), Err(AgentOptionsError::TooMany));
        let long = Some("x".repeat(MAX_PROMPT_BYTES + 1));
        let long = AgentOptions { system_prompt: long, ..AgentOptions::default() };
        assert_eq!(long.check(), Err(AgentOptionsError::Prompts));
        assert_eq!(AgentOptions::default().check(), Ok(()));
    }
}
