//! Arguments of `quack models`.

use clap::Args;

/// Show which model quackd's own agent uses, and why
///
/// Lists the models of every provider with a key, and those of local servers. Without a model it shows what to do.
/// Keys come from `quack login`, from `model.key` of the configuration, from Pi's files and from variables such as OPENAI_API_KEY.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack models\n  quack models --test    send one short request and show the answer\n  \
    quack models --json    for scripts\n\nA failed test is exit code 1."
)]
pub(crate) struct ModelsArgs {
    /// Send one short request to the model; its provider may charge for it
    #[arg(long)]
    pub(crate) test: bool,
}
