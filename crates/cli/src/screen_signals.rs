//! Signals for a program that has changed the modes of its terminal. Used by `quack top` and by the subcommands that show
//! a terminal of a session.

use rustix::process::Signal;
use std::io;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// Signal that affects a full-screen program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalSignal {
    /// The program must exit.
    End,
    /// The program must suspend.
    Stop,
    /// The program was continued.
    Continued,
}

/// Receiver of these signals. While it exists, they have no default effect.
#[derive(Debug)]
pub(crate) struct SignalListener {
    end: [Signals; 3],
    stop: Signals,
    continued: Signals,
}

impl SignalListener {
    /// Starts to receive the signals.
    ///
    /// # Errors
    /// If a signal handler cannot be installed.
    pub(crate) fn open() -> io::Result<Self> {
        let [interrupt, term, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        let other = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        Ok(Self {
            end: [interrupt?, term?, hangup?],
            stop: other(Signal::TSTP)?,
            continued: other(Signal::CONT)?,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(crate) async fn next(&mut self) -> TerminalSignal {
        let [interrupt, term, hangup] = &mut self.end;
        tokio::select! {
            _ = interrupt.recv() => TerminalSignal::End,
            _ = term.recv() => TerminalSignal::End,
            _ = hangup.recv() => TerminalSignal::End,
            _ = self.stop.recv() => TerminalSignal::Stop,
            _ = self.continued.recv() => TerminalSignal::Continued,
        }
    }
}
