//! Reads the keys of a terminal one by one. Used by `quack top` and the prompt of `quack`.

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Duration of one poll of the keyboard, and so the longest wait until the keyboard is free.
const LOOK: Duration = Duration::from_millis(100);

/// Time in which the library looks for input that has arrived. It does not look at all without a time.
const AT_ONCE: Duration = Duration::from_millis(1);
const BRIEFLY: Duration = Duration::from_micros(50);

/// Most events that are read at once.
const MAX_BATCH: usize = 4096;

/// Cbreak mode: line output works as usual, and keys are read one by one without echo. Undone on drop.
#[derive(Debug)]
pub(crate) struct CbreakGuard(Termios);

impl CbreakGuard {
    /// Changes the terminal on stdin.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(crate) fn begin() -> io::Result<Self> {
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

/// A key, a paste or a new size of the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimedEvent {
    pub(crate) event: Event,
    /// When it was read.
    pub(crate) at: Instant,
    /// Whether the terminal had sent more by then. No user types that fast.
    pub(crate) has_more: bool,
}

/// Keyboard input.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Events that were read and not returned yet.
    ready: VecDeque<TimedEvent>,
    /// Running poll on a separate thread.
    look: Option<JoinHandle<io::Result<Vec<Event>>>>,
}

impl Keys {
    /// Waits for the next key or a new size of the terminal. Cancel-safe.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(crate) async fn next(&mut self) -> io::Result<TimedEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            self.finish().await?;
            if self.ready.is_empty() {
                self.look = Some(tokio::task::spawn_blocking(look_blocking));
            }
        }
    }

    /// Returns the next event if it was read already.
    pub(crate) fn try_next(&mut self) -> Option<TimedEvent> {
        self.ready.pop_front()
    }

    /// Waits until no thread reads the keyboard. Keys typed during the wait are lost.
    pub(crate) async fn rest(&mut self) {
        drop(self.finish().await);
        self.ready.clear();
    }

    async fn finish(&mut self) -> io::Result<()> {
        let Some(look) = &mut self.look else { return Ok(()) };
        let seen = look.await;
        self.look = None;
        let events = seen.map_err(io::Error::other)??;
        let (at, count) = (Instant::now(), events.len());
        self.ready.extend(events.into_iter().enumerate().map(|(n, event)| TimedEvent {
            event,
            at,
            has_more: n + 1 < count,
        }));
        Ok(())
    }
}

/// Returns the events that the terminal has sent, after the first of them. Without one in time, returns none.
fn look_blocking() -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    // The library counts its time in a busy loop. Without input, only a new size of the terminal can have arrived.
    let mut limit = if wait_blocking(LOOK)? { AT_ONCE } else { BRIEFLY };
    while events.len() < MAX_BATCH && event::poll(limit)? {
        events.push(event::read()?);
        limit = AT_ONCE;
    }
    Ok(events)
}

/// Waits for input, and returns whether there is some. A closed terminal is an error here, because the library would
/// read its end forever.
fn wait_blocking(limit: Duration) -> io::Result<bool> {
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
        false => Ok(watched.iter().any(|fd| fd.revents().contains(PollFlags::IN))),
    }
}

/// Returns the error of a terminal that was closed.
pub(crate) fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the terminal is gone")
}

/// Whether the terminal on stdin was closed. Does not wait.
pub(crate) fn is_terminal_closed() -> bool {
    wait_blocking(Duration::ZERO).is_err()
}

/// Whether the error means that the terminal was closed, so that nothing must be reported or restored.
pub(crate) fn is_gone(error: &anyhow::Error) -> bool {
    let is_of_it = |error: &io::Error| {
        error.kind() == io::ErrorKind::BrokenPipe
            || Errno::from_io_error(error)
                .is_some_and(|errno| matches!(errno, Errno::IO | Errno::NXIO))
    };
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_of_it)
}
