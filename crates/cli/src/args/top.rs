//! Arguments of `quack top` and `quack metrics`.

use clap::Args;

/// Shows on a full screen what the daemon and its sessions do, every second.
///
/// Sessions with their status, CPU, memory, calls and jobs, and the last deaths; keys follow a session, end its calls,
/// kill its worker or pin it. `?` explains them, q ends it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack top\n  NO_COLOR=1 quack top\n  quack ps --json     for scripts\n\n\
    q, Ctrl-C, and a terminal that is closed end it with exit code 0. Without a terminal it is a usage error."
)]
pub(crate) struct TopArgs {}

/// Prints the daemon's counters as Prometheus reads them.
///
/// Exposition format 0.0.4, for a textfile collector or a script. No names of sessions and no paths stand in it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack metrics\n  quack metrics > /var/lib/node_exporter/quackd.prom\n  \
    quack metrics --json"
)]
pub(crate) struct MetricsArgs {}
