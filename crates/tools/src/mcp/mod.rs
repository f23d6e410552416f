//! MCP servers of a session: processes of the worker, confined like commands, whose tools the session's agent calls.
//!
//! A server starts at the first call that needs it, and ends with the worker, like a background job. The supervisor
//! sends the definitions of the servers with each call, because a new worker must be able to start them. A server whose
//! definition has changed is replaced.
//!
//! In reading order: [`running_servers`] is the table of servers, [`server`] is one of them, [`mod@launch`] starts its
//! process, [`connection`] exchanges messages with it, [`content`] turns results into answers, [`schema`] makes schemas
//! acceptable to providers.

#[expect(
    clippy::disallowed_types,
    reason = "calls and the task of the pipes share one table, and no wait holds its lock"
)]
mod connection;
mod content;
mod launch;
mod running_servers;
mod schema;
mod server;

pub(crate) use running_servers::McpServers;

use crate::call_limits::{CallLimits, StopCause};
use crate::{Call, Data, Output, Toolbox};
use connection::{Reply, RequestError};
use futures_util::future::join_all;
use launch::launch;
use quackd_protocol::mcp::{MAX_MCP_SERVERS, MAX_MCP_TOOLS, McpCall, McpList, McpTools};
use quackd_sandbox::Root;
use serde_json::json;
use server::{ListedTools, Server};
use std::path::Path;
use std::sync::Arc;

/// Most servers that one call may name: those of the configuration, and those of a client.
const MAX_SERVERS: usize = 2 * MAX_MCP_SERVERS;

/// Most bytes of all tools in a list.
const MAX_LIST_BYTES: usize = 512 * 1024;

/// Returns why no server may run for this call. A server runs any code, so the list of commands of safe mode cannot
/// apply to it.
fn refusal(toolbox: &Toolbox, call: &Call) -> Option<Output> {
    if toolbox.safe_mode || call.spec.safe_mode {
        return Some(Output::error("MCP servers do not run in safe mode"));
    }
    toolbox.confinement.refuse_unconfined("An MCP server")
}

/// Starts the servers and lists their tools. A server that fails costs one line of the data.
pub(crate) async fn quack_mcp_list(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    bounds: &CallLimits,
) -> Output {
    let Ok(McpList { mut servers }) = serde_json::from_str::<McpList>(&call.spec.arguments) else {
        return Output::error("The list of MCP servers is invalid");
    };
    if let Some(refused) = refusal(toolbox, call) {
        return refused;
    }

    servers.truncate(MAX_SERVERS);
    toolbox.state.mcp.keep_only(&servers);
    let servers: Vec<_> = servers.iter().map(|server| toolbox.state.mcp.get(server)).collect();
    let listing = servers
        .iter()
        .map(|server| server.list(|definition| launch(toolbox, definition, root.path()), bounds));

    let listed = tokio::select! {
        biased;
        listed = join_all(listing) => listed,
        () = bounds.cancel.cancelled() => {
            return Output::cut_off("Listing the MCP servers", bounds, StopCause::Aborted);
        }
    };

    let mut list = McpTools::default();
    let mut room = MAX_LIST_BYTES;
    for (server, listed) in servers.iter().zip(listed) {
        let name = &server.definition().name;
        match listed {
            Ok(listed) => add(&mut list, &mut room, name, listed),
            Err(error) => {
                let file = server.stderr_file(&toolbox.run_dir).await;
                let file = file.map(|file| format!("; stderr: {}", file.display()));
                list.problems.push(format!("{name}: {error}{}", file.unwrap_or_default()));
            }
        }
    }

    let data = Data::of(&list);
    Output { data: Some(data), ..Output::success(String::new()) }
}

/// Adds the tools of one server, as many as there is room for.
fn add(list: &mut McpTools, room: &mut usize, server: &str, listed: ListedTools) {
    let ListedTools { tools, skipped } = listed;
    let mut n_left_out = skipped;

    for tool in tools {
        let bytes = tool.description.len() + tool.parameters.to_string().len();
        if MAX_MCP_TOOLS <= list.tools.len() || *room < bytes {
            n_left_out += 1;
        } else {
            *room -= bytes;
            list.tools.push(tool);
        }
    }

    if 0 < n_left_out {
        let line = format!(
            "{server}: {n_left_out} of its tools are too large or too many and are not available"
        );
        list.problems.push(line);
    }
}

/// Calls a tool of a server, which is started if it does not run.
pub(crate) async fn quack_mcp_call(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    bounds: &CallLimits,
) -> Output {
    let Ok(McpCall { servers, server, tool, arguments }) =
        serde_json::from_str(&call.spec.arguments)
    else {
        return Output::error("The call of an MCP server is invalid");
    };
    if let Some(refused) = refusal(toolbox, call) {
        return refused;
    }

    let Some(definition) = servers.iter().find(|it| it.name == server) else {
        return Output::error(format_args!("There is no MCP server '{server}' any more"));
    };

    let server = toolbox.state.mcp.get(definition);
    let parameters = json!({ "name": tool, "arguments": arguments });
    match request(&server, toolbox, root.path(), &parameters, bounds).await {
        Ok(reply) => content::output(&reply),
        Err(RequestError::Aborted) => Output::cut_off(&tool, bounds, StopCause::Aborted),
        Err(RequestError::TimedOut) => Output::cut_off(&tool, bounds, StopCause::TimedOut),
        Err(error) => Output::error(format_args!("MCP server {}: {error}", definition.name)),
    }
}

async fn request(
    server: &Server,
    toolbox: &Toolbox,
    workspace: &Path,
    parameters: &serde_json::Value,
    bounds: &CallLimits,
) -> Result<Reply, RequestError> {
    let starting =
        server.connection(|definition| launch(toolbox, definition, workspace), bounds.deadline);
    let connection = tokio::select! {
        biased;
        connection = starting => connection?,
        () = bounds.cancel.cancelled() => return Err(RequestError::Aborted),
    };
    connection.request("tools/call", parameters, bounds.deadline, &bounds.cancel).await
}
