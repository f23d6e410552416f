//! The command lines of the verbs about this program: its version, configuration, completions and manual pages.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Prints the version of this program and of the daemon that is running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack version\n  quack version --json")]
pub(crate) struct VersionArgs {}

/// Shows the configuration and where it comes from.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config show --origin\n  quack config show --json\n  \
    $EDITOR \"$(quack config path)\"")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

/// What `quack config` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    Show(ConfigShowArgs),
    Path(ConfigPathArgs),
}

/// Prints every key with its value, as a file that says the same.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config show\n  quack config show --origin")]
pub(crate) struct ConfigShowArgs {
    /// Say of each value where it comes from
    #[arg(long)]
    pub(crate) origin: bool,
}

/// Prints the path of the configuration file, whether there is one or not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack config path\n  quack config path --json")]
pub(crate) struct ConfigPathArgs {}

/// Prints a script that makes a shell complete verbs, options, sessions, tools and jobs.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack completions bash > ~/.local/share/bash-completion/completions/quack\n  \
    quack completions zsh > \"${fpath[1]}/_quack\"\n  \
    quack completions fish > ~/.config/fish/completions/quack.fish"
)]
pub(crate) struct CompletionsArgs {
    /// Which shell
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

/// Prints the manual page, or writes the pages of all verbs into a directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack man | man -l -\n  quack man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory for the pages; it is made if it is missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
