//! MCP servers that the client gives a session. The session's worker starts them, and only quackd's own agent uses them.

use crate::rpc::RpcError;
use quackd_protocol::mcp::{MAX_MCP_NAME_BYTES, MAX_MCP_SERVERS, McpServer, is_server_name};
use serde_json::Value;

/// Checks the servers of a request, before anything is created. Their names become names of the daemon.
pub(crate) fn checked(servers: Vec<Value>) -> Result<Vec<McpServer>, RpcError> {
    if MAX_MCP_SERVERS < servers.len() {
        let message = format!("at most {MAX_MCP_SERVERS} MCP servers are supported");
        return Err(RpcError::invalid_params(message));
    }
    let mut known: Vec<McpServer> = Vec::with_capacity(servers.len());
    for (index, value) in servers.into_iter().enumerate() {
        let refused = |problem: &str| {
            RpcError::invalid_params(format!("MCP server {}: it {problem}", index + 1))
        };
        if value.get("url").is_some() {
            return Err(refused("must be one that is started as a process (stdio)"));
        }
        let mut server: McpServer =
            serde_json::from_value(value).map_err(|_| refused("must have a name and a command"))?;
        let taken = |name: &str| known.iter().any(|it| it.name == name);
        server.name = free_name(&server.name, taken);
        server.check().map_err(|error| refused(&error.to_string()))?;
        known.push(server);
    }
    Ok(known)
}

/// Returns the name with `_` for characters that the daemon does not take, cut, and with a number if it is taken.
fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let plain = |c: char| if is_server_name(c.encode_utf8(&mut [0; 4])) { c } else { '_' };
    let name: String = name.chars().take(MAX_MCP_NAME_BYTES - 3).map(plain).collect();
    let name = if name.is_empty() { "server".to_owned() } else { name };
    if !taken(&name) {
        return name;
    }
    let mut numbered = (2..=MAX_MCP_SERVERS).map(|n| format!("{name}-{n}"));
    numbered.find(|name| !taken(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_fit_and_differ_and_other_kinds_of_servers_are_refused() {
        let server = |name: &str| json!({"name": name, "command": "x", "args": [], "env": []});
        let long = "ä".repeat(90);
        let given = ["my db", "my/db", "my_db", "", &long].map(server);
        let names: Vec<_> =
            checked(given.to_vec()).unwrap().into_iter().map(|server| server.name).collect();
        assert_eq!(names[..4], ["my_db", "my_db-2", "my_db-3", "server"]);
        assert_eq!(names[4], "_".repeat(29));
        for refused in [
            json!({"type": "http", "name": "a", "url": "http://x", "headers": []}),
            json!({"name": "a", "command": "", "args": [], "env": []}),
            json!({"name": "a"}),
        ] {
            assert!(checked(vec![refused.clone()]).is_err(), "{refused}");
        }
        assert!(checked(vec![server("a"); 17]).is_err());
    }
}
