//! Signals by which a user ends a subcommand. Used by subcommands that clean up before they exit.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receiver of SIGINT, SIGTERM and optionally SIGHUP.
#[derive(Debug)]
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
    /// SIGHUP. `None` if it is not caught.
    hangup: Option<Signal>,
}

impl Interrupts {
    /// Starts catching SIGINT and SIGTERM, which then no longer end the process.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub(crate) fn catch() -> io::Result<Self> {
        let (int, term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { int, term, hangup: None })
    }

    /// Like [`Interrupts::catch`], and also catches SIGHUP unless `nohup` made the process ignore it.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub(crate) fn catch_with_hangup() -> io::Result<Self> {
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { hangup, ..Self::catch()? })
    }

    /// Waits for the next signal. Returns whether it is SIGINT, the key Ctrl-C. Cancel-safe.
    pub(crate) async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.int.recv() => true,
            _ = self.term.recv() => false,
            Some(_) = next_of(self.hangup.as_mut()) => false,
        }
    }
}

/// Waits for `signal`. Never completes without one.
async fn next_of(signal: Option<&mut Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether this process was started with SIGHUP ignored. `false` if the system does not provide `/proc/self/status`.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1, SIGHUP.
    mask.is_some_and(|mask| mask & 1 != 0)
}
