//! Controls the terminal of `quack top`: screen, keyboard and signals.
//!
//! Owns the alternate screen and the raw mode. Both are undone on drop, before a panic message, and while the program
//! is suspended or another view uses the terminal.

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::task::JoinHandle;

/// Duration of one poll of the keyboard, and so the longest wait until the keyboard is free.
const LOOK: Duration = Duration::from_millis(100);

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

/// Restores the terminal. A failure cannot be reported.
fn give_back() {
    drop(execute!(io::stdout(), LeaveAlternateScreen, Show));
    drop(disable_raw_mode());
}

/// Cbreak mode: line output works as usual, and keys are read one by one without echo. Undone on drop.
#[derive(Debug)]
pub(super) struct CbreakGuard(Termios);

impl CbreakGuard {
    /// Changes the terminal on stdin.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        Ok(Self(before))
    }
}

impl Drop for CbreakGuard {
    fn drop(&mut self) {
        // A closed terminal needs no reset.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.0).ok();
    }
}

/// Keyboard input.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Running poll on a separate thread.
    look: Option<JoinHandle<io::Result<Option<Event>>>>,
}

impl Keys {
    /// Waits for the next key or a new size of the terminal. Cancel-safe.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) async fn next(&mut self) -> io::Result<Event> {
        loop {
            if let Some(event) = self.finish().await? {
                return Ok(event);
            }
            self.look = Some(tokio::task::spawn_blocking(look_blocking));
        }
    }

    /// Waits until no thread reads the keyboard. Keys typed during the wait are lost.
    pub(super) async fn rest(&mut self) {
        drop(self.finish().await);
    }

    async fn finish(&mut self) -> io::Result<Option<Event>> {
        let Some(look) = &mut self.look else { return Ok(None) };
        let seen = look.await;
        self.look = None;
        seen.map_err(io::Error::other)?
    }
}

fn look_blocking() -> io::Result<Option<Event>> {
    // The first pass returns an event that the library has read together with the previous key.
    for limit in [Duration::ZERO, LOOK] {
        wait_blocking(limit)?;
        if event::poll(Duration::ZERO)? {
            return event::read().map(Some);
        }
    }
    Ok(None)
}

/// Waits for input. A closed terminal is an error here, because the library would read its end forever.
fn wait_blocking(limit: Duration) -> io::Result<()> {
    let stdin = io::stdin();
    let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    match poll(&mut watched, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let end = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match watched.iter().any(|fd| fd.revents().intersects(end)) {
        true => Err(gone()),
        false => Ok(()),
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the terminal is gone")
}

/// Whether the terminal on stdin was closed. Does not wait.
pub(super) fn is_terminal_closed() -> bool {
    wait_blocking(Duration::ZERO).is_err()
}

/// Whether the error means that the terminal was closed, so that nothing must be reported or restored.
pub(super) fn is_gone(error: &anyhow::Error) -> bool {
    let is_of_it = |error: &io::Error| {
        error.kind() == io::ErrorKind::BrokenPipe
            || Errno::from_io_error(error)
                .is_some_and(|errno| matches!(errno, Errno::IO | Errno::NXIO))
    };
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_of_it)
}

/// Signal that affects a full-screen program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalSignal {
    /// The program must exit.
    End,
    /// The program must suspend.
    Stop,
    /// The program was continued.
    Continued,
}

/// Receiver of these signals. While it exists, they have no default effect.
#[derive(Debug)]
pub(super) struct SignalListener {
    end: [Signals; 3],
    stop: Signals,
    continued: Signals,
}

impl SignalListener {
    /// Starts to receive the signals.
    ///
    /// # Errors
    /// If a signal handler cannot be installed.
    pub(super) fn open() -> io::Result<Self> {
        let [interrupt, term, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        let other = |which: Signal| signal(SignalKind::from_raw(which.as_raw()));
        Ok(Self {
            end: [interrupt?, term?, hangup?],
            stop: other(Signal::TSTP)?,
            continued: other(Signal::CONT)?,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> TerminalSignal {
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
