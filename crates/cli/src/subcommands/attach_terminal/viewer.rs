//! Event loop of an attached client: keys, signals, the size of the window, and the events of the terminal.
//!
//! At most one request with input, one other request and one write to the terminal run at the same time. While a write
//! runs, no event is taken: the daemon then sends the whole screen in place of what this client has missed.
//!
//! While the screen is larger than the window, the client gets rows in place of bytes and draws those that fit. What is
//! shown follows from the kind of the events, whose order is that of the requests: bytes of an earlier attachment come
//! before the rows of the next one.

use super::color_query::ColorQuery;
use super::connection::{ScreenReply, TerminalUpdate, View};
use super::cropped::CroppedScreen;
use super::opening::{Answer, Opening};
use super::pending::{Work, done, settle, until};
use super::watched_keys::{KeyInput, WatchedKeys};
use super::window::{Window, window_size};
use crate::output::{OpenQuestion, StdoutState};
use crate::piped_stdin;
use crate::platform::opener;
use crate::screen_signals::{SignalListener, TerminalSignal};
use quackd_client::{ClientError, Events};
use quackd_process::spawn_on_desktop_blocking;
use quackd_protocol::output::MAX_PIECE_BYTES;
use quackd_protocol::terminal::{CellSize, TerminalExit};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

/// Shortest time between two reports of the size of the window.
const RESIZE_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of input that wait for the program. Above it, the keyboard is read only while the program takes nothing, and only
/// for the keys that detach.
const MAX_WAITING: usize = 1024 * 1024;

/// Most output that is kept while a question is shown, in bytes.
const MAX_UNSHOWN: usize = 256 * 1024;

/// Rings the bell.
const BELL: u8 = 7;

/// Pause without input after which a paste is over.
const QUIET: Duration = Duration::from_millis(100);

/// Longest wait for it.
const QUIET_WAIT: Duration = Duration::from_secs(1);

/// Longest wait for the end of a forwarded port.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

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

/// Content of the user's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Nothing of this screen, until all of it comes.
    Nothing,
    /// The bytes of the program.
    Bytes,
    /// A part of the rows.
    Rows,
    /// The question whether to open an address. The whole screen is requested after the answer.
    Question,
}

/// An attached client with the user's terminal.
pub(super) struct Viewer<'a> {
    view: &'a View,
    held: &'a OpenQuestion,
    window: Window,
    keys: WatchedKeys,
    query: ColorQuery,
    /// Pieces of what is typed.
    typed: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// Typed bytes that were not passed on yet.
    input: VecDeque<u8>,
    /// Whether the program has not taken the last piece.
    is_stalled: bool,
    /// Whether typed bytes were dropped.
    has_dropped: bool,
    /// Whether the bell must ring.
    is_bell_due: bool,
    typing: Work<'a, anyhow::Result<usize>>,
    /// The request for the screen, or the report of a new size.
    asking: Work<'a, Result<Option<ScreenReply>, ClientError>>,
    writing: Work<'a, io::Result<StdoutState>>,
    opening: Opening,
    /// Output since the question was shown, for a program that ends before the whole screen comes. The oldest is dropped.
    unshown: Vec<u8>,
    /// Whether the screen or output of the program has arrived.
    pub(super) has_screen: bool,
    /// The request for a forwarded port, with its number and the refusal.
    forwarding: Work<'a, (u16, Result<Option<String>, ClientError>)>,
    /// Whether the screen must be requested.
    is_redraw_due: bool,
    /// Whether the last attachment is for rows.
    as_rows: bool,
    /// Size of the screen, as far as it is known.
    screen: CellSize,
    /// Title of the program for the next whole screen, not filtered. Output of the program has later ones.
    title: Option<String>,
    /// Size of the user's terminal, if it has one.
    size: Option<CellSize>,
    shown: Shown,
    cropped: CroppedScreen,
    /// Whether the rows must be drawn.
    is_drawing_due: bool,
    /// When the size of the window is reported.
    resize_at: Option<Instant>,
    /// When it was reported last.
    resized_at: Option<Instant>,
}

impl<'a> Viewer<'a> {
    /// Creates the client for a screen of this size and title. `held` is the right to print.
    pub(super) fn new(
        view: &'a View,
        screen: CellSize,
        title: Option<String>,
        held: &'a OpenQuestion,
        window: Window,
        keys: WatchedKeys,
        query: ColorQuery,
    ) -> Self {
        Self {
            view,
            held,
            window,
            keys,
            query,
            typed: piped_stdin::pieces(MAX_PIECE_BYTES),
            input: VecDeque::new(),
            is_stalled: false,
            has_dropped: false,
            is_bell_due: false,
            typing: None,
            asking: None,
            writing: None,
            opening: Opening::new(opener(), view.remote.is_some()),
            unshown: Vec::new(),
            has_screen: false,
            forwarding: None,
            is_redraw_due: false,
            as_rows: false,
            screen,
            title,
            size: window_size(),
            shown: Shown::Nothing,
            cropped: CroppedScreen::new(),
            is_drawing_due: false,
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
        let mut windows = signal(SignalKind::window_change())?;
        let early = std::mem::take(&mut self.query.typed_early);
        if let Some(ended) = self.take_typed(&early) {
            return Ok(ended);
        }

        loop {
            self.begin_requests();

            let is_read = self.input.len() < MAX_WAITING || self.is_stalled;
            let ended = tokio::select! {
                // A program that prints without end must not delay signals and keys.
                biased;
                signal = signals.next() => self.take_signal(signal).await?,
                piece = self.typed.recv(), if is_read => match piece {
                    Some(Ok(bytes)) => {
                        let bytes = self.query.without_answers(&bytes);
                        self.take_typed(&bytes)
                    }
                    Some(Err(_)) | None => Some(Ended::Closed),
                },
                input = self.keys.expired() => self.take_input(input),
                _ = windows.recv() => {
                    self.window_changed();
                    None
                }
                () = until(self.resize_at), if self.asking.is_none() => {
                    self.resize();
                    None
                }
                taken = done(&mut self.typing) => {
                    let taken = taken?.min(self.input.len());
                    self.is_stalled = taken == 0;
                    drop(self.input.drain(..taken));
                    None
                }
                answered = done(&mut self.asking) => {
                    self.take_reply(answered?);
                    None
                }
                (port, refusal) = done(&mut self.forwarding) => {
                    let answer = self.opening.forwarded(port, refusal?);
                    self.take_answer(answer);
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

    /// Returns the address that the program asked to open, if the user has not answered.
    pub(super) fn unanswered(&self) -> Option<String> {
        self.opening.unanswered().map(str::to_owned)
    }

    /// Restores the terminal. `goes_on`: the program has not ended.
    pub(super) async fn close(&mut self, signals: &mut SignalListener, goes_on: bool) {
        // The shell would run the rest of a paste.
        if self.has_dropped || !self.input.is_empty() {
            self.drop_input().await;
        }
        settle(&mut self.writing).await;
        if goes_on {
            self.window.move_below_picture();
        }
        self.window.close(self.held, signals).await;
        for port in self.opening.ports() {
            // It fails if the session or the daemon has ended, with which the forward ends too.
            timeout(CLOSE_WAIT, self.view.forward(*port, true)).await.ok();
        }
    }

    /// Reads and drops input until there is none for a while.
    async fn drop_input(&mut self) {
        let end = Instant::now() + QUIET_WAIT;
        while Instant::now() < end {
            let quiet = end.min(Instant::now() + QUIET);
            if !matches!(timeout_at(quiet, self.typed.recv()).await, Ok(Some(Ok(_)))) {
                return;
            }
        }
    }

    fn begin_requests(&mut self) {
        let view = self.view;
        if self.typing.is_none() && !self.input.is_empty() {
            let piece = self.input.iter().copied().take(MAX_PIECE_BYTES).collect();
            self.typing = Some(Box::pin(view.typed(piece)));
        }

        let is_larger = self.is_larger(self.screen);
        // A planned report of the window's size may change that of the screen.
        let has_wrong_kind = self.resize_at.is_none() && self.as_rows != is_larger;
        if self.asking.is_none() && (self.is_redraw_due || has_wrong_kind) {
            self.is_redraw_due = false;
            self.asking = Some(Box::pin(view.attach_again(is_larger)));
        }

        if self.writing.is_none() && std::mem::take(&mut self.is_bell_due) {
            self.show(vec![BELL]);
        }
        if self.writing.is_none() && std::mem::take(&mut self.is_drawing_due) {
            self.draw();
        }
    }

    /// Whether a screen of this size does not fit into the window.
    fn is_larger(&self, screen: CellSize) -> bool {
        self.size.is_some_and(|window| window.cols < screen.cols || window.rows < screen.rows)
    }

    fn draw(&mut self) {
        let (window, label) = (self.size.unwrap_or(self.screen), &self.view.label);
        let drawing = match self.shown {
            Shown::Rows => self.cropped.drawing(window, label),
            Shown::Question => self.opening.drawing(window, label),
            Shown::Nothing | Shown::Bytes => return,
        };
        let shown = self.window.own(drawing);
        self.show(shown);
    }

    fn show(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.writing = Some(Box::pin(self.held.screen(bytes)));
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
                self.opening.dismiss();
                self.show_screen();
                self.window_changed();
            }
        }
        Ok(None)
    }

    fn take_typed(&mut self, bytes: &[u8]) -> Option<Ended> {
        let input = self.keys.typed(bytes);
        self.take_input(input)
    }

    fn take_input(&mut self, input: KeyInput) -> Option<Ended> {
        let answer = self.opening.typed(&input.bytes, Instant::now());
        if answer != Answer::ForProgram {
            self.take_answer(answer);
        } else if MAX_WAITING <= self.input.len() && !input.bytes.is_empty() {
            self.is_bell_due |= !std::mem::replace(&mut self.has_dropped, true);
        } else if !self.view.is_read_only {
            self.input.extend(input.bytes);
        }
        input.is_pressed.then_some(Ended::Detached)
    }

    /// Does what the user has answered to the question.
    fn take_answer(&mut self, answer: Answer) {
        match answer {
            Answer::ForProgram | Answer::Ignored => {}
            Answer::Changed => self.is_drawing_due = true,
            Answer::Forward(port) => {
                let view = self.view;
                self.forwarding =
                    Some(Box::pin(async move { (port, view.forward(port, false).await) }));
            }
            Answer::Open { program, address } => {
                let started = spawn_on_desktop_blocking(program, &[address.as_str()]);
                let answer = self.opening.started(started);
                self.take_answer(answer);
            }
            Answer::Over => self.show_screen(),
        }
    }

    /// Requests the whole screen.
    fn show_screen(&mut self) {
        self.shown = Shown::Nothing;
        self.is_redraw_due = true;
    }

    fn take_update(&mut self, update: Option<TerminalUpdate>) -> Option<Ended> {
        let is_asking = self.shown == Shown::Question;
        let update = update?;
        self.has_screen |= matches!(
            update,
            TerminalUpdate::Output(_) | TerminalUpdate::Redraw { .. } | TerminalUpdate::Rows(_)
        );
        match update {
            TerminalUpdate::Output(bytes) => match self.shown {
                Shown::Bytes => {
                    let shown = self.window.filtered(&bytes);
                    self.show(shown);
                }
                Shown::Nothing | Shown::Question => self.keep(&bytes),
                Shown::Rows => {}
            },
            TerminalUpdate::Redraw { bytes, size } if is_asking => {
                self.screen = size;
                self.unshown.clear();
                self.keep(&bytes);
            }
            TerminalUpdate::Redraw { size, .. } if self.is_larger(size) => {
                // Rows are requested next, or come already.
                (self.screen, self.shown) = (size, Shown::Nothing);
                self.unshown.clear();
            }
            TerminalUpdate::Redraw { mut bytes, size } => {
                (self.screen, self.shown) = (size, Shown::Bytes);
                self.unshown.clear();
                if let Some(title) = self.title.take() {
                    bytes.extend(format!("\x1b]2;{title}\x1b\\").into_bytes());
                }
                let shown = self.window.filtered(&bytes);
                self.show(shown);
            }
            TerminalUpdate::Rows(rows) => {
                self.screen = CellSize { cols: rows.cols, rows: rows.rows };
                self.cropped.take(rows);
                if !is_asking {
                    (self.shown, self.is_drawing_due) = (Shown::Rows, true);
                }
            }
            TerminalUpdate::Resized(size) => self.screen = size,
            TerminalUpdate::Open(address) => {
                if !self.view.is_read_only && self.opening.ask(&address, Instant::now()) {
                    self.shown = Shown::Question;
                    (self.is_drawing_due, self.is_bell_due) = (true, true);
                }
            }
            TerminalUpdate::Exited(exit) => {
                let unshown = std::mem::take(&mut self.unshown);
                if !unshown.is_empty() {
                    let shown = self.window.filtered(&unshown);
                    self.show(shown);
                }
                return Some(Ended::Exited(exit));
            }
            TerminalUpdate::Detached => return Some(Ended::Detached),
        }
        None
    }

    /// Keeps output that is not shown now, unless the screen does not fit into the window.
    fn keep(&mut self, output: &[u8]) {
        if self.is_larger(self.screen) {
            return;
        }
        self.unshown.extend_from_slice(output);
        let excess = self.unshown.len().saturating_sub(MAX_UNSHOWN);
        if excess != 0 {
            // The rest of a line may be the end of a control sequence.
            let rest = self.unshown.iter().skip(excess).position(|byte| *byte == b'\n');
            drop(self.unshown.drain(..rest.map_or(excess, |rest| excess + rest + 1)));
        }
    }

    fn take_reply(&mut self, reply: Option<ScreenReply>) {
        let Some(ScreenReply { size, as_rows, title }) = reply else {
            self.is_redraw_due = true;
            return;
        };

        self.screen = size;
        match as_rows {
            Some(as_rows) => (self.as_rows, self.title) = (as_rows, title),
            // A screen that did not fit was left out, and may fit now.
            None => self.is_redraw_due |= self.shown == Shown::Nothing,
        }
    }

    fn window_changed(&mut self) {
        self.size = window_size();
        self.is_drawing_due = true;

        let now = Instant::now();
        let earliest = self.resized_at.map_or(now, |last| now.max(last + RESIZE_INTERVAL));
        self.resize_at.get_or_insert(earliest);
    }

    /// Reports the size of the window. A client that types nothing has no size, and gets the screen again.
    fn resize(&mut self) {
        let view = self.view;
        self.resize_at = None;
        self.resized_at = Some(Instant::now());
        match self.size {
            Some(size) if !view.is_read_only => self.asking = Some(Box::pin(view.resized(size))),
            _ => self.is_redraw_due = true,
        }
    }
}
