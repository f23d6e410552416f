//! Controls the terminal of `quack top`.
//!
//! Owns the alternate screen and the raw mode. Both are undone on drop, before a panic message, and while the program
//! is suspended or another view uses the terminal.

use crate::keyboard::gone;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use rustix::process::Signal;
use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

/// Terminal in full-screen mode.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<FallibleStdout>>,
    /// Whether stdout failed, shared with [`FallibleStdout`].
    is_gone: Rc<Cell<bool>>,
    is_up: bool,
}

/// Stdout that discards output after the first failed write. The library prints an error if it cannot show the cursor
/// on drop, which panics if the terminal is gone.
#[derive(Debug)]
struct FallibleStdout(Rc<Cell<bool>>);

impl FallibleStdout {
    fn unless_gone<T>(&self, done: io::Result<T>, otherwise: T) -> io::Result<T> {
        match done {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.0.set(true);
                Ok(otherwise)
            }
            done => done,
        }
    }
}

impl Write for FallibleStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.get() {
            return Ok(bytes.len());
        }
        self.unless_gone(io::stdout().write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.0.get() {
            return Ok(());
        }
        self.unless_gone(io::stdout().flush(), ())
    }
}

impl Screen {
    /// Creates the screen and takes over the terminal.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        // The message of a panic must be readable, so the terminal is restored before it.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));

        let is_gone = Rc::<Cell<bool>>::default();
        let terminal = Terminal::new(CrosstermBackend::new(FallibleStdout(Rc::clone(&is_gone))))?;
        let mut screen = Self { terminal, is_gone, is_up: false };
        screen.up()?;
        Ok(screen)
    }

    /// Takes over the terminal, whatever it displays.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) fn up(&mut self) -> io::Result<()> {
        // Set before the calls, so that a partial failure is undone too.
        self.is_up = true;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        // A new instance assumes an empty screen and draws everything.
        self.terminal =
            Terminal::new(CrosstermBackend::new(FallibleStdout(Rc::clone(&self.is_gone))))?;
        let area = self.terminal.size()?.into();
        self.terminal.resize(area)
    }

    /// Restores the terminal.
    pub(super) fn down(&mut self) {
        if std::mem::take(&mut self.is_up) {
            give_back();
        }
    }

    /// Draws on the terminal in its current size.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw)?;
        // The failed write itself was hidden from the library.
        if self.is_gone.get() { Err(gone()) } else { Ok(()) }
    }

    /// Restores the terminal and suspends this program until it is continued. With `group`, suspends its process group,
    /// as Ctrl-Z would.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) fn stop(&mut self, group: bool) -> io::Result<()> {
        self.down();
        if group {
            rustix::process::kill_current_process_group(Signal::STOP)?;
        } else {
            rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
        }
        self.up()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.down();
    }
}

/// Restores the terminal.
fn give_back() {
    // A failure cannot be reported, and must not prevent the second step.
    execute!(io::stdout(), LeaveAlternateScreen, Show).ok();
    disable_raw_mode().ok();
}
