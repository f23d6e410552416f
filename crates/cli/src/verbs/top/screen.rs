//! The terminal of `quack top`: taken over, given back whatever happens, and what is typed there.
//!
//! Owns: the alternate screen and the raw mode. Both are undone when this is dropped, before a panic's text is
//! printed, and while the program is stopped or another view has the terminal.

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

/// How long one look for a key lasts: what waits for the keyboard to be free waits so long.
const LOOK: Duration = Duration::from_millis(100);

/// The full screen.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Out>>,
    /// See [`Out`].
    is_gone: Rc<Cell<bool>>,
    is_up: bool,
}

/// Stdout, or nowhere once it cannot be written to any more. The library prints a complaint when it cannot show the
/// cursor at its end, and where the terminal is gone, that is a panic.
#[derive(Debug)]
struct Out(Rc<Cell<bool>>);

impl Out {
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

impl Write for Out {
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
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) fn enter() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
        let is_gone = Rc::<Cell<bool>>::default();
        let terminal = Terminal::new(CrosstermBackend::new(Out(Rc::clone(&is_gone))))?;
        let mut screen = Self { terminal, is_gone, is_up: false };
        screen.up()?;
        Ok(screen)
    }

    /// Takes it (again), whatever was shown there meanwhile.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) fn up(&mut self) -> io::Result<()> {
        // From here on there is something to undo, also if not all of it can be done.
        self.is_up = true;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        // One that believes that nothing is shown: everything is drawn.
        self.terminal = Terminal::new(CrosstermBackend::new(Out(Rc::clone(&self.is_gone))))?;
        let area = self.terminal.size()?.into();
        self.terminal.resize(area)
    }

    /// Gives it back.
    pub(super) fn down(&mut self) {
        if std::mem::take(&mut self.is_up) {
            give_back();
        }
    }

    /// Draws on the terminal, as large as it is by now.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw)?;
        if self.is_gone.get() { Err(gone()) } else { Ok(()) }
    }

    /// Gives the terminal back and stops this program until somebody continues it; with `group` those too that
    /// were started with it, as Ctrl-Z would.
    ///
    /// # Errors
    /// The terminal's.
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

/// The terminal as it was. What cannot be undone stays: there is nobody to tell.
fn give_back() {
    drop(execute!(io::stdout(), LeaveAlternateScreen, Show));
    drop(disable_raw_mode());
}

/// Lines are printed as ever, and each key is told at once and not shown; undone when this is dropped.
#[derive(Debug)]
pub(super) struct KeyByKey(Termios);

impl KeyByKey {
    /// Changes the terminal that is the standard input.
    ///
    /// # Errors
    /// The terminal's.
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

impl Drop for KeyByKey {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.0).ok();
    }
}

/// What a person types.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The look that is under way, on a thread of its own.
    look: Option<JoinHandle<io::Result<Option<Event>>>>,
}

impl Keys {
    /// The next key, or another size of the terminal. Cancel-safe.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) async fn next(&mut self) -> io::Result<Event> {
        loop {
            if let Some(event) = self.finish().await? {
                return Ok(event);
            }
            self.look = Some(tokio::task::spawn_blocking(look_blocking));
        }
    }

    /// Waits until nothing reads the keyboard. What was typed meanwhile is lost.
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
    // What was read with the key before, too.
    for limit in [Duration::ZERO, LOOK] {
        wait_blocking(limit)?;
        if event::poll(Duration::ZERO)? {
            return event::read().map(Some);
        }
    }
    Ok(None)
}

/// Waits until there is something to read. A terminal that is gone is an error here: the library would read its
/// end again and again.
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

/// Whether this is what becomes of a terminal that is gone: there is nobody to tell, and nothing to give back.
pub(super) fn is_gone(error: &anyhow::Error) -> bool {
    let is_of_it = |error: &io::Error| {
        error.kind() == io::ErrorKind::BrokenPipe
            || Errno::from_io_error(error)
                .is_some_and(|errno| matches!(errno, Errno::IO | Errno::NXIO))
    };
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_of_it)
}

/// What the system wants of a program that has the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// To end.
    End,
    /// To stop for a while.
    Stop,
    /// It was stopped, and goes on.
    Continued,
}

/// The signals that tell it. From its making on they do nothing by themselves.
#[derive(Debug)]
pub(super) struct Ears {
    end: [Signals; 3],
    stop: Signals,
    continued: Signals,
}

impl Ears {
    /// Listens.
    ///
    /// # Errors
    /// The system's.
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

    /// What is told next. Cancel-safe.
    pub(super) async fn next(&mut self) -> Told {
        let [interrupt, term, hangup] = &mut self.end;
        tokio::select! {
            _ = interrupt.recv() => Told::End,
            _ = term.recv() => Told::End,
            _ = hangup.recv() => Told::End,
            _ = self.stop.recv() => Told::Stop,
            _ = self.continued.recv() => Told::Continued,
        }
    }
}
