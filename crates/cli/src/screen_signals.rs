//! Signals for a program that has changed the modes of its terminal. Used by `quack top` and by the subcommands that show
//! a terminal of a session.

use rustix::process::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
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
    /// Signals that end the program.
    end: Vec<Signals>,
    stop: Signals,
    continued: Signals,
}

impl SignalListener {
    /// Starts to receive the signals.
    ///
    /// # Errors
    /// If a signal handler cannot be installed.
    pub(crate) fn open() -> io::Result<Self> {
        let end = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let other = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        Ok(Self {
            end: end.into_iter().map(signal).collect::<io::Result<_>>()?,
            stop: other(Signal::TSTP)?,
            continued: other(Signal::CONT)?,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(crate) async fn next(&mut self) -> TerminalSignal {
        let Self { end, stop, continued } = self;
        let ended = poll_fn(|context| {
            let is_ended = end.iter_mut().any(|signals| signals.poll_recv(context).is_ready());
            if is_ended { Poll::Ready(()) } else { Poll::Pending }
        });

        tokio::select! {
            () = ended => TerminalSignal::End,
            _ = stop.recv() => TerminalSignal::Stop,
            _ = continued.recv() => TerminalSignal::Continued,
        }
    }
}
