//! A round trip of a tool call through `quack mcp` and of a request through `quack acp`, compared with public MCP servers.
//!
//! `QUACKD_BENCH_MCP_FILES` and `QUACKD_BENCH_MCP_SHELL` are shell commands of a server for files, which gets the work
//! tree as an argument, and of a server for commands. Each server runs in the work tree.

use super::compare::{Lane, charted};
use super::{Effort, tell_failed, tell_not_installed};
use crate::daemon::Daemon;
use crate::report::Row;
use crate::stdio::StdioServer;
use crate::wire::Line;
use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// An optional server.
struct Other {
    /// Environment variable with its shell command.
    variable: &'static str,
    name: &'static str,
    /// How to install such a server.
    how: &'static str,
    /// Text after the shell command, where `$0` is the work tree.
    suffix: &'static str,
}

const FILES: Other = Other {
    variable: "QUACKD_BENCH_MCP_FILES",
    name: "MCP file server",
    how: "npm install @modelcontextprotocol/server-filesystem; QUACKD_BENCH_MCP_FILES",
    suffix: " \"$0\"",
};

const SHELL: Other = Other {
    variable: "QUACKD_BENCH_MCP_SHELL",
    name: "MCP shell server",
    how: "npm install mcp-server-commands, or pip install mcp-shell-server; QUACKD_BENCH_MCP_SHELL",
    suffix: "",
};

/// Size of the file that is read, in bytes. A result of `true` has no size to check.
const FILE_BYTES: usize = 2048;

/// The part of a tool's result that shows success or failure.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    #[serde(default)]
    is_error: bool,
}

/// A running MCP server, or `quack acp`, with the request to measure.
struct Side {
    name: &'static str,
    /// Name and version that another server reports. `None` for quackd.
    version: Option<String>,
    server: StdioServer,
    request: Line,
    /// Minimum size of a successful result.
    min_bytes: usize,
}

impl Side {
    /// Starts an MCP server, and calls the first of `tools` that the server has.
    fn mcp(
        name: &'static str,
        command: Command,
        tools: &[(&str, Value)],
        min_bytes: usize,
    ) -> anyhow::Result<Self> {
        let mut server = StdioServer::start(command)?;
        let client = json!({"name": "quackd-bench", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let version = version_in(&server.request("initialize", &params)?);
        server.notify("notifications/initialized", &json!({}))?;
        let list = server.request("tools/list", &json!({}))?;
        let has = |tool: &str| {
            let mut listed = list.get("tools").and_then(Value::as_array).into_iter().flatten();
            listed.any(|listed| listed.get("name").is_some_and(|name| name == tool))
        };
        let (tool, arguments) =
            tools.iter().find(|(tool, _)| has(tool)).context("no known tool")?;
        let params = json!({"name": tool, "arguments": arguments});
        let request = Line::rpc(Some(0), "tools/call", &params);
        let mut side = Self { name, version, server, request, min_bytes };
        side.answered()?;
        Ok(side)
    }

    /// Starts `quack acp` and measures a request that its daemon answers without a model.
    fn acp(command: Command) -> anyhow::Result<Self> {
        let mut server = StdioServer::start(command)?;
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        server.request("initialize", &params)?;
        let request = Line::rpc(Some(0), "session/list", &json!({}));
        Ok(Self { name: "quack acp", version: None, server, request, min_bytes: 0 })
    }

    fn answered(&mut self) -> anyhow::Result<()> {
        let min_bytes = self.min_bytes;
        self.server.call(&self.request, |result| {
            let parsed: CallResult = serde_json::from_str(result)?;
            anyhow::ensure!(
                !parsed.is_error && min_bytes <= result.len(),
                "the tool failed: {result}"
            );
            Ok(())
        })
    }
}

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let repo = daemon.repo("a")?;
    let quack = |words: &[&str]| {
        let mut quack = daemon.quack();
        quack.args(words).current_dir(&repo);
        quack
    };
    let mcp = ["mcp", "--tools", "core"];
    let read = [("read_file", json!({"path": "2k"}))];
    let mut files = vec![Side::mcp("quack mcp", quack(&mcp), &read, FILE_BYTES)?];
    let read = [("read_text_file", json!({"path": repo.join("2k")}))];
    files.extend(other(&daemon, &repo, FILES, &read, FILE_BYTES));

    let bash = [("bash", json!({"command": "true"}))];
    let mut shell = vec![Side::mcp("quack mcp", quack(&mcp), &bash, 0)?];
    let shell_tools = [
        ("run_command", json!({"command": "true"})),
        ("shell_execute", json!({"command": ["bash", "-c", "true"], "directory": repo})),
        ("start_process", json!({"command": "true", "timeout_ms": 60_000})),
    ];
    shell.extend(other(&daemon, &repo, SHELL, &shell_tools, 0));

    let acp = vec![Side::acp(quack(&["acp"]))?];
    let mut rows = Vec::new();
    for (rounds, label, sides) in [
        (500, "MCP, read a file of 2 KiB", files),
        (500, "MCP, `true` in a shell", shell),
        (500, "ACP, session/list", acp),
    ] {
        let lanes = sides.into_iter().map(|mut side| {
            let version = side.version.take();
            let lane = Lane::new(side.name, move || side.answered());
            match version {
                Some(version) => lane.of_version(version),
                None => lane.ours(),
            }
        });
        rows.extend(charted(effort.rounds(rounds), label, lanes.collect())?);
    }
    daemon.stop()?;
    Ok(rows)
}

/// Starts the server of an environment variable. Reports a missing server and one that does not work.
fn other(
    daemon: &Daemon,
    repo: &Path,
    Other { variable, name, how, suffix }: Other,
    tools: &[(&str, Value)],
    min_bytes: usize,
) -> Option<Side> {
    let Some(words) = std::env::var_os(variable) else {
        tell_not_installed(name, how);
        return None;
    };
    let mut script = OsString::from("exec ");
    script.push(words);
    script.push(suffix);
    let mut command = daemon.command("/bin/sh");
    command.arg("-c").arg(script).arg(repo).current_dir(repo);
    let started = Side::mcp(name, command, tools, min_bytes);
    started.inspect_err(|error| tell_failed(name, error)).ok()
}

/// Returns the name and version that another server reports, and `None` for quackd.
fn version_in(initialized: &Value) -> Option<String> {
    let field = |name: &str| {
        let value = initialized.get("serverInfo").and_then(|info| info.get(name));
        value.and_then(Value::as_str).unwrap_or("unknown")
    };
    (field("name") != "quackd").then(|| format!("{} {}", field("name"), field("version")))
}
