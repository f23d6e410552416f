//! Arguments of `quack login` and `quack logout`.

use clap::Args;

/// Store the key of a model provider for quackd's own agent
///
/// Reads the key from a prompt that does not show it, or from stdin. The file is readable by you alone; workers never see
/// it. The next turn uses the key. A key in a variable of your shell or of the daemon is stronger.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack login                        list the providers, and where each key is from\n  \
    quack login openai                 ask for the key and store it\n  pass show openai | quack login openai\n  \
    quack models --test                try it\n\nA key in the system's keychain: set model.key = \"keychain:ACCOUNT\" in the configuration."
)]
pub(crate) struct LoginArgs {
    /// Name of the provider
    #[arg(value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
}

/// Delete a key that `quack login` stored
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack logout openai")]
pub(crate) struct LogoutArgs {
    /// Name of the provider
    #[arg(value_name = "PROVIDER")]
    pub(crate) provider: String,
}
