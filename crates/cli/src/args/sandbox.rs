//! The command line of `quack sandbox`.

use super::WhichArgs;
use clap::{Args, Subcommand, ValueEnum};
use quackd_protocol::policy::{Profile, WebSearchRule};
use std::path::PathBuf;

/// Shows and changes what a session's worker may do.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox show\n  quack sandbox set read-only --session review\n  \
    quack sandbox set --network on\n  quack sandbox set --writable ~/.cache/app --workspace\n  \
    quack sandbox set --reset\n  quack sandbox denials\n  quack sandbox explain ~/.ssh\n  \
    quack sandbox audit"
)]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    pub(crate) verb: SandboxVerb,
}

/// What `quack sandbox` does.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxVerb {
    Show(SandboxShowArgs),
    Set(SandboxSetArgs),
    Denials(SandboxDenialsArgs),
    Explain(SandboxExplainArgs),
    Audit(SandboxAuditArgs),
}

/// Says what holds a session, or what it may do with one path, and why.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox explain\n  quack sandbox explain .git/config\n  \
    quack sandbox explain ~/.ssh --session api --json"
)]
pub(crate) struct SandboxExplainArgs {
    /// A file or directory, which need not exist; relative to the current directory
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

/// Looks for what a later program of yours would run: made or changed since the session's worker began.
///
/// Exits with 1 if something was found, or if not all could be looked at.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox audit\n  quack sandbox audit --session api --json"
)]
pub(crate) struct SandboxAuditArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

/// Lists what was refused, as far as it was noticed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox denials\n  quack sandbox denials --session api --json"
)]
pub(crate) struct SandboxDenialsArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

/// Shows what is wanted, where that comes from, and what is really in force.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox show\n  quack sandbox show --session api --json"
)]
pub(crate) struct SandboxShowArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

/// Changes what a session's worker may do, or the workers of all sessions of its workspace.
///
/// A worker keeps the policy that it started with, and is replaced when nothing runs in it. Until then commands and
/// tools that write wait. Background jobs can be listed, read and ended, and files be read unless the change hides some.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack sandbox set read-only\n  \
    quack sandbox set workspace-write --network on --workspace\n  \
    quack sandbox set --web-search off\n  \
    quack sandbox set --writable /srv/data --hide /srv/data/keys\n  \
    quack sandbox set --end-jobs    do not wait for background jobs\n  \
    quack sandbox set --reset       what the configuration says")]
pub(crate) struct SandboxSetArgs {
    /// read-only, workspace-write or full-access
    #[arg(value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,
    /// Whether the network may be used
    #[arg(long, value_name = "WHETHER")]
    pub(crate) network: Option<OnOff>,
    /// Whether web_search may send queries: on, ask or off
    #[arg(long, value_name = "RULE")]
    pub(crate) web_search: Option<WebSearchRule>,
    /// A directory that may be written beside the workspace; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(crate) writable: Vec<PathBuf>,
    /// A file or directory that is not shown; may be given several times
    #[arg(long = "hide", value_name = "PATH")]
    pub(crate) hidden: Vec<PathBuf>,
    /// For all sessions of the workspace that do not say otherwise
    #[arg(long)]
    pub(crate) workspace: bool,
    /// Forget what was set before
    #[arg(long)]
    pub(crate) reset: bool,
    /// End the session's background jobs, so that the change is in force at once
    #[arg(long, visible_alias = "force")]
    pub(crate) end_jobs: bool,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
}

impl SandboxSetArgs {
    /// Whether there is anything to change.
    pub(crate) fn is_empty(&self) -> bool {
        self.profile.is_none()
            && self.network.is_none()
            && self.web_search.is_none()
            && self.writable.is_empty()
            && self.hidden.is_empty()
            && !self.reset
            && !self.end_jobs
    }
}

/// A switch on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}
