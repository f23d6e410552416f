//! Reads lines typed on stdin. Used by [`super::asking`].
//!
//! The terminal keeps its own line editing and Ctrl-C. A separate thread reads, because a blocking read cannot be
//! canceled. The thread ends with the process.

use rustix::termios::{QueueSelector, tcflush};
use std::io::{self, BufRead, Read};
use std::time::Instant;
use tokio::sync::mpsc;

/// Maximum length of a line, in bytes. A terminal returns at most 4 KiB at once.
const MAX_LINE: u64 = 64 * 1024;

/// Capacity of the queue of lines. The thread blocks while it is full.
const WAITING: usize = 16;

/// Number of consecutive ends of input after which reading stops.
const MAX_ENDS: u32 = 3;

/// Typed input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StdinLine {
    /// A line, without its end.
    Line(String),
    /// Ctrl-D on an empty line.
    End,
}

/// Typed input with its time.
#[derive(Debug, Clone)]
pub(crate) struct TypedLine {
    pub(crate) line: StdinLine,
    /// When Return was pressed, or at most the time of the read after it.
    pub(crate) at: Instant,
}

/// Starts the reading thread. The channel closes when the terminal is gone.
pub(crate) fn read() -> mpsc::Receiver<TypedLine> {
    let (sender, typed) = mpsc::channel(WAITING);
    let reading = std::thread::Builder::new().name("typed".to_owned());

    let reads = move || {
        let mut ends = 0;
        while ends < MAX_ENDS {
            let mut line = Vec::new();
            let typed = match io::stdin().lock().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) => StdinLine::End,
                Ok(_) => StdinLine::Line(String::from_utf8_lossy(&line).trim_end().to_owned()),
                Err(_) => return,
            };

            // Ctrl-D is an end too, so only several in a row mean that the terminal is gone.
            ends = if typed == StdinLine::End { ends + 1 } else { 0 };
            let typed = TypedLine { line: typed, at: Instant::now() };
            if sender.blocking_send(typed).is_err() {
                return;
            }
        }
    };

    // Without a thread, only typing does not work.
    reading.spawn(reads).ok();
    typed
}

/// Discards typed but unread input. It was typed before the question appeared, so it does not answer it.
pub(crate) fn forget() {
    // A terminal that is gone has no input.
    tcflush(io::stdin(), QueueSelector::IFlush).ok();
}
