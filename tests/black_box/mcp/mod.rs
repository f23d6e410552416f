//! `quack mcp`: an agent that speaks the Model Context Protocol, as raw lines over the real program's stdin and stdout.

mod calls;
mod hostile;
mod http;
mod questions;
mod sessions;
mod tasks;

use crate::harness::{Daemon, KillOnDrop, LineReader, Repo, wait_for};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

/// The last revision with a handshake.
const HANDSHAKE: &str = "2025-11-25";

/// The current revision, in which each request says who sends it.
const CURRENT: &str = "2026-07-28";

/// A running `quack mcp` and the agent that started it. Killed at the end of its test.
pub(crate) struct Agent {
    child: KillOnDrop,
    input: Option<ChildStdin>,
    output: LineReader,
    early: VecDeque<Value>,
    next: u64,
}

/// The command in the directory, which is where an agent starts it.
pub(crate) fn command(daemon: &Daemon, dir: &Path, arguments: &[&str]) -> Command {
    let mut command = daemon.command(&[&["mcp"], arguments].concat());
    command.current_dir(dir);
    command
}

impl Agent {
    /// Starts the server in a repository and says hello in revision 2025-11-25.
    #[track_caller]
    pub(crate) fn start(daemon: &Daemon, repo: &Repo, arguments: &[&str]) -> Self {
        let mut agent = Self::spawn(command(daemon, repo.path(), arguments));
        agent.initialize(json!({}));
        agent
    }

    #[track_caller]
    pub(crate) fn spawn(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("start quack mcp");
        let output = LineReader::new(child.stdout.take().expect("a pipe"));
        let input = child.stdin.take();
        Self { child: child.into(), input, output, early: VecDeque::new(), next: 0 }
    }

    #[track_caller]
    pub(crate) fn initialize(&mut self, capabilities: Value) -> Value {
        self.initialize_in(HANDSHAKE, capabilities)
    }

    /// Says hello in a revision.
    #[track_caller]
    pub(crate) fn initialize_in(&mut self, revision: &str, capabilities: Value) -> Value {
        let info = json!({"name": "test-agent", "version": "1.2"});
        let params =
            json!({"protocolVersion": revision, "capabilities": capabilities, "clientInfo": info});
        let answer = self.request("initialize", params);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer["result"].clone()
    }

    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("an open stdin");
        input.write_all(bytes).expect("write to quack mcp");
        input.flush().expect("write to quack mcp");
    }

    #[track_caller]
    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request and returns its id.
    #[track_caller]
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    /// The next message that `is_wanted`. Others are kept.
    #[track_caller]
    pub(crate) fn message(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&is_wanted) {
            return self.early.remove(at).expect("a message");
        }
        loop {
            let message = self.next_message();
            if is_wanted(&message) {
                return message;
            }
            self.early.push_back(message);
        }
    }

    /// The next line. Nothing but messages may be on stdout.
    #[track_caller]
    fn next_message(&self) -> Value {
        let line = self.output.line();
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        let batch =
            message.as_array().map_or_else(|| std::slice::from_ref(&message), Vec::as_slice);
        assert!(batch.iter().all(|it| it["jsonrpc"] == "2.0"), "{line}");
        message
    }

    /// The whole answer to a request.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.message(|message| message["id"] == id)
    }

    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// The result of a tool.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// Closes stdin and waits until the server exits with 0.
    #[track_caller]
    pub(crate) fn leave(mut self) {
        drop(self.input.take());
        let status = wait_for("quack mcp to end", || self.child.try_wait().expect("wait"));
        assert!(status.success(), "{status}");
    }
}

/// The text of a result, which is also in its structured content.
#[track_caller]
pub(crate) fn text(result: &Value) -> &str {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    assert_eq!(result["structuredContent"]["text"], text, "{result}");
    text
}

/// The parameters of a request of revision 2026-07-28.
fn current(params: Value, capabilities: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": CURRENT,
        "io.modelcontextprotocol/clientInfo": {"name": "test-agent", "version": "1.2"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    params
}

/// Running calls of all sessions.
#[track_caller]
fn calls_running(daemon: &Daemon) -> usize {
    let ps = daemon.wire().request("quack.ps", json!({}));
    let workers = ps["workers"].as_array().expect("workers");
    workers.iter().map(|worker| worker["calls"].as_array().map_or(0, Vec::len)).sum()
}
