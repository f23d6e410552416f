//! The lines that a program prints, with a deadline for each.

use crate::wait::PATIENCE;
use std::io::{BufRead as _, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Lines of a pipe, which a thread reads as they arrive.
#[derive(Debug)]
pub struct LineReader(Receiver<String>);

impl LineReader {
    /// Begins to read.
    pub fn new(pipe: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The next line. Fails the test if there is none within [`PATIENCE`].
    #[track_caller]
    pub fn line(&self) -> String {
        self.next_line().expect("a line before the end of the output")
    }

    /// The next line; `None` at the end of the output. Fails the test if there is neither within [`PATIENCE`].
    #[track_caller]
    pub fn next_line(&self) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("neither a line nor the end in time"),
        }
    }

    /// The next line, if it arrives within `time`.
    pub fn line_within(&self, time: Duration) -> Option<String> {
        self.0.recv_timeout(time).ok()
    }
}
