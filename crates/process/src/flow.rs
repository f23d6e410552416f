//! Complete output of a running command for one reader, in the order in which it was read. Filled
//! by [`crate::output`], and by searches with their rows. Unlike [`crate::Live`] it loses nothing:
//! while the command runs and the reader is behind, the pipes are not read, so the command waits as
//! in a shell pipeline.

use std::collections::VecDeque;
use tokio::sync::watch;

/// Number of waiting bytes above which the pipes are not read.
const HIGH_BYTES: usize = 128 * 1024;

/// Maximum number of waiting bytes. After the end of a command, its pipes are read without waiting for the reader,
/// and two pipes hold at most 2 MiB.
const MAX_BYTES: usize = 5 * 512 * 1024;

/// Maximum number of bytes of one piece. A reader usually takes whole pieces.
const PIECE_BYTES: usize = 32 * 1024;

/// Overhead counted for each piece. Two alternating streams make many small pieces.
const PIECE_COST: usize = 64;

/// An output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamName {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
    /// Rows of a search. No process writes them.
    Rows,
}

/// Bytes of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowPiece {
    /// Source of the bytes.
    pub stream: StreamName,
    /// At least one byte.
    pub bytes: Vec<u8>,
}

/// Both streams of one command. Clones share one buffer.
#[derive(Debug, Clone)]
pub struct Flow(watch::Sender<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    pieces: VecDeque<FlowPiece>,
    /// Bytes in `pieces`, with [`PIECE_COST`] for each.
    cost: usize,
}

impl Default for Flow {
    fn default() -> Self {
        Self(watch::Sender::new(Waiting::default()))
    }
}

impl Flow {
    /// Waits until there is output to take. Cancel-safe.
    pub async fn changed(&self) {
        // `wait_for` cannot fail: `self` is the sender.
        self.0.subscribe().wait_for(|waiting| !waiting.pieces.is_empty()).await.ok();
    }

    /// Takes the oldest bytes of one stream, at most `max`.
    #[must_use]
    pub fn take(&self, max: usize) -> Option<FlowPiece> {
        let mut taken = None;
        self.0.send_if_modified(|waiting| {
            let had_room = waiting.has_room();
            taken = waiting.take(max);
            // Only the reading side waits for room, so other changes need no notification.
            !had_room && waiting.has_room()
        });
        taken
    }

    /// Waits until there is a whole piece to take. Cancel-safe.
    pub async fn gathered(&self) {
        // Cannot fail, as above.
        self.0.subscribe().wait_for(Waiting::has_piece).await.ok();
    }

    /// Returns whether the reader has caught up.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.borrow().has_room()
    }

    /// Waits until the reader has caught up. Cancel-safe.
    pub async fn room(&self) {
        // Cannot fail, as above.
        self.0.subscribe().wait_for(Waiting::has_room).await.ok();
    }

    /// Adds a chunk, and drops the part that does not fit. That can only happen after the end of the command, if
    /// processes that it left behind print without end.
    pub fn push(&self, stream: StreamName, chunk: &[u8]) {
        // A reader waits for the first bytes or for a whole piece. Searches push thousands of small chunks, and each
        // wake costs more than its chunk.
        self.0.send_if_modified(|waiting| {
            let before = (waiting.pieces.is_empty(), waiting.has_piece());
            waiting.push(stream, chunk);
            before != (waiting.pieces.is_empty(), waiting.has_piece())
        });
    }
}

impl Waiting {
    fn has_room(&self) -> bool {
        self.cost < HIGH_BYTES
    }

    fn has_piece(&self) -> bool {
        PIECE_BYTES <= self.cost
    }

    fn take(&mut self, max: usize) -> Option<FlowPiece> {
        let mut piece = self.pieces.pop_front()?;
        if max < piece.bytes.len() {
            // The rest stays the first piece.
            let bytes = piece.bytes.split_off(max);
            self.pieces.push_front(FlowPiece { stream: piece.stream, bytes });
        } else {
            self.cost -= PIECE_COST;
        }
        self.cost -= piece.bytes.len();
        Some(piece)
    }

    fn push(&mut self, stream: StreamName, chunk: &[u8]) {
        let room = MAX_BYTES.saturating_sub(self.cost + PIECE_COST);
        let chunk = chunk.get(..room).unwrap_or(chunk);
        if chunk.is_empty() {
            return;
        }

        self.cost += chunk.len();
        let mut left = chunk;
        // A program that prints byte by byte must not cost an allocation for each.
        if let Some(last) = self.pieces.back_mut().filter(|last| last.stream == stream) {
            let room = PIECE_BYTES.saturating_sub(last.bytes.len()).min(left.len());
            let (head, rest) = left.split_at(room);
            last.bytes.extend_from_slice(head);
            left = rest;
        }

        for bytes in left.chunks(PIECE_BYTES) {
            self.cost += PIECE_COST;
            self.pieces.push_back(FlowPiece { stream, bytes: bytes.to_vec() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn piece(stream: StreamName, bytes: &[u8]) -> Option<FlowPiece> {
        Some(FlowPiece { stream, bytes: bytes.into() })
    }

    #[test]
    fn bytes_come_out_in_order_by_stream_and_in_pieces() {
        let flow = Flow::default();
        flow.push(StreamName::Stdout, b"one");
        flow.push(StreamName::Stdout, b" two");
        flow.push(StreamName::Stderr, b"oh");
        flow.push(StreamName::Stdout, b"");
        assert_eq!(flow.take(5), piece(StreamName::Stdout, b"one t"));
        assert_eq!(flow.take(5), piece(StreamName::Stdout, b"wo"));
        assert_eq!(flow.take(5), piece(StreamName::Stderr, b"oh"));
        assert_eq!(flow.take(5), None);
    }

    #[tokio::test]
    async fn a_reader_that_is_behind_makes_the_pipes_wait_and_memory_stays_bounded() {
        let flow = Flow::default();
        flow.room().await;
        flow.push(StreamName::Stdout, &vec![b'x'; HIGH_BYTES]);
        assert!(timeout(Duration::from_millis(20), flow.room()).await.is_err());
        drop(flow.take(usize::MAX));
        flow.room().await;
        let chunk = vec![b'x'; 64 * 1024];
        (0..1000).for_each(|_| flow.push(StreamName::Stdout, &chunk));
        let mut total = 0;
        while let Some(piece) = flow.take(usize::MAX) {
            total += piece.bytes.len();
        }
        assert!((MAX_BYTES - HIGH_BYTES..MAX_BYTES).contains(&total), "{total}");
        flow.room().await;
    }

    #[tokio::test]
    async fn a_reader_is_woken_by_the_first_byte() {
        let flow = Flow::default();
        let reader = flow.clone();
        let woken = tokio::spawn(async move {
            reader.changed().await;
            reader.take(9)
        });
        tokio::task::yield_now().await;
        flow.push(StreamName::Stderr, b"x");
        assert_eq!(woken.await.unwrap(), piece(StreamName::Stderr, b"x"));
    }
}
