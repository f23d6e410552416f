//! Event loop of an attached client: keys, signals, the size of the window, and the events of the terminal.
//!
//! At most one request with input, one other request and one write to the terminal run at the same time. While a write
//! runs, no event is taken: the daemon then sends the whole screen in place of what this client has missed.

use super::connection::{TerminalUpdate, View};
use super::pending::{Work, done, settle, until};
use super::watched_keys::{KeyInput, WatchedKeys};
use super::window::Window;
use crate::output::{OpenQuestion, StdoutState};
use crate::piped_stdin;
use crate::screen_signals::{SignalListener, TerminalSignal};
use quackd_client::{ClientError, Events};
use quackd_protocol::output::MAX_PIECE_BYTES;
use quackd_protocol::terminal::TerminalExit;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// Shortest time between two reports of the size of the window.
const RESIZE_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of input that wait for the program, above which the keyboard is not read.
const MAX_WAITING: usize = 1024 * 1024;

/// Reason why the loop ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The program has ended.
    Exited(TerminalExit),
    /// The user or another client has detached this one, or a signal ended it.
    Detached,
    /// The window was closed.
    Closed,
}

/// An attached client with the user's terminal.
pub(super) struct Viewer<'a> {
    view: &'a View,
    held: &'a OpenQuestion,
    window: Window,
    keys: WatchedKeys,
    /// Typed bytes that were not passed on yet.
    input: VecDeque<u8>,
    typing: Work<'a, anyhow::Result<usize>>,
    /// The request for the screen, or the report of a new size.
    asking: Work<'a, Result<(), ClientError>>,
    writing: Work<'a, io::Result<StdoutState>>,
    /// Whether the screen must be requested.
    is_redraw_due: bool,
    /// When the size of the window is reported.
    resize_at: Option<Instant>,
    /// When it was reported last.
    resized_at: Option<Instant>,
}

impl<'a> Viewer<'a> {
    /// Creates the client. `held` is the right to print.
    pub(super) fn new(
        view: &'a View,
        held: &'a OpenQuestion,
        window: Window,
        keys: WatchedKeys,
    ) -> Self {
        Self {
            view,
            held,
            window,
            keys,
            input: VecDeque::new(),
            typing: None,
            asking: None,
            writing: None,
            is_redraw_due: false,
            resize_at: None,
            resized_at: None,
        }
    }

    /// Runs until the program ends or the client is detached.
    ///
    /// # Errors
    /// Those of the terminal and of the connection.
    pub(super) async fn run(
        &mut self,
        events: &mut Events,
        signals: &mut SignalListener,
    ) -> anyhow::Result<Ended> {
        let mut typed = piped_stdin::pieces(MAX_PIECE_BYTES);
        let mut windows = signal(SignalKind::window_change())?;

        loop {
            self.begin_requests();

            let ended = tokio::select! {
                // A program that prints without end must not delay signals and keys.
                biased;
                signal = signals.next() => self.take_signal(signal).await?,
                piece = typed.recv(), if self.input.len() < MAX_WAITING => match piece {
                    Some(Ok(bytes)) => {
                        let input = self.keys.typed(&bytes);
                        self.take_input(input)
                    }
                    Some(Err(_)) | None => Some(Ended::Closed),
                },
                input = self.keys.expired() => self.take_input(input),
                _ = windows.recv() => {
                    self.plan_resize();
                    None
                }
                () = until(self.resize_at), if self.asking.is_none() => {
                    self.resize();
                    None
                }
                taken = done(&mut self.typing) => {
                    let taken = taken?.min(self.input.len());
                    drop(self.input.drain(..taken));
                    None
                }
                answered = done(&mut self.asking) => {
                    answered?;
                    None
                }
                written = done(&mut self.writing) => match written {
                    Ok(StdoutState::There) => None,
                    Ok(StdoutState::Gone) | Err(_) => Some(Ended::Closed),
                },
                event = events.recv(), if self.writing.is_none() => match event {
                    Some(event) => {
                        let update = self.view.update(&event)?;
                        self.take_update(update)
                    }
                    None => return Err(self.view.why_closed().into()),
                },
            };

            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
    }

    /// Restores the terminal.
    pub(super) async fn close(&mut self) {
        settle(&mut self.writing).await;
        self.window.leave();
    }

    fn begin_requests(&mut self) {
        let view = self.view;
        if self.typing.is_none() && !self.input.is_empty() {
            let piece = self.input.iter().copied().take(MAX_PIECE_BYTES).collect();
            self.typing = Some(Box::pin(view.typed(piece)));
        }
        if self.asking.is_none() && std::mem::take(&mut self.is_redraw_due) {
            self.asking = Some(Box::pin(view.redraw()));
        }
    }

    async fn take_signal(&mut self, signal: TerminalSignal) -> io::Result<Option<Ended>> {
        match signal {
            TerminalSignal::End => return Ok(Some(Ended::Detached)),
            TerminalSignal::Stop => {
                settle(&mut self.writing).await;
                self.window.stop()?;
            }
            // Another program may have used the terminal since.
            TerminalSignal::Continued => {
                settle(&mut self.writing).await;
                self.window.enter()?;
                self.is_redraw_due = true;
                self.plan_resize();
            }
        }
        Ok(None)
    }

    fn take_input(&mut self, input: KeyInput) -> Option<Ended> {
        if !self.view.is_read_only {
            self.input.extend(input.bytes);
        }
        input.is_pressed.then_some(Ended::Detached)
    }

    fn take_update(&mut self, update: Option<TerminalUpdate>) -> Option<Ended> {
        match update? {
            TerminalUpdate::Output(bytes) => {
                let shown = self.window.filtered(&bytes);
                if !shown.is_empty() {
                    self.writing = Some(Box::pin(self.held.screen(shown)));
                }
                None
            }
            TerminalUpdate::Exited(exit) => Some(Ended::Exited(exit)),
            TerminalUpdate::Detached => Some(Ended::Detached),
        }
    }

    fn plan_resize(&mut self) {
        let now = Instant::now();
        let earliest = self.resized_at.map_or(now, |last| now.max(last + RESIZE_INTERVAL));
        self.resize_at.get_or_insert(earliest);
    }

    fn resize(&mut self) {
        let view = self.view;
        self.resize_at = None;
        self.resized_at = Some(Instant::now());
        self.asking = Some(Box::pin(view.resized()));
    }
}
