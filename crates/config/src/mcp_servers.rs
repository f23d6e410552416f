//! The tables `[mcp_servers.NAME]`: MCP servers of all sessions. The table of keys has no place for them, because the
//! user chooses their names.

use crate::error::quoted;
use crate::secret::SHOWN;
use crate::value_kind::{ValueError, refusal};
use crate::{Entry, Origin, Setting};
use quackd_protocol::mcp::{MAX_MCP_SERVERS, McpServer, McpVariable};
use serde_json::{Map, Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Name of the table that has a table for each server.
pub(crate) const TABLE: &str = "mcp_servers";

/// An invalid entry: its key from the root, and the problem.
pub(crate) struct EntryError {
    pub(crate) key: String,
    /// `None` for an unknown key.
    pub(crate) message: Option<String>,
    /// Position in bytes from the start.
    pub(crate) at: usize,
}

/// Reads the tables. `origin` returns the origin of a position.
pub(crate) fn read(
    value: &Spanned<DeValue<'_>>,
    origin: impl Fn(usize) -> Origin,
) -> Result<Vec<Setting<McpServer>>, EntryError> {
    let requirement = "must have a table for each server: write `[mcp_servers.NAME]`";
    let tables = table(value, TABLE, requirement)?;

    if MAX_MCP_SERVERS < tables.len() {
        let message = format!("must have at most {MAX_MCP_SERVERS} servers, not {}", tables.len());
        let at = value.span().start;
        return Err(EntryError { key: TABLE.to_owned(), message: Some(message), at });
    }

    let mut servers = Vec::with_capacity(tables.len());
    for (name, value) in tables {
        let key = format!("{TABLE}.{}", quoted(name.get_ref()));
        let at = name.span().start;
        let server = server(name.get_ref(), &key, value)?;
        server.check().map_err(|error| EntryError {
            key: key.clone(),
            message: Some(error.to_string()),
            at,
        })?;
        servers.push((at, Setting { value: server, origin: origin(at) }));
    }

    // In the order of the file, which the user expects in texts.
    servers.sort_by_key(|(at, _)| *at);
    Ok(servers.into_iter().map(|(_, server)| server).collect())
}

/// Reads the table of one server. Every unknown key is an error.
fn server(name: &str, key: &str, value: &Spanned<DeValue<'_>>) -> Result<McpServer, EntryError> {
    let entries = table(value, key, "must be a table with `command`")?;
    let command = String::new();
    let (args, env) = (Vec::new(), Vec::new());
    let mut server = McpServer { name: name.to_owned(), command, args, env };

    for (name, value) in entries {
        let key = format!("{key}.{}", quoted(name.get_ref()));
        match &**name.get_ref() {
            "command" => server.command = text(value, &key)?,
            "args" => {
                let requirement = "must be an array of strings";
                let array = value.get_ref().as_array();
                let array = array.ok_or_else(|| wrong_type(value, &key, requirement))?;
                let args: Result<_, _> = array.iter().map(|word| text(word, &key)).collect();
                server.args = args?;
            }
            "env" => {
                let variables = table(value, &key, "must be a table of strings")?;
                for (name, value) in variables {
                    let key = format!("{key}.{}", quoted(name.get_ref()));
                    let text = text(value, &key)?;
                    // A printed configuration that becomes the file would replace the value.
                    if text == SHOWN {
                        let message = format!(
                            "must be the value itself, not `{SHOWN}`, which `quack config show` prints in its place"
                        );
                        let at = value.span().start;
                        return Err(EntryError { key, message: Some(message), at });
                    }
                    let name = name.get_ref().to_string();
                    server.env.push(McpVariable { name, value: text });
                }
            }
            _ => return Err(EntryError { key, message: None, at: name.span().start }),
        }
    }
    Ok(server)
}

pub(crate) fn table<'a>(
    value: &'a Spanned<DeValue<'a>>,
    key: &str,
    requirement: &str,
) -> Result<&'a DeTable<'a>, EntryError> {
    value.get_ref().as_table().ok_or_else(|| wrong_type(value, key, requirement))
}

pub(crate) fn text(value: &Spanned<DeValue<'_>>, key: &str) -> Result<String, EntryError> {
    let text = value.get_ref().as_str();
    text.map(str::to_owned).ok_or_else(|| wrong_type(value, key, "must be a string"))
}

fn wrong_type(value: &Spanned<DeValue<'_>>, key: &str, requirement: &str) -> EntryError {
    let ValueError { at, message } = refusal(value, requirement);
    EntryError { key: key.to_owned(), message: Some(message), at }
}

/// Returns the entries of a server. Shows no value of a variable.
pub(crate) fn entries(server: &Setting<McpServer>) -> Vec<Entry> {
    let Setting { value: McpServer { name, command, args, env }, origin } = server;
    let entry = |key: &str, value: Json| Entry {
        key: format!("{TABLE}.{name}.{key}").into(),
        value,
        origin: origin.to_string(),
    };

    let mut entries = vec![entry("command", json!(command)), entry("args", json!(args))];
    if !env.is_empty() {
        let variables = env.iter().map(|variable| (variable.name.clone(), json!(SHOWN)));
        entries.push(entry("env", Json::Object(variables.collect::<Map<_, _>>())));
    }
    entries
}
