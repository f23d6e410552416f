//! MCP servers that the client gives a session. The session's worker starts them, and only quackd's own agent uses them.

use crate::rpc::RpcError;
use quackd_protocol::mcp::{
    MAX_MCP_NAME_BYTES, MAX_MCP_SERVERS, McpServer, McpVariable, is_server_name,
};
use serde::Deserialize;
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

        let mut server: McpServer = match value.get("url") {
            Some(_) => over_http(value).map_err(refused)?,
            None => serde_json::from_value(value)
                .map_err(|_| refused("must have a name and a command"))?,
        };

        let taken = |name: &str| known.iter().any(|server| server.name == name);
        // Two servers of one request may have the same name.
        server.name = free_name(&server.name, taken);
        server.check().map_err(|error| refused(&error.to_string()))?;
        known.push(server);
    }
    Ok(known)
}

/// Program that passes messages on to a server over HTTP. Runs in the session, so that the rules and questions about
/// hosts are those of commands.
const OVER_HTTP: &str = include_str!("mcp_http.sh");

/// Variable of the program with the headers, one per line. They may contain keys.
const HEADERS: &str = "MCP_HEADERS";

/// A server over HTTP.
#[derive(Debug, Deserialize)]
struct HttpServer {
    /// Transport: `http`, which is streamable HTTP, or `sse`, the older HTTP with events.
    #[serde(rename = "type")]
    kind: String,
    name: String,
    url: String,
    #[serde(default)]
    headers: Vec<McpVariable>,
}

/// Returns the program for a server over HTTP. The error is a verb phrase after the server's name.
fn over_http(value: Value) -> Result<McpServer, &'static str> {
    let server = serde_json::from_value(value).ok();
    let server = server.filter(|server: &HttpServer| matches!(&*server.kind, "http" | "sse"));
    let HttpServer { kind, name, url, headers } =
        server.ok_or("must have a type, http or sse, and a name")?;

    let is_url = url.starts_with("http://") || url.starts_with("https://");
    if !is_url || !url.chars().all(|c| c.is_ascii_graphic()) {
        return Err("must have a URL that begins with http:// or https://");
    }

    let is_token = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if headers
        .iter()
        .any(|header| !is_token(&header.name) || header.value.contains(char::is_control))
    {
        return Err("must have headers with usual names and without control characters");
    }

    let headers: String =
        headers.iter().map(|header| format!("{}: {}\n", header.name, header.value)).collect();
    // In the environment, because other processes can read the arguments.
    let env = vec![McpVariable { name: HEADERS.to_owned(), value: headers }];
    let args = ["-c", OVER_HTTP, "mcp-http", &kind, &url].map(str::to_owned).to_vec();
    Ok(McpServer { name, command: "bash".to_owned(), args, env })
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
            json!({"type": "ws", "name": "a", "url": "http://x", "headers": []}),
            json!({"type": "http", "name": "a", "url": "file:///x", "headers": []}),
            json!({"type": "http", "name": "a", "url": "http://x y", "headers": []}),
            json!({"type": "http", "name": "a", "url": "http://x",
                "headers": [{"name": "X", "value": "a\nY: b"}]}),
            json!({"name": "a", "command": "", "args": [], "env": []}),
            json!({"name": "a"}),
        ] {
            assert!(checked(vec![refused.clone()]).is_err(), "{refused}");
        }
        assert!(checked(vec![server("a"); 17]).is_err());
        let over_http = json!({"type": "sse", "name": "web", "url": "https://x.example/sse",
            "headers": [{"name": "Authorization", "value": "Bearer k"}]});
        let made = checked(vec![over_http]).unwrap().remove(0);
        assert_eq!(
            (made.command.as_str(), &made.args[3..]),
            ("bash", &["sse".to_owned(), "https://x.example/sse".to_owned()][..])
        );
        assert_eq!(made.env[0].value, "Authorization: Bearer k\n");
    }
}
