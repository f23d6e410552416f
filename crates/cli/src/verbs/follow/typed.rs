//! What a person types, line by line. Used by [`super::live`].
//!
//! The terminal stays as it is: its own line editing, its own Ctrl-C. A thread reads, because a read from a
//! terminal cannot be taken back; it ends with the process.

use rustix::termios::{QueueSelector, tcflush};
use std::io::{self, BufRead, Read};
use tokio::sync::mpsc;

/// Longest line that is taken, in bytes; a terminal gives at most 4 KiB at once.
const MAX_LINE: u64 = 64 * 1024;

/// Lines that wait to be taken. Who types faster waits.
const WAITING: usize = 16;

/// Ends of input in a row after which nobody types there any more.
const MAX_ENDS: u32 = 3;

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    /// A line, without its end.
    Line(String),
    /// Ctrl-D on an empty line.
    End,
}

/// Begins to read. Nothing more comes when the terminal is gone.
pub(super) fn read() -> mpsc::Receiver<Typed> {
    let (sender, typed) = mpsc::channel(WAITING);
    let reading = std::thread::Builder::new().name("typed".to_owned());
    // Without a thread nobody can type, and everything else goes on.
    let _unread = reading.spawn(move || {
        let mut ends = 0;
        while ends < MAX_ENDS {
            let mut line = Vec::new();
            let typed = match io::stdin().lock().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) => Typed::End,
                Ok(_) => Typed::Line(String::from_utf8_lossy(&line).trim_end().to_owned()),
                Err(_) => return,
            };
            ends = if typed == Typed::End { ends + 1 } else { 0 };
            if sender.blocking_send(typed).is_err() {
                return;
            }
        }
    });
    typed
}

/// Forgets what was typed and not read yet: it was typed before the question came, so it is no answer to it.
pub(super) fn forget() {
    // Not a terminal any more: then nobody answers.
    let _is_kept = tcflush(io::stdin(), QueueSelector::IFlush);
}
