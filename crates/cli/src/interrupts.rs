//! The signals by which a user ends a verb. Used by verbs that finish something first.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, and the polite way to end a program.
#[derive(Debug)]
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
    /// The terminal is gone. `None` if it is not to be caught.
    hangup: Option<Signal>,
}

impl Interrupts {
    /// From now on they end nothing by themselves.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn catch() -> io::Result<Self> {
        let (int, term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { int, term, hangup: None })
    }

    /// As [`Interrupts::catch`], and the end of the terminal too, unless `nohup` has made it ineffective.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn catch_with_hangup() -> io::Result<Self> {
        let hangup = match ignores_hangup() {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        Ok(Self { hangup, ..Self::catch()? })
    }

    /// Waits for the next one. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
            Some(_) = next_of(self.hangup.as_mut()) => {}
        }
    }
}

/// Pending without a signal to wait for.
async fn next_of(signal: Option<&mut Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether this process was started with SIGHUP ignored. `false` where the system does not tell.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is signal 1.
    mask.is_some_and(|mask| mask & 1 != 0)
}
