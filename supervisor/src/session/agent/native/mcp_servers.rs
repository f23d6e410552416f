//! MCP servers of a session: those of the configuration, and those that a client has given. The session's worker starts
//! them.

use crate::children::ProcessKind;
use crate::session::agent::actor::AgentActor;
use actix::prelude::*;
use quackd_protocol::agent::AgentToolDone;
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::mcp::{McpCall, McpList, McpServer};
use quackd_protocol::tools;
use serde::Deserialize;

/// Most problems of MCP servers that are kept for a session.
const MAX_PROBLEMS: usize = 8;

/// Longest problem that is kept, in bytes.
const MAX_PROBLEM_BYTES: usize = 600;

/// MCP servers that a client gives the session, in place of earlier ones. An idle agent ends, so that the next one lists
/// their tools.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SetMcpServers(pub(crate) Vec<McpServer>);

impl Handler<SetMcpServers> for AgentActor {
    type Result = ();

    fn handle(&mut self, SetMcpServers(servers): SetMcpServers, ctx: &mut Self::Context) {
        self.mcp_servers = servers;
        self.show_mcp_problems(Vec::new());
        self.end_if_replaced(ctx);
    }
}

/// Reply with the session's MCP servers.
#[derive(Debug, Message)]
#[rtype(result = "Vec<McpServer>")]
struct GetMcpServers;

impl Handler<GetMcpServers> for AgentActor {
    type Result = Vec<McpServer>;

    fn handle(&mut self, _: GetMcpServers, _: &mut Self::Context) -> Vec<McpServer> {
        self.mcp_servers()
    }
}

impl AgentActor {
    /// Keeps the problems of a list of tools, for `get_state` and `doctor`.
    pub(super) fn note_mcp_problems(&mut self, done: &AgentToolDone) {
        if !done.aborted {
            self.show_mcp_problems(problems(done));
        }
    }

    fn show_mcp_problems(&self, problems: Vec<String>) {
        self.services.table.publish(&self.entry, ProcessKind::Agent, |session| {
            session.agent.mcp_problems = problems.into();
        });
    }

    /// Returns the servers of a client, then those of the configuration with other names.
    pub(super) fn mcp_servers(&self) -> Vec<McpServer> {
        let given = &self.mcp_servers;
        let configured = self.services.daemon.config.mcp_servers.iter();
        let is_free = |server: &&McpServer| given.iter().all(|it| it.name != server.name);
        let configured = configured.map(|setting| &setting.value).filter(is_free);
        given.iter().chain(configured).cloned().collect()
    }
}

/// Returns the problems that a list of tools names. They are texts of the worker and of the servers: the number and the
/// length are limited.
fn problems(done: &AgentToolDone) -> Vec<String> {
    #[derive(Deserialize)]
    struct Listed {
        problems: Vec<String>,
    }
    let data = done.data.as_ref().filter(|_| !done.is_error);
    let listed = data.and_then(|data| serde_json::from_str(data.get()).ok());
    let Listed { mut problems } = listed.unwrap_or_else(|| Listed {
        problems: vec![serde_json::from_str(done.text.get()).unwrap_or_default()],
    });
    problems.truncate(MAX_PROBLEMS);
    let line = |problem: &String| {
        let line = message_line(problem, MAX_PROBLEM_BYTES);
        let cut = line.floor_char_boundary(MAX_PROBLEM_BYTES.min(line.len()));
        line.get(..cut).unwrap_or_default().to_owned()
    };
    problems.iter().map(line).collect()
}

/// Adds the servers of the session to the arguments of the tools that start servers. `None` if the session is gone.
pub(crate) async fn complete(
    agent: &Addr<AgentActor>,
    tool: &str,
    arguments: String,
) -> Option<String> {
    if ![tools::MCP_LIST, tools::MCP_CALL].contains(&tool) {
        return Some(arguments);
    }
    let servers = agent.send(GetMcpServers).await.ok()?;
    // The worker refuses a call without a server.
    let made = with_servers(tool, &arguments, servers);
    Some(made.unwrap_or_else(|| "{}".to_owned()))
}

/// Returns the arguments of a tool for the worker: those of the agent, with the servers of the session. `None` if the
/// agent's arguments are invalid.
fn with_servers(tool: &str, arguments: &str, servers: Vec<McpServer>) -> Option<String> {
    if tool == tools::MCP_LIST {
        return serde_json::to_string(&McpList { servers }).ok();
    }
    let call: McpCall = serde_json::from_str(arguments).ok()?;
    // A worker starts only the server that is called.
    let servers = servers.into_iter().filter(|server| server.name == call.server).collect();
    serde_json::to_string(&McpCall { servers, ..call }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn server(name: &str) -> McpServer {
        McpServer { name: name.into(), command: "x".into(), args: Vec::new(), env: Vec::new() }
    }

    #[test]
    fn an_agent_cannot_choose_what_is_started() {
        let own = json!([{ "name": "a", "command": "of the agent" }]);
        let given = json!({ "servers": own, "server": "a", "tool": "t", "arguments": { "n": 1 } });
        let servers = || vec![server("a"), server("b")];
        let made = with_servers(tools::MCP_CALL, &given.to_string(), servers()).unwrap();
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(
            made["servers"],
            json!([{ "name": "a", "command": "x", "args": [], "env": [] }])
        );
        assert_eq!(made["arguments"], json!({ "n": 1 }));
        let made = with_servers(tools::MCP_LIST, &given.to_string(), servers()).unwrap();
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(made["servers"].as_array().map(Vec::len), Some(2));
        assert_eq!(made["servers"][0]["command"], "x");
        assert_eq!(with_servers(tools::MCP_CALL, "7", servers()), None);
    }
}
