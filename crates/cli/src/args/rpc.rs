//! Arguments of `quack rpc`.

use super::{REF, reference};
use clap::Args;
use std::path::PathBuf;

/// Serve Pi's RPC protocol on stdin and stdout
///
/// For programs that start `pi --mode rpc`: one JSON command per line, responses and events as lines of JSON. Creates a
/// session for the directory, or continues one. Ends at the end of stdin, which aborts the turn.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    echo '{\"type\":\"get_state\"}' | quack rpc --no-session\n  \
    quack rpc --continue --model ollama/qwen3\n\n\
    Commands: those of Pi's RPC mode. new_session, fork, clone and switch_session create or select sessions of quackd. \
    set_widget and other parts of extensions do not exist.")]
pub(crate) struct RpcArgs {
    /// Model, as provider/model or as a name
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Provider of the model
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Thinking level: off, minimal, low, medium, high or xhigh
    #[arg(long, value_name = "LEVEL")]
    pub(crate) thinking: Option<String>,
    /// Delete the session at the end
    #[arg(long)]
    pub(crate) no_session: bool,
    /// Continue this session: a reference such as api/review, or a session file
    #[arg(long, value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// Continue the session of the directory
    #[arg(long = "continue", short = 'c')]
    pub(crate) continues: bool,
    /// Directory [default: the current one]
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Agent: native or pi
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Accepted for programs that start Pi; only `rpc` exists
    #[arg(long, value_name = "MODE", hide = true)]
    pub(crate) mode: Option<String>,
    /// Accepted for programs that start Pi; sessions are in quackd's state directory
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) session_dir: Option<PathBuf>,
    /// Accepted for programs that start Pi; the tools are those of quackd
    #[arg(long, value_name = "LIST", hide = true)]
    pub(crate) tools: Option<String>,
}
