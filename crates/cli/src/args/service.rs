//! The command lines of `quack service`, `quack restart` and `quack uninstall`.

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use quackd_service::Manager;
use std::time::Duration;

/// Longest wait of `quack restart`.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the daemon as a service of your user: of systemd on Linux, of launchd on macOS.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack service install --dry-run\n  quack service install\n  quack service status\n  \
    quack service logs -n 100\n  quack service uninstall"
)]
pub(crate) struct ServiceArgs {
    #[command(subcommand)]
    pub(crate) verb: ServiceVerb,
    /// Whose service: systemd or launchd
    #[arg(long, global = true, hide = true, value_name = "MANAGER")]
    pub(crate) manager: Option<Manager>,
}

/// What `quack service` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceVerb {
    Install(ServiceInstallArgs),
    Uninstall(ServiceUninstallArgs),
    Status(ServiceStatusArgs),
    Restart(RestartArgs),
    Logs(ServiceLogsArgs),
    Print(ServicePrintArgs),
}

/// Writes the service's files and starts it, now and whenever you log in.
///
/// Can be repeated: what is as it should be stays, what an older version wrote is replaced and the daemon
/// restarted. A daemon that is at work is left alone, unless forced.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack service install\n  quack service install --dry-run\n  \
    quack service install --no-start     where no service manager can be reached")]
pub(crate) struct ServiceInstallArgs {
    /// Show what would be written and run
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the files only
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Replace files that are not ours, and cut short what is at work
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask before a daemon that runs is replaced
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

/// Ends the service and removes its files. The state directory stays: see `quack uninstall`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack service uninstall\n  quack service uninstall --dry-run\n\n\
    Exit codes: 0 removed, or there was none, 1 something could not be removed."
)]
pub(crate) struct ServiceUninstallArgs {
    /// Show what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Says whether the service is installed and runs.
///
/// Exits with 0 if it does, with 1 if not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack service status\n  quack service status --json\n\n\
    Exit codes: 0 installed, and its daemon answers, 1 one of them is not so.")]
pub(crate) struct ServiceStatusArgs {}

/// Shows what the service manager has kept of the daemon's words: why it could not start, mostly. What it does
/// is in `quack logs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack service logs\n  quack service logs -n 200")]
pub(crate) struct ServiceLogsArgs {
    /// How many of the last lines to show
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 50)]
    pub(crate) lines: usize,
}

/// Prints the service's files and where they belong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack service print\n  quack service print --json")]
pub(crate) struct ServicePrintArgs {}

/// Restarts the daemon, when nothing is at work: after an upgrade, or a change of its configuration.
///
/// Calls, background jobs and turns of Pi are what it waits for, and lists. The next daemon has the same
/// sessions. What --force cuts short is marked as interrupted there. The configuration is checked first: if it is
/// not valid, the daemon goes on.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack restart\n  quack restart --wait 10m\n  quack restart --wait 1m --force\n\n\
    Exit codes: 0 restarted, 1 the configuration is not valid, 3 no daemon, 4 something is at work."
)]
pub(crate) struct RestartArgs {
    /// Restart although something is at work; it gets a few seconds
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait so long for what is at work, such as 30s or 10m. New work is accepted meanwhile
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
}

/// Removes what quackd has put on this machine: the service, completions and manual pages, and with --purge
/// the state.
///
/// Stops the daemon first. Only removes what is known to be ours, and says what it leaves. The program itself
/// is removed by what installed it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack uninstall --dry-run --purge\n  quack uninstall\n  quack uninstall --purge --yes\n\n\
    Exit codes: 0 removed, 1 something could not be removed, or you said no, 2 nobody is there to confirm it, \
    3 the daemon cannot be reached, 4 it does not answer or end in time."
)]
pub(crate) struct UninstallArgs {
    /// Remove the state directory too: sessions, policies, logs, conversations, configuration
    #[arg(long)]
    pub(crate) purge: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Show what would be removed
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
