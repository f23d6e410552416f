//! Asks the user's tools for the hosts of their registries: runs them, and reads their user-level files. Reads keys from
//! the system's keychain in the same way.
//!
//! The tools run unconfined, so nothing that a session may write chooses what runs: the working directory is `/`, the
//! supervisor removes variables and entries of PATH that lead into such a directory, and programs and files that do are
//! not used.
//!
//! In reading order:
//! - [`asking`]: runs one program with the deadline, and reads one file;
//! - [`url_host`]: the host of a URL as a rule;
//! - [`cargo`], [`npm`], [`pip`], [`go`], [`apt`], [`toolchains`]: one question each;
//! - [`keychain`]: reads a key.

mod apt;
mod asking;
mod cargo;
mod go;
mod keychain;
mod npm;
mod pip;
mod toolchains;
mod url_host;

use asking::Asking;
use futures_util::future::join_all;
pub(crate) use keychain::read_key;
use quackd_protocol::environment::{
    MAX_PROBLEM_CHARS, MAX_TOOL_HOSTS, MAX_TOOL_PROBLEMS, ToolAnswer, ToolKind, ToolsRequest,
};
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::state::FoundHost;
use tokio_util::sync::CancellationToken;
use url_host::rule_of;

/// Hosts and problems found so far for one kind of tools.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    hosts: Vec<FoundHost>,
    problems: Vec<String>,
}

impl Findings {
    /// Adds the host of a URL. Returns false if the URL has none that commands could reach.
    fn url(&mut self, url: &str, source: impl Into<String>) -> bool {
        let Some(rule) = rule_of(url) else { return false };
        if self.hosts.len() < MAX_TOOL_HOSTS && !self.hosts.iter().any(|host| host.rule == rule) {
            self.hosts.push(FoundHost { rule, source: source.into() });
        }
        true
    }

    /// Adds a source without a usable answer. The text never contains the output of a tool.
    fn problem(&mut self, text: impl ToString) {
        if self.problems.len() < MAX_TOOL_PROBLEMS {
            self.problems.push(message_line(&text.to_string(), MAX_PROBLEM_CHARS));
        }
    }

    /// Adds the value of a successful question, or the problem of a failed one.
    fn or_problem<T>(&mut self, asked: Result<T, asking::Problem>) -> Option<T> {
        asked.map_err(|problem| self.problem(problem)).ok()
    }
}

/// Asks all kinds of tools at the same time. Returns one answer for each. No process of a tool is left afterwards.
///
/// This process must be a sub-reaper, see [`quackd_process::run`].
pub(crate) async fn ask(request: ToolsRequest, abandon: &CancellationToken) -> Vec<ToolAnswer> {
    let tools = request.tools.clone();
    let asking = Asking::new(request, abandon.clone());
    let one = |tool: ToolKind| {
        let asking = &asking;
        async move {
            let Findings { hosts, problems } = match tool {
                ToolKind::Crates => cargo::ask(asking).await,
                ToolKind::Npm => npm::ask(asking).await,
                ToolKind::Pypi => pip::ask(asking).await,
                ToolKind::Go => go::ask(asking).await,
                ToolKind::System => apt::ask(asking),
                ToolKind::Rust => toolchains::ask_rustup(asking),
                ToolKind::Node => toolchains::ask_node(asking).await,
            };
            ToolAnswer { tool, hosts, problems }
        }
    };
    join_all(tools.into_iter().map(one)).await
}
