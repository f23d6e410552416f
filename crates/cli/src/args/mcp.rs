//! Arguments of `quack mcp`.

use super::reference;
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serve the tools to an agent over the Model Context Protocol
///
/// An agent such as Claude Code or Codex starts this command and calls the tools over its stdin and stdout. Each
/// connection gets a separate session with its own worker process, in the workspace of the directory in which the
/// agent started it. Calls and background jobs end when the agent disconnects.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack mcp install claude-code      add it to an agent's configuration\n  \
    quack mcp --workspace ~/src/app    serve one directory over stdin and stdout\n  \
    quack mcp --tools search --safe    only search, and nothing that writes\n  \
    quack mcp --http 127.0.0.1:8322    serve HTTP on this machine, with a token"
)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<McpVerb>,
    #[command(flatten)]
    pub(crate) serve: McpServeArgs,
}

/// Subcommands of `quack mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum McpVerb {
    Install(McpInstallArgs),
    Uninstall(McpUninstallArgs),
}

/// Options of the server. `install` writes them into the agent's configuration.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct McpServeArgs {
    /// Directory to work in [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Let the agent choose the directory of each call with the argument `workspace`
    #[arg(long, conflicts_with_all = ["workspace", "session"])]
    pub(crate) any_workspace: bool,
    /// Use this session, and leave it as it is at the end
    #[arg(long, value_name = super::REF, value_parser = reference, allow_hyphen_values = true,
        conflicts_with = "workspace")]
    pub(crate) session: Option<String>,
    /// Offer no tool that writes; bash runs only commands that read
    #[arg(long)]
    pub(crate) safe: bool,
    /// Tools to offer: core, search, all, or names of tools, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "core")]
    pub(crate) tools: Vec<String>,
    /// Keep background jobs when the agent disconnects
    #[arg(long)]
    pub(crate) keep: bool,
    /// Let the agent work in a private copy of the workspace; see quack diff and quack apply
    #[arg(long, conflicts_with = "session")]
    pub(crate) isolated: bool,
    /// Serve streamable HTTP on this loopback address instead of stdin and stdout; port 0 selects a free one
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,
}

/// Agents whose configuration `install` can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpHost {
    ClaudeCode,
    ClaudeDesktop,
    Codex,
    Cursor,
    Vscode,
    Zed,
    Gemini,
    Opencode,
    Goose,
    Windsurf,
}

/// Add quackd to the configuration of an agent
///
/// Shows the change, then makes it in the agent's own file. Everything else in the file stays, comments too.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack mcp install claude-code\n  quack mcp install codex --exclusive\n  \
    quack mcp install claude-code --exclusive --project     in this project only\n  \
    quack mcp install cursor --print     only show the change"
)]
pub(crate) struct McpInstallArgs {
    /// The agent
    #[arg(value_name = "CLIENT")]
    pub(crate) host: McpHost,
    /// Show the change and make none
    #[arg(long, visible_alias = "dry-run")]
    pub(crate) print: bool,
    /// Also turn off the agent's own shell and edit tools, where it has a setting for that
    #[arg(long)]
    pub(crate) exclusive: bool,
    /// Change the configuration of the project in DIR [default: the current directory], not that of your user
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    pub(crate) project: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) serve: McpServeArgs,
}

/// Remove from an agent's configuration exactly what `install` added
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack mcp uninstall claude-code\n  quack mcp uninstall codex --print"
)]
pub(crate) struct McpUninstallArgs {
    /// The agent
    #[arg(value_name = "CLIENT")]
    pub(crate) host: McpHost,
    /// Show the change and make none
    #[arg(long, visible_alias = "dry-run")]
    pub(crate) print: bool,
    /// Change the configuration of the project in DIR [default: the current directory], not that of your user
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    pub(crate) project: Option<PathBuf>,
}
