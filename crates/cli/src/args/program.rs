//! Arguments of the subcommands about this program: version, configuration, completions and manual pages.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Print the versions of this program and of the running daemon
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack version\n  quack version --json")]
pub(crate) struct VersionArgs {}

/// Show and change the configuration
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack config show --origin\n  quack config set model.name qwen3\n  \
    quack config edit"
)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

/// Subcommands of `quack config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    Show(ConfigShowArgs),
    Path(ConfigPathArgs),
    Set(ConfigSetArgs),
    Unset(ConfigUnsetArgs),
    Edit(ConfigEditArgs),
}

/// Set a key in the configuration file, after a check of the value
///
/// Keeps comments and order. `quack config show` lists the keys.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack config set model.provider ollama\n  quack config set worker.idle_minutes 10\n  \
    quack config set tools.env '[\"JAVA_OPTS\"]'"
)]
pub(crate) struct ConfigSetArgs {
    /// Name of the key, such as model.name
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The value: a text, or a number, a boolean or an array of TOML
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) value: String,
}

/// Remove a key from the configuration file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config unset model.name")]
pub(crate) struct ConfigUnsetArgs {
    /// Name of the key, such as model.name
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
}

/// Edit the configuration file with $VISUAL or $EDITOR, and check it before it is used
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config edit\n  EDITOR=nano quack config edit")]
pub(crate) struct ConfigEditArgs {}

/// Print every key with its value, as a configuration file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config show\n  quack config show --origin")]
pub(crate) struct ConfigShowArgs {
    /// Print the origin of each value
    #[arg(long)]
    pub(crate) origin: bool,
}

/// Print the path of the configuration file, even if it does not exist
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config path\n  quack config path --json")]
pub(crate) struct ConfigPathArgs {}

/// Print a script that completes subcommands, options, sessions, tools and jobs
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack completions bash > ~/.local/share/bash-completion/completions/quack\n  \
    quack completions zsh > \"${fpath[1]}/_quack\"\n  \
    quack completions fish > ~/.config/fish/completions/quack.fish"
)]
pub(crate) struct CompletionsArgs {
    /// Name of the shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// The shells of `quack completions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
}

/// Print the manual page, or write the pages of all subcommands into a directory
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack man | man -l -\n  quack man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory for the pages; created if missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
