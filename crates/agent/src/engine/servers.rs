//! Tools of MCP servers: their names for the model, and the way of a call to its server. The session's worker runs the
//! servers. The agent lists their tools once, at the first prompt of its process.

use crate::providers::ToolSpec;
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::mcp::{McpCall, McpTool};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum length of a tool's name that every provider accepts, in bytes.
const MAX_NAME: usize = 64;

/// Tools of the session's MCP servers.
#[derive(Debug, Default)]
pub(super) struct ServerTools {
    /// Whether the tools must be listed.
    pub(super) is_due: bool,
    /// Server and tool by the name that the model uses.
    names: BTreeMap<String, (String, String)>,
}

impl ServerTools {
    /// Creates an empty table. With servers, their tools are listed at the next prompt.
    pub(super) fn new(has_servers: bool) -> Self {
        Self { is_due: has_servers, names: BTreeMap::new() }
    }

    /// Returns the arguments of the internal tool for a call. `None` if no server has a tool with this name.
    pub(super) fn route(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Option<Map<String, Value>> {
        let (server, tool) = self.names.get(name)?.clone();
        let call = McpCall { servers: Vec::new(), server, tool, arguments: arguments.clone() };
        match serde_json::to_value(call) {
            Ok(Value::Object(call)) => Some(call),
            Ok(_) | Err(_) => None,
        }
    }

    /// Adds a tool. Returns it as the model gets it. `None` if the model may not use it.
    pub(super) fn add(&mut self, tool: McpTool, options: &AgentOptions) -> Option<ToolSpec> {
        let name = self.free_name(&tool.server, &tool.name);
        if !options.permits_of_server(&name) {
            return None;
        }
        self.names.insert(name.clone(), (tool.server, tool.name));
        Some(ToolSpec { name, description: tool.description, parameters: tool.parameters })
    }

    /// Returns a name that no other tool has. A name that is too long or taken ends with a number.
    fn free_name(&self, server: &str, tool: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let plain = |c: char| if is_plain(c) { c } else { '_' };
        let whole: String = format!("mcp__{server}__{tool}").chars().map(plain).collect();

        if whole.len() <= MAX_NAME && !self.names.contains_key(&whole) {
            return whole;
        }

        let numbered = (1_usize..).map(|n| {
            let end = format!("_{n}");
            // Every character is ASCII.
            let room = MAX_NAME.saturating_sub(end.len()).min(whole.len());
            format!("{}{end}", whole.get(..room).unwrap_or_default())
        });

        let mut free = numbered.filter(|name| !self.names.contains_key(name));
        free.next().unwrap_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(server: &str, name: &str) -> McpTool {
        let (server, name) = (server.to_owned(), name.to_owned());
        McpTool { server, name, description: String::new(), parameters: json!({}) }
    }

    #[test]
    fn each_tool_has_a_name_that_every_provider_accepts_and_that_leads_to_it() {
        let mut tools = ServerTools::default();
        let long = "x".repeat(100);
        let given = [("db", "query"), ("db", "a.b"), ("db", "a/b"), ("db", &*long), ("db", &*long)];
        let names: Vec<_> = given
            .iter()
            .map(|(at, it)| tools.add(tool(at, it), &AgentOptions::default()).unwrap().name)
            .collect();
        assert_eq!(names[..3], ["mcp__db__query", "mcp__db__a_b", "mcp__db__a_b_1"]);
        assert!(names.iter().all(|name| name.len() <= MAX_NAME), "{names:?}");
        assert_ne!(names[3], names[4]);
        for (name, (server, tool)) in names.iter().zip(given) {
            let arguments = json!({ "n": 1 }).as_object().cloned().unwrap();
            let call = Value::Object(tools.route(name, &arguments).unwrap());
            let wanted = json!({ "server": server, "tool": tool, "arguments": { "n": 1 } });
            assert_eq!(call, wanted);
        }
        // Two servers whose names and tools give the same text.
        let pair = [("a", "b__c"), ("a__b", "c")]
            .map(|(at, it)| tools.add(tool(at, it), &AgentOptions::default()).unwrap().name);
        assert_eq!(pair, ["mcp__a__b__c", "mcp__a__b__c_1"]);
        assert_eq!(tools.route("mcp__db__other", &Map::new()), None);
        assert_eq!(tools.route("bash", &Map::new()), None);
    }
}
