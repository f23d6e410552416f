//! Input of a running command: pieces that another process sends, written to the command's stdin
//! one after the other. The next piece is requested when the pipe has taken the one before, so that
//! nothing piles up.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// Input of one command. Clones share it.
#[derive(Debug, Clone)]
pub struct CommandInput(watch::Sender<Exchange>);

/// Requests and pieces between the two ends.
#[derive(Debug, Default)]
struct Exchange {
    /// Number of requested pieces.
    n_wanted: u64,
    /// The requested piece, until the command's side takes it. True: it is the last one.
    piece: Option<(Vec<u8>, bool)>,
    /// Whether a piece was requested and not given.
    is_wanted: bool,
    is_closed: bool,
}

/// State of the command's stdin for the end that has the pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The next piece. The number counts the requests from 1.
    Piece(u64),
    /// None: the command has closed its stdin or has ended.
    Nothing,
}

impl Default for CommandInput {
    fn default() -> Self {
        Self(watch::Sender::new(Exchange::default()))
    }
}

impl CommandInput {
    /// Waits for a request after `last`, the number of the last one, or for the end. Cancel-safe.
    pub async fn wanted(&self, last: u64) -> Wanted {
        let mut exchange = self.0.subscribe();
        let changed = exchange.wait_for(|state| state.is_closed || last < state.n_wanted).await;
        match changed {
            Ok(exchange) if !exchange.is_closed => Wanted::Piece(exchange.n_wanted),
            _ => Wanted::Nothing,
        }
    }

    /// Gives the requested piece. `is_last`: the end of the input follows it. Without a request it is dropped.
    pub fn give(&self, bytes: Vec<u8>, is_last: bool) {
        self.0.send_if_modified(|exchange| {
            let is_taken = exchange.is_wanted;
            if is_taken {
                (exchange.is_wanted, exchange.piece) = (false, Some((bytes, is_last)));
            }
            is_taken
        });
    }

    /// Ends it: no further piece is requested.
    pub(crate) fn close(&self) {
        self.0.send_modify(|exchange| exchange.is_closed = true);
    }

    /// Requests a piece and waits for it. Cancel-safe: a request that was made stays.
    async fn next(&self) -> (Vec<u8>, bool) {
        self.0.send_if_modified(|exchange| {
            // A request that was made by a canceled call is still open.
            let is_new = !exchange.is_wanted && exchange.piece.is_none();
            exchange.is_wanted |= is_new;
            exchange.n_wanted += u64::from(is_new);
            is_new
        });

        // `wait_for` cannot fail: `self` is the sender.
        self.0.subscribe().wait_for(|exchange| exchange.piece.is_some()).await.ok();

        let mut piece = None;
        self.0.send_if_modified(|exchange| {
            piece = exchange.piece.take();
            // The end with the pieces waits for a request, not for this.
            false
        });
        piece.unwrap_or_default()
    }
}

/// Writes an input to a pipe. Dropping it closes the pipe.
#[derive(Debug)]
pub(crate) struct InputWriter {
    pipe: Option<pipe::Sender>,
    input: CommandInput,
    bytes: Vec<u8>,
    n_written: usize,
    is_last: bool,
}

impl InputWriter {
    pub(crate) fn new(pipe: OwnedFd, input: CommandInput) -> io::Result<Self> {
        let pipe = Some(pipe::Sender::from_owned_fd(pipe)?);
        Ok(Self { pipe, input, bytes: Vec::new(), n_written: 0, is_last: false })
    }

    /// Returns whether the pipe is open. It closes at the end of the input, or when no process can
    /// read it.
    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Makes one step: gets a piece, or writes a part of it. Closes the pipe after the last one, and when no process can
    /// read it any longer. Cancel-safe.
    pub(crate) async fn pump(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        if self.n_written == self.bytes.len() {
            if self.is_last {
                return self.close();
            }
            let (bytes, is_last) = self.input.next().await;
            (self.bytes, self.n_written, self.is_last) = (bytes, 0, is_last);
            return;
        }

        let left = self.bytes.get(self.n_written..).unwrap_or_default();
        match pipe.write(left).await {
            Ok(n) if n != 0 => self.n_written += n,
            // No process can read the pipe any longer.
            _ => self.close(),
        }
    }

    fn close(&mut self) {
        self.pipe = None;
        self.input.close();
    }
}

impl Drop for InputWriter {
    fn drop(&mut self) {
        self.input.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[tokio::test]
    async fn each_piece_is_requested_after_the_one_before_and_the_last_one_closes_the_pipe() {
        let (mut reader, writer) = io::pipe().unwrap();
        let input = CommandInput::default();
        let mut pipe = InputWriter::new(writer.into(), input.clone()).unwrap();
        input.give(b"unasked".to_vec(), false);
        let giving = async {
            assert_eq!(input.wanted(0).await, Wanted::Piece(1));
            input.give(b"one ".to_vec(), false);
            assert_eq!(input.wanted(1).await, Wanted::Piece(2));
            input.give(b"two".to_vec(), true);
            assert_eq!(input.wanted(2).await, Wanted::Nothing);
        };
        let writing = async {
            while pipe.is_open() {
                pipe.pump().await;
            }
        };
        tokio::join!(giving, writing);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two");
    }

    #[tokio::test]
    async fn a_pipe_without_a_reader_ends_the_input() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let input = CommandInput::default();
        let mut pipe = InputWriter::new(writer.into(), input.clone()).unwrap();
        let giving = async {
            assert_eq!(input.wanted(0).await, Wanted::Piece(1));
            input.give(b"x".to_vec(), false);
            assert_eq!(input.wanted(1).await, Wanted::Nothing);
        };
        let writing = async {
            while pipe.is_open() {
                pipe.pump().await;
            }
        };
        tokio::join!(giving, writing);
    }
}
