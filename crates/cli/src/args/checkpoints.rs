//! Arguments of `quack checkpoints` and `quack restore`.

use super::{AnySessionArgs, SessionArgs};
use clap::Args;
use std::path::PathBuf;

/// List the recorded states of a session's files, oldest first
///
/// quackd records the files of an isolated session after each call that may change them, also what commands changed. With
/// keep.checkpoints = "all" it does so for every session whose workspace has at most 20000 files. Directories that git
/// ignores and .git are not recorded. The last 200 states are kept, with at most 1 GiB of contents.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack checkpoints\n  quack checkpoints feature --files\n  \
    quack checkpoints --json | jq '.checkpoints[].calls'\n\nRestore one with: quack restore NUMBER")]
pub(crate) struct CheckpointsArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
    /// List the first changed files of each state
    #[arg(long)]
    pub(crate) files: bool,
}

/// Restore an earlier state of a session's files, all or none
///
/// Also deletes files that are newer than the state. The state before is recorded first, so that it can be restored too.
/// Processes, .git and directories that git ignores stay as they are. In a session that is not isolated, changes that you
/// made yourself since are taken back as well, and names that other programs obey, such as .envrc, are left out unless
/// --protected names them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack restore 12 --dry-run\n  quack restore 12\n  \
    quack restore 12 src Cargo.toml --session feature\n\n\
    Exit codes: 0 restored, or nothing differs; 1 some files were left; 4 calls run in the session (--force).")]
pub(crate) struct RestoreArgs {
    /// Number of the state, from quack checkpoints
    #[arg(value_name = "NUMBER")]
    pub(crate) number: u64,
    /// Files and directories [default: all]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only show what would be written
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Include this protected name; can be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) protected: Vec<PathBuf>,
    /// Also while calls or background jobs run in the session
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
}
