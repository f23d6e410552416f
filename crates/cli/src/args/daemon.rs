//! Arguments of the subcommands about the daemon: `ps`, `doctor`, `daemon` and `stop`.

use clap::Args;

/// Show the supervisor, its worker processes and the running calls
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack ps\n  quack ps --json\n  quack ps --watch\n  \
    quack ps --watch=10 --json | jq '.workers | length'")]
pub(crate) struct PsArgs {
    /// Refresh every SECONDS until Ctrl-C [default: 2]; with --json print one line per refresh
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub(crate) watch: Option<u64>,
}

/// Check the installation and suggest fixes
///
/// Works without a daemon. Exits with 1 if a check failed. A warning does not count as a failure.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack doctor\n  quack doctor --refresh-environment\n  quack doctor --tree\n  quack doctor --json"
)]
pub(crate) struct DoctorArgs {
    /// Make the daemon read the environment of your login shell again
    #[arg(long)]
    pub(crate) refresh_environment: bool,
    /// Show the daemon's processes and threads with their limits and state
    #[arg(long, conflicts_with = "refresh_environment")]
    pub(crate) tree: bool,
}

/// Run the supervisor in the foreground until it receives SIGTERM
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack daemon\n  quack daemon --verbose")]
pub(crate) struct DaemonArgs {
    /// Copy the log to stderr; QUACKD_LOG=debug adds details
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Detach from the terminal; used when a subcommand starts the daemon
    #[arg(long, hide = true)]
    pub(crate) background: bool,
    /// Service manager that starts the daemon: systemd or launchd
    #[arg(long, hide = true, value_name = "MANAGER")]
    pub(crate) service: Option<quackd_service::Manager>,
}

/// Stop the supervisor and its workers
///
/// Running calls get 5 s to finish. Lists the work that a stop would interrupt. On a terminal, asks for confirmation if
/// there is any.
///
/// If the daemon does not answer or is too old for this request, prints its process id and how to kill it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack stop\n  quack stop --json\n\n\
    Exit codes: 0 stopped, or none was running, 1 it rejected the request or you \
    declined, 3 it cannot be reached, 4 it does not answer or stop in time.")]
pub(crate) struct StopArgs {
    /// Interrupt running work without asking
    #[arg(long, short = 'y', visible_alias = "force")]
    pub(crate) yes: bool,
}
