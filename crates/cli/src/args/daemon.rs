//! The command lines of the verbs about the daemon itself.

use clap::Args;

/// Shows the supervisor, its worker processes and the calls in flight.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack ps\n  quack ps --json\n  quack ps --watch\n  \
    quack ps --watch=10 --json | jq '.workers | length'")]
pub(crate) struct PsArgs {
    /// Again and again, every 2 s or so many, until Ctrl-C (exit code 0); with --json a line for each look
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

/// Looks everything over and says what to do about it.
///
/// Works without a daemon. Exit code 1 if a check failed; a warning is no failure.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack doctor\n  quack doctor --refresh-environment\n  quack doctor --tree\n  quack doctor --json"
)]
pub(crate) struct DoctorArgs {
    /// Have the daemon ask your login shell for its environment again
    #[arg(long)]
    pub(crate) refresh_environment: bool,
    /// Show every kind of process and thread of the daemon, what it is promised and how it is
    #[arg(long, conflicts_with = "refresh_environment")]
    pub(crate) tree: bool,
}

/// Runs the supervisor in the foreground; TERM drains it and ends it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack daemon\n  quack daemon --verbose")]
pub(crate) struct DaemonArgs {
    /// Copy the log to stderr; QUACKD_LOG=debug says more
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Detach from the terminal; used when a verb starts the daemon
    #[arg(long, hide = true)]
    pub(crate) background: bool,
    /// The service manager that starts it: systemd or launchd; used in their files
    #[arg(long, hide = true, value_name = "MANAGER")]
    pub(crate) service: Option<quackd_service::Manager>,
}

/// Stops the supervisor: running calls get a moment, then every worker ends.
///
/// Lists what it would cut short, and asks first if that is anything and you are at a terminal.
///
/// One that does not answer, or is too old to be asked, is named with its process and how to end that.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack stop\n  quack stop --json\n\n\
    Exit codes: 0 stopped, or none ran, 1 it cannot be asked to stop or you said no, \
    3 it cannot be reached, 4 it does not \
    answer or end in time.")]
pub(crate) struct StopArgs {
    /// Do not ask, and cut short what is at work
    #[arg(long, short = 'y', visible_alias = "force")]
    pub(crate) yes: bool,
}
