//! Arguments of `quack sandbox`.

use super::{AnySessionArgs, SessionArgs};
use crate::time_format::moment;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use quackd_protocol::credentials::CredentialUse;
use quackd_protocol::policy::{NetworkMode, Profile, WebSearchRule};
use std::path::PathBuf;

/// Show and change the permissions of a session's worker
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox show\n  quack sandbox set read-only --session review\n  \
    quack sandbox set --network hosts --allow @github\n  quack sandbox network\n  quack sandbox set --writable ~/.cache/app --workspace\n  \
    quack sandbox set --reset\n  quack sandbox denials\n  quack sandbox explain ~/.ssh\n  \
    quack sandbox audit"
)]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    pub(crate) verb: SandboxVerb,
}

/// Subcommands of `quack sandbox`.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxVerb {
    Show(SandboxShowArgs),
    Set(SandboxSetArgs),
    Denials(SandboxDenialsArgs),
    Explain(SandboxExplainArgs),
    Audit(SandboxAuditArgs),
    Allow(SandboxAllowArgs),
    Revoke(SandboxRevokeArgs),
    Network(SandboxNetworkArgs),
    Presets(SandboxPresetsArgs),
}

/// Allow hosts and uses of credentials, also for running commands
///
/// If the network is off, it becomes hosts: commands then reach the allowed hosts and nothing else. A rule is a host with
/// optional ports (80 and 443 if absent), *.example.com for all hosts below it, an address, machine:PORT for a service of
/// this machine, @PRESET, or one of these after ! to deny it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox allow @github\n  quack sandbox allow example.com '*.example.org:443'\n  \
    quack sandbox allow git.example.com:22 --workspace\n  quack sandbox allow '!ads.example.com' --always\n  \
    quack sandbox allow github.com:22 --credential 'ssh git@github.com'"
)]
pub(crate) struct SandboxAllowArgs {
    /// Rules, such as example.com, example.com:22, *.example.com, 10.0.0.7:5432, machine:5432 or @github
    #[arg(value_name = "RULE", required_unless_present = "credentials")]
    pub(crate) rules: Vec<String>,
    /// Use of a credential of yours, such as "ssh git@github.com", "fetch github.com/me/app", "push github.com/me/app" or
    /// "sign commits"; repeatable
    #[arg(long = "credential", value_name = "USE")]
    pub(crate) credentials: Vec<CredentialUse>,
    /// For all sessions of the workspace
    #[arg(long, conflicts_with = "always")]
    pub(crate) workspace: bool,
    /// For all sessions
    #[arg(long)]
    pub(crate) always: bool,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
}

/// Remove rules of hosts and grants
///
/// Connections that no other rule allows are closed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox revoke example.com\n  quack sandbox revoke g3 g4\n  \
    quack sandbox revoke 'ssh git@github.com'\n  quack sandbox revoke --all"
)]
pub(crate) struct SandboxRevokeArgs {
    /// Rules and uses of credentials as quack sandbox show lists them, or ids of grants
    #[arg(value_name = "RULE|ID", required_unless_present = "all")]
    pub(crate) rules: Vec<String>,
    /// All grants that hold for the session, those of its workspace and of all sessions included
    #[arg(long, conflicts_with = "rules")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
}

/// List the hosts that commands asked for
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack sandbox network\n  quack sandbox network --denied\n  \
    quack sandbox network --follow --session api\n  quack sandbox network --json")]
pub(crate) struct SandboxNetworkArgs {
    /// Print each request after the totals
    #[arg(long)]
    pub(crate) requests: bool,
    /// Print each request, also new ones until Ctrl-C
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Only requests that were denied
    #[arg(long)]
    pub(crate) denied: bool,
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

/// List the presets of hosts, such as @github, with their hosts
///
/// A name asks your own tools again for the hosts of presets such as @npm.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack sandbox presets\n  quack sandbox presets npm")]
pub(crate) struct SandboxPresetsArgs {
    /// Names of presets [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Explain the confinement of a session, or its access to one path, host or credential
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox explain\n  quack sandbox explain .git/config\n  \
    quack sandbox explain example.com:22\n  quack sandbox explain 'ssh git@github.com'\n  \
    quack sandbox explain ~/.ssh --session api --json"
)]
pub(crate) struct SandboxExplainArgs {
    /// File or directory, relative to the current directory, which need not exist; a host, as in example.com:22; or a use of
    /// a credential
    #[arg(value_name = "PATH|HOST|USE")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
}

/// List new or changed files that other programs would run
///
/// Searches for changes made since the session's worker started, in the workspace and in directories of --writable. Exits
/// with 1 if it found any, or if it could not check everything.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack sandbox audit\n  quack sandbox audit --since 48h\n  \
    quack sandbox audit --session api --json")]
pub(crate) struct SandboxAuditArgs {
    /// Also what changed since TIME, such as 10m, 2h or 2026-03-10T12:00:00Z: while earlier workers ran, or by you
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

fn since(text: &str) -> Result<Timestamp, String> {
    moment(text, Timestamp::now())
}

/// List the denied operations that were detected
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox denials\n  quack sandbox denials --session api --json"
)]
pub(crate) struct SandboxDenialsArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

/// Show the configured policy, its origin and the policy in force
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack sandbox show\n  quack sandbox show --session api --json"
)]
pub(crate) struct SandboxShowArgs {
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

/// Change the policy of a session, or of all sessions of its workspace
///
/// Hosts and searches of the web change at once, also for running commands. Other changes need a new worker, which starts
/// when the old one is idle.
/// Listing, reading and ending background jobs stays possible. Reading files stays possible unless the change hides
/// some.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack sandbox set read-only\n  \
    quack sandbox set workspace-write --network on --workspace\n  \
    quack sandbox set --web-search off\n  \
    quack sandbox set --writable /srv/data --hide /srv/data/keys\n  \
    quack sandbox set --unhide /srv/data/keys --not-writable /srv/data\n  \
    quack sandbox set --end-jobs    end background jobs instead of waiting\n  \
    quack sandbox set --reset       return to the configured policy")]
pub(crate) struct SandboxSetArgs {
    /// read-only, workspace-write or full-access
    #[arg(value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,
    /// Network of commands: off, hosts (those that rules name) or on
    #[arg(long, value_name = "MODE")]
    pub(crate) network: Option<NetworkMode>,
    /// Allow this host, such as example.com, *.example.com:443 or @github; repeatable. Replaces the list of the scope, and
    /// sets the network to hosts
    #[arg(long = "allow", value_name = "RULE")]
    pub(crate) hosts: Vec<String>,
    /// Set whether web_search may send queries: on, ask or off
    #[arg(long, value_name = "RULE")]
    pub(crate) web_search: Option<WebSearchRule>,
    /// Allow writes to this directory too; repeatable, and in addition to earlier ones
    #[arg(long, value_name = "DIR")]
    pub(crate) writable: Vec<PathBuf>,
    /// Allow no more writes to this directory; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) not_writable: Vec<PathBuf>,
    /// Hide this file or directory; repeatable, and in addition to earlier ones
    #[arg(long = "hide", value_name = "PATH")]
    pub(crate) hidden: Vec<PathBuf>,
    /// Show this file or directory again; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) unhide: Vec<PathBuf>,
    /// Apply to all sessions of the workspace without a session policy
    #[arg(long)]
    pub(crate) workspace: bool,
    /// Reset earlier settings first
    #[arg(long)]
    pub(crate) reset: bool,
    /// End the session's background jobs to apply the change at once
    #[arg(long, visible_alias = "force")]
    pub(crate) end_jobs: bool,
    #[command(flatten)]
    pub(crate) which: SessionArgs,
}

impl SandboxSetArgs {
    /// Whether no change is requested.
    pub(crate) fn is_empty(&self) -> bool {
        self.profile.is_none()
            && self.network.is_none()
            && self.hosts.is_empty()
            && self.web_search.is_none()
            && !self.changes_paths()
            && !self.reset
            && !self.end_jobs
    }

    /// Whether a list of directories or paths changes.
    pub(crate) fn changes_paths(&self) -> bool {
        let lists = [&self.writable, &self.not_writable, &self.hidden, &self.unhide];
        lists.iter().any(|list| !list.is_empty())
    }
}
