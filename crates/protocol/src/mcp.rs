//! Servers of the Model Context Protocol that a session's worker starts, and the internal tools that reach them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// Most servers of the configuration, and most servers that a client gives a session.
pub const MAX_MCP_SERVERS: usize = 16;

/// Longest name of a server, in bytes.
pub const MAX_MCP_NAME_BYTES: usize = 32;

/// Most arguments of a server, and most variables.
pub const MAX_MCP_WORDS: usize = 64;

/// Most bytes of all texts of one server together.
pub const MAX_MCP_SERVER_BYTES: usize = 16 * 1024;

/// Most tools of all servers of a session together.
pub const MAX_MCP_TOOLS: usize = 128;

/// A server that is started as a process and speaks over its stdin and stdout. Has the shape of the Agent Client
/// Protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpServer {
    /// Name: 1 to 32 letters, digits, `_` and `-`.
    pub name: String,
    /// The program: a path, or a name in the PATH of commands.
    pub command: String,
    /// Arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that only this server gets, in addition to those of commands.
    #[serde(default)]
    pub env: Vec<McpVariable>,
}

/// A variable of a server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpVariable {
    /// Name.
    pub name: String,
    /// Value. May be a key, so nothing shows it.
    pub value: String,
}

/// Shows no value.
impl fmt::Debug for McpVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpVariable").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Error of checking a server. Each text is a verb phrase after the server's name. None repeats a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum McpServerError {
    /// The name has other characters, or is empty or too long.
    #[error("must have a name of 1 to {MAX_MCP_NAME_BYTES} letters, digits, `_` and `-`")]
    Name,
    /// There is no program.
    #[error("must have a command")]
    Command,
    /// There are too many arguments or variables.
    #[error("must have at most {MAX_MCP_WORDS} arguments and {MAX_MCP_WORDS} variables")]
    TooMany,
    /// The texts are too long.
    #[error("must have at most {MAX_MCP_SERVER_BYTES} bytes of command, arguments and variables")]
    TooLong,
    /// A text has a control character other than a line end or a tab.
    #[error("must be without control characters")]
    Control,
    /// A variable has an invalid name.
    #[error("must have variables with names such as API_TOKEN")]
    Variable,
    /// A variable is one of the dynamic loader or of quackd.
    #[error("must not set variables that begin with LD_, DYLD_ or QUACKD_")]
    Reserved,
}

impl McpServer {
    /// Checks the bounds.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), McpServerError> {
        if !is_server_name(&self.name) {
            return Err(McpServerError::Name);
        }
        if self.command.trim().is_empty() {
            return Err(McpServerError::Command);
        }
        if MAX_MCP_WORDS < self.args.len() || MAX_MCP_WORDS < self.env.len() {
            return Err(McpServerError::TooMany);
        }

        let variables = self.env.iter().flat_map(|it| [&it.name, &it.value]);
        let texts = || [&self.command].into_iter().chain(&self.args).chain(variables.clone());
        if MAX_MCP_SERVER_BYTES < texts().map(String::len).sum() {
            return Err(McpServerError::TooLong);
        }

        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        if texts().any(|text| text.contains(is_control)) {
            return Err(McpServerError::Control);
        }

        for variable in &self.env {
            let name = variable.name.as_str();
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if name.is_empty() || !is_name || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(McpServerError::Variable);
            }
            // A program that confines itself before it becomes the server must not load the server's code.
            if ["LD_", "DYLD_", "QUACKD_"].iter().any(|prefix| name.starts_with(prefix)) {
                return Err(McpServerError::Reserved);
            }
        }
        Ok(())
    }
}

/// Whether a text is a server's name.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=MAX_MCP_NAME_BYTES).contains(&name.len()) && name.chars().all(is_plain)
}

/// Arguments of the internal tool [`crate::tools::MCP_LIST`]. The supervisor adds the servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpList {
    /// The servers of the session.
    pub servers: Vec<McpServer>,
}

/// Data of [`crate::tools::MCP_LIST`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpTools {
    /// At most [`MAX_MCP_TOOLS`] tools.
    pub tools: Vec<McpTool>,
    /// A line for each server that has a problem.
    pub problems: Vec<String>,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct McpTool {
    /// The server.
    pub server: String,
    /// The tool's name at the server.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub parameters: Value,
}

/// Arguments of the internal tool [`crate::tools::MCP_CALL`]. The supervisor adds the servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpCall {
    /// The servers of the session, because a new worker must be able to start the one that is called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<McpServer>,
    /// Name of the server.
    pub server: String,
    /// Name of the tool at the server.
    pub tool: String,
    /// Arguments of the tool.
    pub arguments: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> McpServer {
        let env = vec![McpVariable { name: "API_TOKEN".into(), value: "secret-value".into() }];
        McpServer { name: "db".into(), command: "db-mcp".into(), args: Vec::new(), env }
    }

    #[test]
    fn a_server_is_checked_and_no_text_repeats_a_value() {
        assert_eq!(server().check(), Ok(()));
        let with = |change: fn(&mut McpServer)| {
            let mut changed = server();
            change(&mut changed);
            changed.check().unwrap_err()
        };
        assert_eq!(with(|it| it.name = "a.b".into()), McpServerError::Name);
        assert_eq!(with(|it| it.name = "x".repeat(33)), McpServerError::Name);
        assert_eq!(with(|it| it.name.clear()), McpServerError::Name);
        assert_eq!(with(|it| it.command = " ".into()), McpServerError::Command);
        assert_eq!(with(|it| it.args = vec![String::new(); 65]), McpServerError::TooMany);
        assert_eq!(with(|it| it.args = vec!["x".repeat(16 * 1024)]), McpServerError::TooLong);
        assert_eq!(with(|it| it.args = vec!["a\0b".into()]), McpServerError::Control);
        assert_eq!(with(|it| it.env[0].name = "A B".into()), McpServerError::Variable);
        assert_eq!(with(|it| it.env[0].name = "9".into()), McpServerError::Variable);
        assert_eq!(with(|it| it.env[0].name = "LD_PRELOAD".into()), McpServerError::Reserved);
        assert!(!format!("{:?}", server()).contains("secret-value"));
    }
}
