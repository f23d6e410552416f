//! MCP servers of a session: those of the configuration, and those that a client has given. The session's worker starts
//! them.

use crate::session::actor::{SessionActor, TellSession};
use actix::prelude::*;
use quackd_protocol::mcp::{McpCall, McpList, McpServer};
use quackd_protocol::tools;
use tokio::sync::oneshot;

impl SessionActor {
    /// Takes the servers that a client gives. An idle agent ends, so that the next one lists their tools.
    pub(in crate::session) fn set_mcp_servers(
        &mut self,
        servers: Vec<McpServer>,
        ctx: &mut Context<Self>,
    ) {
        self.pi.mcp_servers = servers;
        self.end_if_replaced(ctx);
    }

    /// Returns the servers of a client, then those of the configuration with other names.
    pub(in crate::session) fn mcp_servers(&self) -> Vec<McpServer> {
        let given = &self.pi.mcp_servers;
        let configured = self.services.daemon.config.mcp_servers.iter();
        let is_free = |server: &&McpServer| given.iter().all(|it| it.name != server.name);
        let configured = configured.map(|setting| &setting.value).filter(is_free);
        given.iter().chain(configured).cloned().collect()
    }
}

/// Adds the servers of the session to the arguments of the tools that start servers. `None` if the session is gone.
pub(crate) async fn complete(
    session: &Addr<SessionActor>,
    tool: &str,
    arguments: String,
) -> Option<String> {
    if ![tools::MCP_LIST, tools::MCP_CALL].contains(&tool) {
        return Some(arguments);
    }
    let (reply, servers) = oneshot::channel();
    session.send(TellSession::GetMcpServers(reply)).await.ok()?;
    // The worker refuses a call without a server.
    let made = with_servers(tool, &arguments, servers.await.ok()?);
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
