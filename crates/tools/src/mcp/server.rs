//! One MCP server: its connection, the limit of its starts, and its tools. The caller gives the function that starts its
//! process.

use super::connection::{Connection, RequestError, Shared};
use super::schema::with_object_root;
use crate::call_limits::CallLimits;
use quackd_protocol::VERSION;
use quackd_protocol::mask::MASK;
use quackd_protocol::mcp::{MAX_MCP_TOOLS, McpServer, McpTool};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

/// Time for a server to start and to list its tools.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Starts within [`START_WINDOW`] after which a server is not started again.
const MAX_STARTS: usize = 3;
const START_WINDOW: Duration = Duration::from_secs(60);

/// Revision of the protocol that the worker asks for. A server may answer with another one: the messages that the worker
/// uses are the same in all.
const PROTOCOL: &str = "2025-06-18";

/// Most pages of a list of tools.
const MAX_PAGES: usize = 16;

/// Longest name, description and schema of a tool, in bytes. A longer description is cut; a tool with a longer name or
/// schema is left out.
const MAX_NAME_BYTES: usize = 128;
const MAX_DESCRIPTION_BYTES: usize = 4 * 1024;
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// Shorter values of variables are not masked in the kept stderr: they are flags and numbers.
const MIN_SECRET_BYTES: usize = 6;

/// Longest cursor of a page, in bytes.
const MAX_CURSOR_BYTES: usize = 4 * 1024;

/// A server of the session.
#[derive(Debug)]
pub(super) struct Server {
    definition: McpServer,
    /// Locked during a start, so that calls at the same time share one.
    process: Mutex<Process>,
}

#[derive(Debug, Default)]
struct Process {
    connection: Option<Arc<Connection>>,
    /// State of the last process, also if it did not greet.
    last: Option<Arc<Shared>>,
    /// Times of the last starts.
    starts: Vec<Instant>,
}

/// Tools of one server.
#[derive(Debug, Default)]
pub(super) struct ListedTools {
    pub(super) tools: Vec<McpTool>,
    /// Number of tools that cannot be used.
    pub(super) skipped: usize,
}

/// Greets a server that was started.
async fn greet(connection: &Connection, deadline: Instant) -> Result<(), RequestError> {
    let hello = json!({
        "protocolVersion": PROTOCOL,
        "capabilities": {},
        "clientInfo": { "name": "quackd", "version": VERSION },
    });
    let never = CancellationToken::new();
    connection.request("initialize", &hello, deadline, &never).await?;
    connection.notify("notifications/initialized", &json!({}));
    Ok(())
}

/// Replaces the content of a file in a directory that commands of the session can write too.
fn write_blocking(path: &Path, content: &[u8]) -> io::Result<()> {
    // A command may have put a link there: remove it instead of following it.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)
}

impl Server {
    pub(super) fn new(definition: McpServer) -> Self {
        Self { definition, process: Mutex::default() }
    }

    pub(super) fn definition(&self) -> &McpServer {
        &self.definition
    }

    /// Returns the connection to the server, which `launch` starts if it does not run.
    pub(super) async fn connection(
        &self,
        launch: impl FnOnce(&McpServer) -> Result<Connection, RequestError>,
        deadline: Instant,
    ) -> Result<Arc<Connection>, RequestError> {
        let mut process = self.process.lock().await;
        let ended = match &process.connection {
            None => None,
            Some(connection) => match connection.end() {
                None => return Ok(Arc::clone(connection)),
                ended => ended,
            },
        };

        let now = Instant::now();
        process.starts.retain(|at| now.duration_since(*at) < START_WINDOW);
        if MAX_STARTS <= process.starts.len() {
            let last = ended.map(|error| error.to_string()).unwrap_or_default();
            return Err(RequestError::TooOften(MAX_STARTS, last));
        }

        // A failed start counts too, so that a server that exits at once is not started forever.
        process.starts.push(now);
        let deadline = deadline.min(now + START_LIMIT);
        let connection = Arc::new(launch(&self.definition)?);
        // Stored before the greeting, because the stderr of a server that does not greet tells why.
        process.last = Some(connection.shared());
        greet(&connection, deadline).await?;
        process.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Writes the end of the stderr of the last process to a file in the session's directory `run_dir`. Returns its
    /// path; `None` if the process wrote nothing there, or if the file cannot be written.
    pub(super) async fn stderr_file(&self, run_dir: &Path) -> Option<PathBuf> {
        let last = self.process.lock().await.last.clone()?;
        let McpServer { name, env, .. } = &self.definition;
        let mut text = last.stderr();
        if text.is_empty() {
            return None;
        }

        // The server may have written its variables.
        for variable in env.iter().filter(|it| MIN_SECRET_BYTES <= it.value.len()) {
            text = text.replace(&variable.value, MASK);
        }

        let path = run_dir.join(format!("mcp-{name}.stderr"));
        let written = path.clone();
        let writing = spawn_blocking(move || write_blocking(&written, text.as_bytes()));
        matches!(writing.await, Ok(Ok(()))).then_some(path)
    }

    /// Returns the tools of the server, which `launch` starts if it does not run.
    pub(super) async fn list(
        &self,
        launch: impl FnOnce(&McpServer) -> Result<Connection, RequestError>,
        bounds: &CallLimits,
    ) -> Result<ListedTools, RequestError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            #[serde(default)]
            tools: Vec<Value>,
            #[serde(default)]
            next_cursor: Option<String>,
        }

        let deadline = bounds.deadline.min(Instant::now() + START_LIMIT);
        let connection = self.connection(launch, deadline).await?;
        let mut listed = ListedTools::default();
        let mut parameters = json!({});
        let (mut names, mut cursors) = (HashSet::new(), HashSet::new());

        for _ in 0..MAX_PAGES {
            let page = connection.request("tools/list", &parameters, deadline, &bounds.cancel);
            let page: Page =
                serde_json::from_str(page.await?.get()).map_err(|_| RequestError::Invalid)?;
            for tool in page.tools {
                match self.usable(tool).filter(|_| listed.tools.len() < MAX_MCP_TOOLS) {
                    Some(tool) if !names.insert(tool.name.clone()) => {}
                    Some(tool) => listed.tools.push(tool),
                    None => listed.skipped += 1,
                }
            }
            match page.next_cursor {
                // Some servers always name the same page.
                Some(cursor)
                    if cursor.len() <= MAX_CURSOR_BYTES && cursors.insert(cursor.clone()) =>
                {
                    parameters = json!({ "cursor": cursor });
                }
                Some(_) | None => break,
            }
        }

        Ok(listed)
    }

    /// Returns a tool in our form. `None` if it exceeds the bounds.
    fn usable(&self, tool: Value) -> Option<McpTool> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Given {
            name: String,
            #[serde(default)]
            description: Option<String>,
            /// Missing or null for a tool without parameters.
            #[serde(default)]
            input_schema: Value,
        }

        let Given { name, description, input_schema } = serde_json::from_value(tool).ok()?;
        let is_name = (1..=MAX_NAME_BYTES).contains(&name.len());
        let is_long = |schema: &Value| MAX_SCHEMA_BYTES < schema.to_string().len();
        if !is_name || is_long(&input_schema) {
            return None;
        }

        // Resolved references can make the schema longer.
        let (parameters, more) = with_object_root(input_schema);
        if is_long(&parameters) {
            return None;
        }

        let given = description.filter(|given| !given.is_empty());
        let mut description = given.into_iter().chain(more).collect::<Vec<_>>().join("\n\n");
        let cut = description.floor_char_boundary(MAX_DESCRIPTION_BYTES.min(description.len()));
        description.truncate(cut);

        let server = self.definition.name.clone();
        Some(McpTool { server, name, description, parameters })
    }
}
