//! Arguments of `quack models`.

use super::SessionArgs;
use clap::{Args, Subcommand};

/// Show which model quackd's own agent uses, and why
///
/// Lists the models of every provider with a key, and those of local servers. Without a model it shows what to do.
/// Keys come from `quack login`, from `model.key` of the configuration, from Pi's files and from variables such as OPENAI_API_KEY.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack models\n  quack models use anthropic/claude-sonnet-4-5    for this session\n  quack models --test    send one short request and show the answer\n  \
    quack models --json    for scripts\n  quack models --stale   facts that may be out of date\n\nA failed test is exit code 1."
)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<ModelsAction>,
    /// Send one short request to the model; its provider may charge for it
    #[arg(long)]
    pub(crate) test: bool,
    /// List the facts about models that nobody has checked for 90 days
    #[arg(long, conflicts_with = "test")]
    pub(crate) stale: bool,
}

/// Action on the model of a session.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelsAction {
    /// Switch a session to another model, as `/model` does at the prompt
    ///
    /// Its conversation goes on. `model.name` of the configuration is for new sessions.
    #[command(
        after_help = "Examples:\n  quack models use openai/gpt-5\n  quack models use qwen3 --session api"
    )]
    Use {
        /// The model, with its provider if several have it
        #[arg(value_name = "PROVIDER/NAME")]
        model: String,
        #[command(flatten)]
        which: SessionArgs,
    },
}
