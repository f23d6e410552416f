//! Display options of `quack [DIR]`, `quack follow` and `quack say`.

use clap::Args;

/// Display options of the subcommands that follow a session.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DisplayArgs {
    /// Show the model's thinking
    #[arg(long)]
    pub(crate) show_thinking: bool,
    /// Show events for debugging
    #[arg(long)]
    pub(crate) verbose: bool,
}
