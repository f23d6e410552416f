//! Starts the process of a server like a command of the session. The calls of [`super`] pass it to [`super::server`].

use super::connection::{Connection, RequestError};
use crate::Toolbox;
use crate::command_line::{CommandLine, explain};
use quackd_process::{LaunchError, launch_piped};
use quackd_protocol::mcp::McpServer;
use std::path::Path;

/// Starts the process and connects to it.
///
/// # Errors
/// [`RequestError::NotStarted`].
pub(super) fn launch(
    toolbox: &Toolbox,
    definition: &McpServer,
    workspace: &Path,
) -> Result<Connection, RequestError> {
    let McpServer { name, command, args, env } = definition;
    let args = args.iter().map(Into::into).collect();
    let (program, args) = toolbox.confined(command.into(), args);
    let own = env.iter().map(|it| (it.name.clone(), it.value.clone()));
    let command = CommandLine {
        line: String::new(),
        program,
        args,
        cwd: workspace.to_owned(),
        env: toolbox.env.iter().cloned().chain(own).collect(),
        limits: toolbox.limits.clone(),
        group: toolbox.group.clone(),
        spawn_thread: toolbox.spawn_thread.clone(),
    };

    let command = command.command(format!("mcp-{name}"));
    let not_started = |error: &LaunchError| RequestError::NotStarted(explain(error));
    toolbox.state.watched.running_always();

    let (process, pipes) = launch_piped(&command).map_err(|error| not_started(&error))?;
    drop(command);
    Connection::serve(process, pipes).map_err(|error| RequestError::NotStarted(error.to_string()))
}
