//! Arguments of `quack top` and `quack metrics`.

use clap::Args;

/// Show the daemon and its sessions on a full screen
///
/// Refreshes every second. Lists the sessions with their status, CPU, memory, calls and jobs, and the last crashes.
/// Keys follow a session, cancel its calls, kill its worker or pin it. Press `?` for the keys, q to quit.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack top\n  NO_COLOR=1 quack top\n  quack ps --json     for scripts\n\n\
    q, Ctrl-C and closing the terminal end it with exit code 0. Without a terminal it fails with a usage error."
)]
pub(crate) struct TopArgs {}

/// Print the daemon's metrics in Prometheus format
///
/// Exposition format 0.0.4, for a textfile collector or a script. Contains no session names and no paths.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack metrics\n  quack metrics > /var/lib/node_exporter/quackd.prom\n  \
    quack metrics --json"
)]
pub(crate) struct MetricsArgs {}
