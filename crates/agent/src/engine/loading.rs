//! Calls before the first request of a run: for the instructions of the workspace, and for the tools of MCP servers.
//! Called by [`super::run`], and by [`super::tools`] for each call that has ended.

use super::Agent;
use super::instructions::Git;
use super::run_state::{Loading, Phase};
use quackd_protocol::agent::AgentToolDone;
use quackd_protocol::foreign_text::{message_line, one_line};
use quackd_protocol::instructions::InstructionFile;
use quackd_protocol::mcp::McpTools;

/// Limits of the problems that the system prompt names: their number, and the bytes of one.
const MAX_PROBLEMS: usize = 8;
const MAX_PROBLEM: usize = 600;

impl Agent {
    /// Sends the first request of the run, unless it still waits for something.
    pub(super) fn request_if_loaded(&mut self) {
        let Some(run) = &self.run else { return };
        match &run.phase {
            Phase::Loading(Loading { instructions: None, servers: None }) if run.is_aborted => {
                self.end_aborted();
            }
            Phase::Loading(Loading { instructions: None, servers: None }) => self.request(),
            _ => {}
        }
    }

    /// Takes the instructions and the facts of the workspace. After a failure those of the run before stay.
    fn on_instructions(&mut self, done: &AgentToolDone) {
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Data {
            files: Vec<InstructionFile>,
            shell: String,
            git: Option<Git>,
            workspace: Option<String>,
        }

        let has_failed = done.is_error || done.aborted;
        if has_failed && done.user_instructions.is_none() {
            return;
        }

        let mut now = self.instructions.clone().unwrap_or_default();
        if let Some(own) = &done.user_instructions {
            now.own.clone_from(own);
        }

        if !has_failed {
            let data = done.data.as_ref();
            let data: Data =
                data.and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or_default();
            (now.project, now.shell) = (data.files, data.shell);
            now.workspace = data.workspace.as_deref().map(one_line);
            // Without a text, HEAD is still the known one.
            let is_known = |git: &Git| git.text.is_empty();
            if !data.git.as_ref().is_some_and(is_known) {
                now.git = data.git;
            }
        }

        self.instructions = Some(now);
    }

    /// Takes the list of tools. A failure becomes a fact in the system prompt, and a message for the user.
    fn on_server_tools(&mut self, done: &AgentToolDone) {
        if done.aborted {
            // The next prompt lists them again.
            return;
        }

        self.servers.is_due = false;
        let data = done.data.as_ref().filter(|_| !done.is_error);
        let listed: Option<McpTools> = data.and_then(|data| serde_json::from_str(data.get()).ok());

        let McpTools { tools, mut problems } = listed.unwrap_or_else(|| {
            let text: String = serde_json::from_str(done.text.get()).unwrap_or_default();
            McpTools { tools: Vec::new(), problems: vec![text] }
        });

        for tool in tools {
            if let Some(spec) = self.servers.add(tool, &self.setup.options) {
                self.setup.small_tools.push(spec.clone());
                self.setup.tools.push(spec);
            }
        }

        problems.truncate(MAX_PROBLEMS);
        for problem in problems {
            let line = message_line(&problem, MAX_PROBLEM);
            let cut = line.floor_char_boundary(MAX_PROBLEM.min(line.len()));
            let line = line.get(..cut).unwrap_or_default();
            self.setup.facts.push(format!("MCP servers: {line}"));
            self.tell_user("mcp_servers", &format!("MCP server {line}"));
        }
    }

    /// Handles the end of a call that the run loads with. Sends the request once both have ended.
    pub(super) fn on_loaded(&mut self, done: &AgentToolDone) -> bool {
        let Some(run) = &mut self.run else { return false };
        let Phase::Loading(loading) = &mut run.phase else { return false };

        if loading.instructions == Some(done.number) {
            loading.instructions = None;
            self.on_instructions(done);
        } else if loading.servers == Some(done.number) {
            loading.servers = None;
            self.on_server_tools(done);
        } else {
            return false;
        }

        self.request_if_loaded();
        true
    }
}
