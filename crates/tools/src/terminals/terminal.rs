//! One terminal: its screen, the input that waits for the program, and what the supervisor gets.

use super::forwarding::{Due, Forwarding, Refresh};
use super::frames;
use super::recording::{NotRecorded, Recorder, RecordingFile};
use quackd_process::TerminalMaster;
use quackd_protocol::limits::{DEFAULT_SCROLLBACK_BYTES, MAX_SCROLLBACK_BYTES};
use quackd_protocol::output::MAX_PIECE_BYTES;
use quackd_protocol::terminal::{
    CellSize, FromTerminal, Recording, TerminalColors, TerminalExit, ToTerminal,
};
use quackd_terminal::{Cursor, Screen, TerminalSize};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout_at;

/// Shortest time between two changes of the size, so that a window that is being dragged costs the program little.
const RESIZE_INTERVAL: Duration = Duration::from_millis(50);

/// Most bytes of answers to queries that the program has not read. Further ones are dropped.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Most pieces of input of tools that wait. The supervisor has at most
/// [`quackd_protocol::limits::MAX_TERMINAL_INPUT_PIECES`] in addition.
const MAX_TOOL_PIECES: usize = 32;

/// Settings of a new terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalSetup {
    pub(crate) size: TerminalSize,
    /// Most bytes of lines above the screen, at most [`MAX_SCROLLBACK_BYTES`].
    pub(crate) scrollback_bytes: usize,
    pub(crate) record: Option<Recording>,
    /// Colors of the user's terminal, if they are known.
    pub(crate) colors: Option<TerminalColors>,
}

impl Default for TerminalSetup {
    fn default() -> Self {
        let (size, scrollback_bytes) = (TerminalSize::DEFAULT, DEFAULT_SCROLLBACK_BYTES);
        Self { size, scrollback_bytes, record: None, colors: None }
    }
}

/// Terminal of a background job.
#[derive(Debug)]
pub struct Terminal {
    first_size: TerminalSize,
    recording: Option<RecordingFile>,
    state: watch::Sender<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once the program has ended.
    master: Option<TerminalMaster>,
    screen: Screen,
    forwarding: Forwarding,
    input: VecDeque<Piece>,
    /// Answers to queries of the program, to be typed.
    answers: Vec<u8>,
    /// Numbers of the last piece that was queued, and of the last one that was typed.
    n_queued: u64,
    n_typed: u64,
    /// Last requested size, until it is applied.
    wanted_size: Option<TerminalSize>,
    /// Time of the last change of the size.
    resized: Option<Instant>,
    /// Number of changes of the screen, and the number at the last view of a tool.
    version: u64,
    shown: u64,
    /// Time of the last output or input.
    changed: Instant,
    recorder: Option<Recorder>,
    /// The last screen, once the last message was sent.
    last: Option<ScreenView>,
    /// Whether [`Terminal::next`] has returned `None`.
    is_over: bool,
}

/// Bytes to type.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    source: Source,
}

/// Sender of bytes to type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The supervisor, which waits for [`FromTerminal::InputTaken`].
    Supervisor,
    /// A tool.
    Tool,
    /// The screen, which answers a query of the program.
    Screen,
}

/// Reason why nothing was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TypeError {
    #[error("The program has ended")]
    Ended,
    #[error("The program has not read the input before; nothing was typed")]
    Full,
}

/// The screen as text.
#[derive(Debug, Clone)]
pub(crate) struct ScreenView {
    pub(crate) size: TerminalSize,
    pub(crate) cursor: Cursor,
    pub(crate) is_alternate: bool,
    pub(crate) title: Option<String>,
    /// Lines above the screen, each with a newline.
    pub(crate) history: String,
    /// Rows, without empty ones at the end.
    pub(crate) text: String,
}

impl Terminal {
    /// Creates the terminal of a program that is about to start. A recording is written to `recording`.
    pub(crate) fn new(master: TerminalMaster, setup: TerminalSetup, recording: PathBuf) -> Self {
        let TerminalSetup { size, scrollback_bytes, record, colors } = setup;
        let (recording, recorder) =
            record.map(|kind| Recorder::start(recording, size, kind)).unzip();
        let mut screen = Screen::new(size, scrollback_bytes.min(MAX_SCROLLBACK_BYTES));
        colors.into_iter().for_each(|colors| screen.set_colors(colors));
        let state = watch::Sender::new(State::new(master, screen, recorder.flatten()));
        Self { first_size: size, recording, state }
    }

    /// Returns the size at the start.
    pub(crate) fn first_size(&self) -> CellSize {
        frames::cell_size(self.first_size)
    }

    /// Returns the path of the recording once its file exists. `None` if none was requested.
    ///
    /// # Errors
    /// The file cannot be created, or was not within 1 s.
    pub(crate) async fn recording(&self) -> Result<Option<&Path>, NotRecorded> {
        match &self.recording {
            Some(file) => file.path().await.map(Some),
            None => Ok(None),
        }
    }

    /// Handles a message of the supervisor. Once the program has ended, only those about viewers have an effect, until
    /// the last message was sent.
    pub fn handle(&self, message: ToTerminal) {
        match message {
            ToTerminal::Input { bytes } => self.change(|state| state.queue_piece(&bytes)),
            ToTerminal::Resize(CellSize { cols, rows }) => {
                let size = TerminalSize::new(cols, rows);
                self.change(|state| state.wanted_size = Some(size));
            }
            ToTerminal::Colors(colors) => self.change(|state| state.screen.set_colors(colors)),
            ToTerminal::Watch { raw, rows, lagging } => {
                self.follow(|forwarding| forwarding.watch(raw, rows, lagging));
            }
            ToTerminal::Refresh { viewer, scrollback, as_rows } => {
                let refresh = Refresh { viewer, has_scrollback: scrollback, as_rows };
                self.follow(|forwarding| forwarding.refresh(refresh));
            }
            ToTerminal::Taken {} => self.follow(Forwarding::add_credit),
            ToTerminal::Signal { signal } => {
                // A process that has exited since needs no signal.
                if let Some(master) = self.master() {
                    master.signal_foreground(signal).ok();
                }
            }
        }
    }

    /// Waits for the next message to the supervisor. After [`FromTerminal::Exited`], which is the last one, returns
    /// `None`: the caller has passed it on. For one caller. Cancel-safe.
    pub async fn next(&self) -> Option<FromTerminal> {
        let mut changes = self.state.subscribe();

        loop {
            // `self` has the sender, so no wait fails.
            match self.due() {
                Due::Now(message) => return Some(message),
                Due::At(at) => {
                    timeout_at(at.into(), changes.changed()).await.ok();
                }
                Due::Change => {
                    changes.changed().await.ok();
                }
                Due::Over => return None,
            }
        }
    }

    fn due(&self) -> Due {
        let mut due = Due::Change;
        self.state.send_if_modified(|state| {
            due = state.next(Instant::now());
            let is_news = matches!(due, Due::Over) && !state.is_over;
            state.is_over |= is_news;
            is_news
        });
        due
    }

    /// Whether [`Terminal::next`] has returned `None`.
    pub(crate) fn is_over(&self) -> bool {
        self.state.borrow().is_over
    }

    /// Waits until [`Terminal::next`] has returned `None`.
    pub(crate) async fn over(&self) {
        // `self` has the sender, so no wait fails.
        self.state.subscribe().wait_for(|state| state.is_over).await.ok();
    }

    /// Adds output of the program.
    pub(crate) fn feed(&self, bytes: &[u8]) {
        self.state.send_modify(|state| state.feed(bytes));
    }

    /// Notes the end of the program, after its output.
    pub(crate) fn end(&self, exit: TerminalExit) {
        self.state.send_modify(|state| {
            state.forwarding.end(exit, Instant::now());
            // Closes the terminal, and completes the file.
            (state.master, state.recorder) = (None, None);
            state.input = VecDeque::new();
        });
    }

    /// Types the waiting input. Never returns. Dropped when the program ends.
    pub(crate) async fn type_input(&self) -> Infallible {
        let mut changes = self.state.subscribe();
        loop {
            match self.next_piece() {
                Some(piece) => self.type_piece(&piece).await,
                None => {
                    // `self` has the sender, so no wait fails.
                    changes.changed().await.ok();
                }
            }
        }
    }

    fn next_piece(&self) -> Option<Piece> {
        let mut piece = None;
        self.state.send_if_modified(|state| {
            piece = state.next_piece();
            // No task waits for free space in the queue.
            false
        });
        piece
    }

    async fn type_piece(&self, piece: &Piece) {
        let Some(master) = self.master() else { return };
        let mut left = piece.bytes.as_slice();
        while !left.is_empty() {
            match master.write(left).await {
                Ok(n) if n != 0 => left = left.get(n..).unwrap_or_default(),
                // No process has the terminal any longer.
                _ => break,
            }
        }
        self.state.send_modify(|state| state.note_typed(piece.source));
    }

    /// Queues text of a tool. Returns the number for [`Terminal::typed`].
    ///
    /// # Errors
    /// Nothing was queued.
    pub(crate) fn queue(&self, text: &[u8]) -> Result<u64, TypeError> {
        let mut queued = Err(TypeError::Ended);
        self.state.send_if_modified(|state| {
            queued = state.queue(text);
            queued.is_ok()
        });
        queued
    }

    /// Waits until the program has taken the input with this number, or has ended.
    pub(crate) async fn typed(&self, number: u64) {
        let is_typed = |state: &State| number <= state.n_typed || !state.forwarding.is_running();
        // `self` has the sender, so no wait fails.
        self.state.subscribe().wait_for(is_typed).await.ok();
    }

    /// Waits for a change of the screen since the last view, or for the end.
    pub(crate) async fn news(&self) {
        let is_news =
            |state: &State| state.shown != state.version || !state.forwarding.is_running();
        // `self` has the sender, so no wait fails.
        self.state.subscribe().wait_for(is_news).await.ok();
    }

    /// Waits until there was neither output nor input for `quiet`, or the program has ended.
    pub(crate) async fn quiet(&self, quiet: Duration) {
        let mut changes = self.state.subscribe();
        loop {
            let at = {
                let state = changes.borrow_and_update();
                if !state.forwarding.is_running() {
                    return;
                }
                state.changed + quiet
            };
            if at <= Instant::now() {
                return;
            }
            // `self` has the sender, so no wait fails.
            timeout_at(at.into(), changes.changed()).await.ok();
        }
    }

    /// Whether cursor keys send their application codes.
    pub(crate) fn has_application_cursor(&self) -> bool {
        self.state.borrow().screen.application_cursor()
    }

    /// Returns the screen, after up to `history` lines above it.
    pub(crate) fn view(&self, history: usize) -> ScreenView {
        let mut view = None;
        self.state.send_if_modified(|state| {
            state.shown = state.version;
            view = Some(state.last.clone().unwrap_or_else(|| state.view(history)));
            false
        });
        // The closure has always run, which the compiler cannot see.
        view.unwrap_or_else(|| self.state.borrow().view(history))
    }

    fn master(&self) -> Option<TerminalMaster> {
        self.state.borrow().master.clone()
    }

    /// Changes the state of a running program's terminal.
    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_if_modified(|state| {
            let is_running = state.forwarding.is_running();
            if is_running {
                change(state);
            }
            is_running
        });
    }

    /// Changes what the supervisor gets, also of the last output of a program that has ended.
    fn follow(&self, change: impl FnOnce(&mut Forwarding)) {
        self.state.send_if_modified(|state| {
            let is_sent = state.forwarding.is_sent();
            if !is_sent {
                change(&mut state.forwarding);
            }
            !is_sent
        });
    }
}

impl State {
    fn new(master: TerminalMaster, screen: Screen, recorder: Option<Recorder>) -> Self {
        Self {
            master: Some(master),
            screen,
            forwarding: Forwarding::default(),
            input: VecDeque::new(),
            answers: Vec::new(),
            n_queued: 0,
            n_typed: 0,
            wanted_size: None,
            resized: None,
            version: 0,
            shown: 0,
            changed: Instant::now(),
            recorder,
            last: None,
            is_over: false,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let answers = self.screen.feed(bytes);
        if self.answers.len() + answers.len() <= MAX_ANSWER_BYTES {
            self.answers.extend_from_slice(&answers);
        }
        self.forwarding.output(bytes);
        if let Some(address) = self.screen.take_address() {
            self.forwarding.open(address, Instant::now());
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.output(bytes);
        }
        self.note_change();
    }

    fn note_change(&mut self) {
        self.version += 1;
        self.changed = Instant::now();
    }

    /// Queues input of the supervisor, which is JSON of base64.
    fn queue_piece(&mut self, base64: &RawValue) {
        // The supervisor has checked it. An invalid piece is typed as an empty one, because the supervisor waits for an
        // answer.
        let bytes = frames::decoded(base64).filter(|bytes| bytes.len() <= MAX_PIECE_BYTES);
        self.push(bytes.unwrap_or_default(), Source::Supervisor);
    }

    fn queue(&mut self, text: &[u8]) -> Result<u64, TypeError> {
        if !self.forwarding.is_running() {
            return Err(TypeError::Ended);
        }
        let pieces = text.chunks(MAX_PIECE_BYTES);
        let n_waiting = self.input.iter().filter(|piece| piece.source == Source::Tool).count();
        if MAX_TOOL_PIECES < n_waiting + pieces.len() {
            return Err(TypeError::Full);
        }
        pieces.for_each(|piece| self.push(piece.to_vec(), Source::Tool));
        Ok(self.n_queued)
    }

    fn push(&mut self, bytes: Vec<u8>, source: Source) {
        self.n_queued += 1;
        self.input.push_back(Piece { bytes, source });
    }

    /// Takes the next bytes to type. Answers go first: the program waits for them.
    fn next_piece(&mut self) -> Option<Piece> {
        if !self.answers.is_empty() {
            let bytes = std::mem::take(&mut self.answers);
            return Some(Piece { bytes, source: Source::Screen });
        }
        let piece = self.input.pop_front()?;
        if let Some(recorder) = &mut self.recorder {
            recorder.input(&piece.bytes);
        }
        Some(piece)
    }

    fn note_typed(&mut self, source: Source) {
        if source == Source::Supervisor {
            self.forwarding.input_taken();
        }
        if source != Source::Screen {
            self.n_typed += 1;
            self.changed = Instant::now();
        }
    }

    fn next(&mut self, now: Instant) -> Due {
        let resize_at = self.apply_size(now);
        let due = self.forwarding.next(&self.screen, now).or_at(resize_at);
        if let Due::Now(FromTerminal::Exited(_)) = due {
            // The cells of a screen take more memory than its text.
            self.last = Some(self.view(0));
            self.screen = Screen::new(TerminalSize::new(1, 1), 0);
        }
        due
    }

    /// Applies the requested size, or returns when it may be applied.
    fn apply_size(&mut self, now: Instant) -> Option<Instant> {
        let size = self.wanted_size.filter(|_| self.master.is_some())?;
        let at = self.resized.map_or(now, |resized| resized + RESIZE_INTERVAL);
        if now < at {
            return Some(at);
        }

        (self.wanted_size, self.resized) = (None, Some(now));
        self.screen.resize(size);
        self.forwarding.resized();
        if let Some(recorder) = &mut self.recorder {
            recorder.resize(size);
        }
        self.note_change();
        if let Some(master) = &self.master {
            // It fails only when no process has the terminal any longer.
            master.resize(size.cols, size.rows).ok();
        }
        None
    }

    fn view(&self, history: usize) -> ScreenView {
        let screen = &self.screen;
        ScreenView {
            size: screen.size(),
            cursor: screen.cursor(),
            is_alternate: screen.is_alternate(),
            title: screen.title().map(str::to_owned),
            history: if history == 0 { String::new() } else { screen.scrollback_text(history) },
            text: screen.text(),
        }
    }
}

#[cfg(test)]
mod tests;
