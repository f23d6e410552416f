//! Arguments of `quack rpc`.

mod pi_line;

pub(super) use pi_line::rewritten;

use super::{REF, reference};
use clap::Args;
use std::path::PathBuf;

/// Serve Pi's RPC protocol on stdin and stdout
///
/// For programs that start `pi --mode rpc`: one JSON command per line, responses and events as lines of JSON. Creates a
/// session for the directory, or continues one. Ends at the end of stdin, which aborts the turn.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:\n  \
    echo '{\"type\":\"get_state\"}' | quack rpc --no-session\n  \
    quack rpc --continue --model ollama/qwen3\n  \
    quack rpc --tools read,grep,find\n\n\
    Commands: those of Pi's RPC mode. new_session, fork, clone and switch_session create or select sessions of quackd. \
    set_widget and other parts of extensions do not exist.\n\n\
    Options: those of Pi. The tools, prompts and models hold until this program ends. A line on stderr names the options \
    that mean nothing here, such as those of extensions and themes.")]
pub(crate) struct RpcArgs {
    /// Model, as provider/model or as a name, perhaps with :LEVEL
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Provider of the model
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Models for cycle_model: names or patterns with *, separated by commas
    #[arg(long, value_name = "LIST")]
    pub(crate) models: Option<String>,
    /// Thinking level: off, minimal, low, medium, high, xhigh or max
    #[arg(long, value_name = "LEVEL")]
    pub(crate) thinking: Option<String>,
    /// Key for the provider of --model, for all sessions until the daemon stops
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// Text, or file, in place of the rules in the system prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Text, or file, for the system prompt; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) append_system_prompt: Vec<String>,
    /// Leave out AGENTS.md and similar files
    #[arg(long)]
    pub(crate) no_context_files: bool,
    /// Tools of the model, separated by commas: Pi's names or quackd's, * or +NAME,-NAME
    #[arg(long, value_name = "LIST")]
    pub(crate) tools: Option<String>,
    /// Tools that the model does not get, also of MCP servers
    #[arg(long, value_name = "LIST")]
    pub(crate) exclude_tools: Option<String>,
    /// Give the model no tools
    #[arg(long)]
    pub(crate) no_tools: bool,
    /// Give the model tools of MCP servers only
    #[arg(long)]
    pub(crate) no_builtin_tools: bool,
    /// Start no MCP servers
    #[arg(long)]
    pub(crate) no_mcp: bool,
    /// Name of the conversation
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Delete the session at the end
    #[arg(long)]
    pub(crate) no_session: bool,
    /// Continue this session: a reference such as api/review, a session file, or an id
    #[arg(long, value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// Continue the conversation with this id in the directory, or create it
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
    /// Continue a copy of this session
    #[arg(long, value_name = "SESSION", value_parser = reference, allow_hyphen_values = true)]
    pub(crate) fork: Option<String>,
    /// Continue the session of the directory
    #[arg(long = "continue", short = 'c')]
    pub(crate) continues: bool,
    /// Like --continue
    #[arg(long)]
    pub(crate) resume: bool,
    /// Directory [default: the current one]
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Agent: native or pi
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Names of the events of summaries: newest, or 0.55 for a client that knows only Pi 0.55 [default: newest]
    #[arg(long, value_name = "VERSION")]
    pub(crate) dialect: Option<String>,
    /// Accepted for programs that start Pi; only `rpc` exists
    #[arg(long, value_name = "MODE", hide = true)]
    pub(crate) mode: Option<String>,
    /// Show the version
    #[arg(long, hide = true)]
    pub(crate) version: bool,
    /// Words of the command line that have no meaning here
    #[arg(long, hide = true)]
    pub(crate) ignored: Vec<String>,
}
