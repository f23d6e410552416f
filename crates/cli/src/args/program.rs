//! Arguments of the subcommands about this program: version, configuration, completions and manual pages.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Print the versions of this program and of the running daemon
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack version\n  quack version --json")]
pub(crate) struct VersionArgs {}

/// Show the configuration and its origin
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config show --origin\n  quack config show --json\n  \
    $EDITOR \"$(quack config path)\"")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

/// Subcommands of `quack config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    Show(ConfigShowArgs),
    Path(ConfigPathArgs),
}

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
