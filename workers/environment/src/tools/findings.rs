//! Results of the questions about one kind of tools.

use super::asking::Problem;
use super::url_host::rule_of;
use quackd_protocol::environment::{MAX_PROBLEM_CHARS, MAX_TOOL_HOSTS, MAX_TOOL_PROBLEMS};
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::state::FoundHost;

/// Hosts and problems found so far for one kind of tools.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) hosts: Vec<FoundHost>,
    pub(super) problems: Vec<String>,
}

impl Findings {
    /// Adds the host of a URL. Returns false if the URL has none that commands could reach.
    pub(super) fn url(&mut self, url: &str, source: impl Into<String>) -> bool {
        let Some(rule) = rule_of(url) else { return false };
        if self.hosts.len() < MAX_TOOL_HOSTS && !self.hosts.iter().any(|host| host.rule == rule) {
            self.hosts.push(FoundHost { rule, source: source.into() });
        }
        true
    }

    /// Adds a source without a usable answer. The text never contains the output of a tool.
    pub(super) fn problem(&mut self, text: impl ToString) {
        if self.problems.len() < MAX_TOOL_PROBLEMS {
            self.problems.push(message_line(&text.to_string(), MAX_PROBLEM_CHARS));
        }
    }

    /// Adds the value of a successful question, or the problem of a failed one.
    pub(super) fn or_problem<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problem(problem)).ok()
    }
}
