//! The user's terminal in raw mode, with the filter for everything that is written to it.
//!
//! It is restored on drop, before a panic message, while this program is suspended, and by [`TerminalGuard`] if this program
//! is killed. A program's output reaches it only through [`Window::filtered`], or as rows that the client draws on a
//! separate screen, through [`Window::own`].

use crate::exit::CliError;
use crate::output::{CliOutput, OpenQuestion};
use crate::screen_signals::SignalListener;
use crate::terminal_guard::{RESTORE_WAIT, TerminalGuard, write_within_blocking};
use quackd_config::ClipboardChoice;
use quackd_protocol::terminal::CellSize;
use quackd_terminal::{ClipboardRule, Filter, FilterOptions, Screen, TerminalSize};
use rustix::process::Signal;
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr,
};
use std::io::{self, IsTerminal};

/// Restores what a panic message needs: main screen, cursor, no style, no mouse, no pasting mode.
const BEFORE_PANIC: &[u8] =
    b"\x1b[?1049l\x1b[?25h\x1b[?7h\x1b[0m\x1b[?1003;1002;1000;1006;2004l\r\n";

/// Begins a screen of the client itself: a separate one, on which a row that is wider than expected does not continue on the
/// next line.
const BEGIN_OWN: &[u8] = b"\x1b[?1049h\x1b[?7l\x1b[m\x1b[2J";

/// Ends it.
const END_OWN: &[u8] = b"\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal on stdin and stdout.
#[derive(Debug)]
pub(crate) struct Window {
    before: Termios,
    guard: TerminalGuard,
    clipboard: ClipboardChoice,
    title_prefix: String,
    filter: Filter,
    /// The screen of the program as the terminal shows it.
    picture: Screen,
    is_raw: bool,
    /// Whether it shows the client's own screen. The filter is unused then.
    is_own: bool,
    /// Bytes that restore the terminal and that it has not taken in time.
    unwritten: Vec<u8>,
}

impl Window {
    /// Takes over the terminal. `title_prefix` is put before the titles that a program sets.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(crate) fn open(clipboard: ClipboardChoice, title_prefix: String) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        restore_before_panic(before.clone());

        let filter = filter(clipboard, &title_prefix);
        let mut window = Self {
            guard: TerminalGuard::start_blocking(&before),
            before,
            clipboard,
            title_prefix,
            filter,
            picture: Screen::new(size_of_window(), 0),
            is_raw: false,
            is_own: false,
            unwritten: Vec::new(),
        };
        window.enter()?;
        Ok(window)
    }

    /// Switches to raw mode, with an unused filter and an empty screen. The lines of the screen move to those above it.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        self.leave();
        self.filter = filter(self.clipboard, &self.title_prefix);
        self.picture = Screen::new(size_of_window(), 0);

        // Set before the call, so that a partial failure is undone too.
        self.is_raw = true;
        self.tell_guard();
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;

        if let Some(CellSize { rows, .. }) = window_size() {
            let mut scrolling = std::mem::take(&mut self.unwritten);
            scrolling.extend(format!("\x1b[{rows};1H").into_bytes());
            scrolling.extend(b"\n".repeat(usize::from(rows)));
            scrolling.extend(b"\x1b[H");
            write_within_blocking(&scrolling, RESTORE_WAIT);
        }
        Ok(())
    }

    /// Moves the cursor to the last row that is not empty, if the program draws on the main screen and goes on: the next text
    /// must not be in the middle of its picture.
    pub(super) fn move_below_picture(&mut self) {
        if !self.is_raw || self.is_own || self.filter.is_alternate() {
            return;
        }
        let rows = self.picture.rows();
        let last = rows.iter().rposition(|row| !row.runs.is_empty()).unwrap_or_default();
        let last = last.max(self.picture.cursor().row.into()) + 1;
        self.unwritten.extend(format!("\x1b[{last};1H").into_bytes());
    }

    /// Restores the terminal, if it is in raw mode. If the terminal takes no bytes, waits for it until a signal comes.
    pub(crate) async fn close(&mut self, held: &OpenQuestion, signals: &mut SignalListener) {
        self.leave();
        let rest = std::mem::take(&mut self.unwritten);
        if rest.is_empty() {
            return;
        }

        tokio::select! {
            // A terminal that was closed needs no bytes.
            _ = held.screen(rest) => {}
            _ = signals.next() => {}
        }
    }

    /// Restores the terminal, if it is in raw mode. Blocks at most a second.
    fn leave(&mut self) {
        if !std::mem::take(&mut self.is_raw) {
            return;
        }

        let mut restoring = std::mem::take(&mut self.unwritten);
        restoring.extend(self.end_own());
        restoring.extend(self.filter.restore());
        self.unwritten = write_within_blocking(&restoring, RESTORE_WAIT);
        // The shell must not read pending reports of the mouse and of keys. The calls fail if the terminal was closed.
        tcflush(io::stdin(), QueueSelector::IFlush).ok();
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).ok();
        self.tell_guard();
    }

    /// Reports to the guard what [`Window::leave`] would write. Call it before a change of that is shown.
    fn tell_guard(&mut self) {
        if !self.is_raw {
            return self.guard.tell(None);
        }
        let own = if self.is_own { END_OWN } else { &[] };
        self.guard.tell(Some(&[own, &self.filter.restore()].concat()));
    }

    /// Restores the terminal and suspends this program until it is continued.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.leave();
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
        Ok(())
    }

    /// Returns the output of a program without everything that could change more than the screen. Empty while the terminal
    /// is restored: the next screen is drawn completely.
    pub(crate) fn filtered(&mut self, bytes: &[u8]) -> Vec<u8> {
        if !self.is_raw {
            return Vec::new();
        }

        let mut shown = self.end_own();
        let output = self.filter.feed(bytes);
        self.picture.resize(size_of_window());
        // The worker answers queries.
        self.picture.feed(&output);
        shown.extend(output);
        self.tell_guard();
        shown
    }

    /// Returns a drawing for the client's own screen, which undoes what the program has changed. Empty while the terminal is
    /// restored.
    pub(super) fn own(&mut self, drawing: Vec<u8>) -> Vec<u8> {
        if !self.is_raw {
            return Vec::new();
        }
        if std::mem::replace(&mut self.is_own, true) {
            return drawing;
        }

        let mut shown = self.filter.restore();
        self.filter = filter(self.clipboard, &self.title_prefix);
        self.tell_guard();
        shown.extend_from_slice(BEGIN_OWN);
        shown.extend(drawing);
        shown
    }

    /// Returns the sequences that end the client's own screen, if it is shown.
    fn end_own(&mut self) -> Vec<u8> {
        if std::mem::take(&mut self.is_own) { END_OWN.to_vec() } else { Vec::new() }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.leave();
    }
}

fn size_of_window() -> TerminalSize {
    window_size().map_or(TerminalSize::DEFAULT, |size| TerminalSize::new(size.cols, size.rows))
}

/// Checks that stdin and stdout are terminals and that no JSON is requested.
///
/// # Errors
/// A usage error with another way to the same end.
pub(crate) fn require_terminal(
    verb: &str,
    otherwise: &str,
    output: CliOutput,
) -> Result<(), CliError> {
    if !output.is_json() && io::stdin().is_terminal() && io::stdout().is_terminal() {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "quack {verb} needs a terminal on stdin and stdout, and has no --json; {otherwise}"
    )))
}

/// Returns the size of the window. `None` if stdin is no terminal, or one without a size.
pub(crate) fn window_size() -> Option<CellSize> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    let size = CellSize { cols: size.ws_col, rows: size.ws_row };
    (size.cols != 0 && size.rows != 0).then_some(size)
}

fn filter(clipboard: ClipboardChoice, title_prefix: &str) -> Filter {
    let clipboard = match clipboard {
        ClipboardChoice::Off => ClipboardRule::Off,
        ClipboardChoice::Write => ClipboardRule::Write,
    };
    Filter::new(FilterOptions { clipboard, title_prefix: title_prefix.to_owned() })
}

/// Makes a panic restore the terminal first, so that its message can be read.
fn restore_before_panic(modes: Termios) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        write_within_blocking(BEFORE_PANIC, RESTORE_WAIT);
        tcsetattr(io::stdin(), OptionalActions::Now, &modes).ok();
        before(info);
    }));
}
