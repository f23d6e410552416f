//! Arguments of `quack engines`.

use clap::{Args, Subcommand};

/// List the engines that start workers on other machines and in containers
///
/// An engine is a client such as ssh: where the worker of a session runs. It is not the agent, which --engine chooses.
/// quack new --on ENGINE:TARGET DIR creates a session whose commands run there. The tables engines.NAME of the
/// configuration add engines.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack engines\n  \
    quack engines test ssh:build1                    whether a worker can start there\n  \
    quack new --on ssh:build1 /home/me/app           a session of a directory there"
)]
pub(crate) struct EnginesArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<EnginesVerb>,
}

/// Subcommands of `quack engines`.
#[derive(Debug, Subcommand)]
pub(crate) enum EnginesVerb {
    Test(EnginesTestArgs),
}

/// Start the program through an engine, and end it again
///
/// Sends the program if that machine lacks it. Waits at most 60 s. Needs no daemon.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack engines test ssh:build1\n  quack engines test slurm:partition=main,cpus=2\n  \
    quack engines test podman:debian:12 --json\n\n\
    Exit codes: 0 it was ready, 1 it was not, 2 usage, 130 interrupted."
)]
pub(crate) struct EnginesTestArgs {
    /// Engine, and what it reaches: a host, an image, a pod or options
    #[arg(value_name = "ENGINE[:TARGET]")]
    pub(crate) on: String,
}
