//! Arguments of `quack service`, `quack restart` and `quack uninstall`.

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use quackd_service::Manager;
use std::time::Duration;

/// Maximum value of `quack restart --wait`.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Run the daemon as a user service of systemd or launchd
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack service install --dry-run\n  quack service install\n  quack service status\n  \
    quack service logs -n 100\n  quack service uninstall"
)]
pub(crate) struct ServiceArgs {
    #[command(subcommand)]
    pub(crate) verb: ServiceVerb,
    /// Service manager: systemd or launchd
    #[arg(long, global = true, hide = true, value_name = "MANAGER")]
    pub(crate) manager: Option<Manager>,
}

/// Subcommands of `quack service`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceVerb {
    Install(ServiceInstallArgs),
    Uninstall(ServiceUninstallArgs),
    Status(ServiceStatusArgs),
    Restart(RestartArgs),
    Logs(ServiceLogsArgs),
    Print(ServicePrintArgs),
}

/// Install the service, and start it now and at each login
///
/// Can be repeated: replaces the files of older versions and restarts the daemon. A busy daemon is not restarted
/// without --force.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack service install\n  quack service install --dry-run\n  \
    quack service install --no-start     where no service manager can be reached")]
pub(crate) struct ServiceInstallArgs {
    /// Show the files and commands without writing or running them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the files without starting the service
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Replace foreign files, and interrupt running work
    #[arg(long)]
    pub(crate) force: bool,
    /// Replace a running daemon without asking
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

/// Stop the service and remove its files
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack service uninstall\n  quack service uninstall --dry-run\n\n\
    Exit codes: 0 removed, or there was none, 1 something could not be removed."
)]
pub(crate) struct ServiceUninstallArgs {
    /// List the files without removing them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Show whether the service is installed and running
///
/// Exits with 0 if it is, with 1 otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack service status\n  quack service status --json\n\n\
    Exit codes: 0 installed, and its daemon answers, 1 otherwise.")]
pub(crate) struct ServiceStatusArgs {}

/// Show the output of the daemon that the service manager kept
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack service logs\n  quack service logs -n 200")]
pub(crate) struct ServiceLogsArgs {
    /// Number of last lines to show
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 50)]
    pub(crate) lines: usize,
}

/// Print the service's files and their paths
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack service print\n  quack service print --json")]
pub(crate) struct ServicePrintArgs {}

/// Restart the daemon when it is idle
///
/// Use it after an upgrade or a change of the configuration. Waits for calls, background jobs and turns of the agent,
/// and lists them. The next daemon has the same sessions. Work that --force interrupts is marked as interrupted there.
/// If the configuration is not valid, the daemon is not restarted.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack restart\n  quack restart --wait 10m\n  quack restart --wait 1m --force\n\n\
    Exit codes: 0 restarted, 1 the configuration is not valid, 3 no daemon, 4 the daemon is busy."
)]
pub(crate) struct RestartArgs {
    /// Interrupt running work after a few seconds
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait up to TIME for running work, such as 30s or 10m; new work is still accepted
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
}

/// Remove the service, completions and manual pages; with --purge also the state
///
/// First takes quackd out of the configuration of every agent in which `quack mcp install` put it, and stops the daemon. Removes only files that quackd is known to have created, and lists the others. Remove the
/// program itself with the tool that installed it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack uninstall --dry-run --purge\n  quack uninstall\n  quack uninstall --purge --yes\n\n\
    Exit codes: 0 removed, 1 something could not be removed, or you declined, 2 confirmation needs a terminal or --yes, \
    3 the daemon cannot be reached, 4 it does not answer or stop in time."
)]
pub(crate) struct UninstallArgs {
    /// Remove the state directory too: sessions, policies, logs, conversations, configuration
    #[arg(long)]
    pub(crate) purge: bool,
    /// Remove without asking
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// List the files without removing them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn wait(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration =
        text.parse().map_err(|_e| "give a number with a unit, such as 30s or 10m".to_owned())?;
    Duration::try_from(signed)
        .ok()
        .filter(|time| *time <= MAX_WAIT)
        .ok_or_else(|| format!("give a time of at most {} hours", MAX_WAIT.as_secs() / 3600))
}
