//! Arguments of `quack agents`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// List the coding agents that can run inside of sessions, with their state and login
///
/// Sessions of a workspace share settings, logins and conversations of the installed agents. An isolated session has its
/// own. Your own configuration directories are not visible inside.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack agents                      the known agents, and which of them are installed\n  \
    quack agents claude               its hosts, variables and login in this workspace\n  \
    quack agents forget claude --workspace"
)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<AgentsVerb>,
    /// Show all facts of one agent
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Show the state in the workspace of this directory [default: the current one]
    #[arg(short = 'C', long = "dir", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Subcommands of `quack agents`.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentsVerb {
    Forget(AgentsForgetArgs),
}

/// Delete the settings, logins and conversations that an agent has in sessions
///
/// Deletes those of all workspaces and isolated sessions. Your own configuration directories stay.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack agents forget claude               in all workspaces and isolated sessions\n  \
    quack agents forget codex --workspace    only in the workspace of the current directory"
)]
pub(crate) struct AgentsForgetArgs {
    /// Name of the agent
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Only in one workspace, without its isolated sessions
    #[arg(long)]
    pub(crate) workspace: bool,
    /// Directory of that workspace [default: the current one]
    #[arg(short = 'C', long = "dir", value_name = "DIR", requires = "workspace")]
    pub(crate) dir: Option<PathBuf>,
    /// Delete without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
}
