//! Reads the keys of a terminal one by one. Used by `quack top` and the prompt of `quack`.

mod parser;

use self::parser::InputParser;
use crossterm::event::Event;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Duration of one poll of the keyboard, and so the longest wait until the keyboard is free.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum pause within input that arrives at once.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Limit of one batch of events and of bytes, so that a paste cannot occupy the process.
const MAX_BATCH: usize = 4096;
const MAX_BYTES: usize = 256 * 1024;

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

        // Without ISIG, Ctrl-C is a key too.
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        // A read returns with the first byte. The timeout is that of the poll before it.
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
    look: Option<JoinHandle<(Reader, io::Result<Vec<Event>>)>>,
    /// Reader of the next poll.
    reader: Reader,
}

/// State that a poll leaves for the next one.
#[derive(Debug, Default)]
struct Reader {
    parser: InputParser,
    /// Rows and columns of the terminal.
    size: Option<(u16, u16)>,
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
                let mut reader = std::mem::take(&mut self.reader);
                self.look = Some(tokio::task::spawn_blocking(move || {
                    let seen = reader.look_blocking();
                    (reader, seen)
                }));
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
        self.reader = Reader::default();
    }

    async fn finish(&mut self) -> io::Result<()> {
        let Some(look) = &mut self.look else { return Ok(()) };

        let seen = look.await;
        // Reset before the error is returned: a task that has ended must not be polled again.
        self.look = None;
        let (reader, events) = seen.map_err(io::Error::other)?;
        self.reader = reader;
        let events = events?;

        let (at, count) = (Instant::now(), events.len());
        self.ready.extend(events.into_iter().enumerate().map(|(n, event)| TimedEvent {
            event,
            at,
            has_more: n + 1 < count,
        }));
        Ok(())
    }
}

impl Reader {
    /// Returns the events that the terminal has sent, after the first of them. Without one in time, returns none.
    fn look_blocking(&mut self) -> io::Result<Vec<Event>> {
        let (mut events, mut n_bytes) = (Vec::new(), 0);
        let mut limit = LOOK;
        // When an unfinished sequence began.
        let mut unfinished: Option<Instant> = None;

        while events.len() < MAX_BATCH && n_bytes < MAX_BYTES {
            if wait_blocking(limit)? {
                let mut buffer = [0; 4096];
                let len = match rustix::io::read(io::stdin(), &mut buffer) {
                    Ok(0) => return Err(gone()),
                    Ok(len) => len,
                    Err(Errno::INTR | Errno::AGAIN) => 0,
                    Err(error) => return Err(error.into()),
                };
                n_bytes += len;
                self.parser.feed(buffer.get(..len).unwrap_or_default(), &mut events);
                // A paste arrives in several reads, and becomes one batch.
                limit = AT_ONCE;
            } else if let Some(longest) = self.parser.waits() {
                let passed = unfinished.get_or_insert_with(Instant::now).elapsed();
                limit = longest.saturating_sub(passed);
                if limit.is_zero() {
                    self.parser.give_up(&mut events);
                }
            } else {
                break;
            }

            if self.parser.waits().is_none() {
                unfinished = None;
            }
        }

        // The window may change without a key, so each poll compares its size.
        let size = tcgetwinsize(io::stdin()).ok().map(|size| (size.ws_row, size.ws_col));
        if let (Some(before), Some((rows, columns))) = (self.size, size)
            && before != (rows, columns)
        {
            events.push(Event::Resize(columns, rows));
        }

        self.size = size.or(self.size);
        Ok(events)
    }
}

/// Waits for input, and returns whether there is some. A closed terminal is an error here, because the library would
/// read its end forever.
fn wait_blocking(limit: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut watched = [PollFd::new(&stdin, PollFlags::IN)];

    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    // An interrupted wait counts as no input; the caller waits again.
    match poll(&mut watched, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }

    let end = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    if watched.iter().any(|fd| fd.revents().intersects(end)) {
        Err(gone())
    } else {
        Ok(watched.iter().any(|fd| fd.revents().contains(PollFlags::IN)))
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
