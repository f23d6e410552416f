//! Arguments of `quack diff`, `quack apply`, `quack refresh`, `quack discard`, `quack checkpoints` and `quack restore`.

use super::{AnySessionArgs, SessionArgs};
use clap::{Args, ValueEnum};
use quackd_protocol::isolate::MergeRule;
use std::path::PathBuf;

/// Show what an isolated session changed in its private copy
///
/// Compares the copy with the workspace and prints each difference, also of files that commands changed. Files that git
/// ignores are not compared, unless they were copied. Each file has a letter: A added, M changed, D deleted. A mark after
/// it shows files that also changed in the workspace.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack new --isolated --name feature\n  quack diff --session feature\n  quack diff --session feature --stat\n  \
    quack diff --session feature src | git apply --stat\n  quack diff --session feature --json | jq -r '.files[].path'"
)]
pub(crate) struct DiffArgs {
    /// Files and directories [default: all]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// List the files without their differences, as git diff --name-status does
    #[arg(long)]
    pub(crate) stat: bool,
    /// List the commits that the session made instead
    #[arg(long, conflicts_with_all = ["paths", "stat"])]
    pub(crate) commits: bool,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
}

/// Write the changes of an isolated session to the workspace, all or none
///
/// Changes of both sides are merged line by line. If that fails in one file, nothing is written, unless --merge says what
/// to do. Names that other programs obey, such as .envrc, are left out unless --protected names them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack apply --session feature --dry-run\n  quack apply --session feature\n  quack apply --session feature src Cargo.toml\n  \
    quack apply --session feature --merge markers\n  quack apply --session feature --commits   then: git merge quack/app/feature\n  quack apply --session feature --undo   take back the last apply\n\n\
    Exit codes: 0 applied, or nothing to apply; 1 conflicts, so that nothing was written; 4 calls run in the session (--force)."
)]
pub(crate) struct ApplyArgs {
    /// Files and directories [default: all]
    #[arg(value_name = "PATH", conflicts_with = "undo")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only show what would be written
    #[arg(long, conflicts_with = "undo")]
    pub(crate) dry_run: bool,
    /// How to resolve changes of both sides that cannot be merged
    #[arg(long, value_name = "RULE", conflicts_with = "undo")]
    pub(crate) merge: Option<MergeChoice>,
    /// Include this protected name; can be repeated
    #[arg(long, value_name = "PATH", conflicts_with = "undo")]
    pub(crate) protected: Vec<PathBuf>,
    /// Write nothing if anything differs from the comparison with this digest
    #[arg(long, value_name = "DIGEST", conflicts_with = "undo")]
    pub(crate) expect: Option<String>,
    /// Take the session's commits into your repository as quack/LABEL; your files and branches do not change
    #[arg(
        long,
        conflicts_with_all = ["paths", "undo", "merge", "protected", "expect"]
    )]
    pub(crate) commits: bool,
    /// Take back the last apply; files that changed since are left
    #[arg(long)]
    pub(crate) undo: bool,
    /// Also while calls or background jobs run in the session
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
}

/// Values of `--merge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeChoice {
    /// Write both versions with conflict markers
    Markers,
    /// The file of the workspace
    Ours,
    /// The file of the session
    Theirs,
    /// Leave the file out
    Skip,
}

impl From<MergeChoice> for MergeRule {
    fn from(choice: MergeChoice) -> Self {
        match choice {
            MergeChoice::Markers => Self::Markers,
            MergeChoice::Ours => Self::Ours,
            MergeChoice::Theirs => Self::Theirs,
            MergeChoice::Skip => Self::Skip,
        }
    }
}

/// Bring the changes of the workspace into the private copy of an isolated session
///
/// The reverse of apply: all or none, and changes of both sides are merged line by line. Changes of the session stay.
/// New commits and branches of the workspace come too, unless the session made some itself. Directories that git ignores
/// are always those of the workspace.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack refresh --session feature --dry-run\n  quack refresh --session feature\n  \
    quack refresh --session feature --merge markers   conflicts stay in the session\n\n\
    Exit codes: 0 refreshed, or nothing to do; 1 conflicts, so that nothing was written; 4 calls run in the session (--force)."
)]
pub(crate) struct RefreshArgs {
    /// Files and directories [default: all]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only show what would be written
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How to resolve changes of both sides that cannot be merged: ours takes the workspace's file, theirs keeps the session's
    #[arg(long, value_name = "RULE")]
    pub(crate) merge: Option<MergeChoice>,
    /// Also while calls or background jobs run in the session; its repository then stays as it is
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
}

/// Throw away the private copy of an isolated session and make a new one
///
/// The session continues in a copy of the workspace as it is now. Changes that were not applied are lost.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack discard feature\n  quack discard feature --yes\n\n\
    To delete the session with its copy: quack delete feature --force")]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

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
