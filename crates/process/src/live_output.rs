//! Output of a running command for a watcher. Filled by [`crate::output`]. The watcher takes the output when it is
//! ready, and the command never waits for it.

use quackd_protocol::limits::MAX_SHOWN_BYTES;
use tokio::sync::watch;

/// Maximum number of bytes kept for a watcher that is behind: the newest ones. A user reads no faster. Together with
/// up to 3 bytes of a character split by the previous piece, they fit into one update.
pub const LIVE_BYTES: usize = 8 * 1024;

const _: () = assert!(LIVE_BYTES + 3 <= MAX_SHOWN_BYTES, "the kept bytes fit into one update");

/// Both streams of one command, in the order in which they were read. Clones share one buffer of at most
/// [`LIVE_BYTES`], or as set by [`Live::with_room`].
#[derive(Debug, Clone)]
pub struct Live {
    piece: watch::Sender<Piece>,
    room: usize,
}

/// Output since the last read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    /// The newest bytes.
    pub bytes: Vec<u8>,
    /// Number of bytes before them that were dropped because they were not taken in time.
    pub omitted: u64,
    /// Total number of bytes that the command has printed.
    pub total: u64,
}

impl Default for Live {
    fn default() -> Self {
        Self::with_room(LIVE_BYTES)
    }
}

impl Live {
    /// Keeps up to `room` bytes for a watcher that is behind. With the capacity of a pipe, 64 KiB, a watcher that
    /// takes between any two reads of the command misses nothing.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        Self { piece: watch::Sender::new(Piece::default()), room }
    }

    /// Waits until there is output to take.
    pub async fn changed(&self) {
        // `wait_for` cannot fail: `self` is the sender.
        self.piece.subscribe().wait_for(|piece| !piece.bytes.is_empty()).await.ok();
    }

    /// Takes the output since the last call.
    #[must_use]
    pub fn take(&self) -> Piece {
        let mut taken = Piece::default();
        self.piece.send_if_modified(|piece| {
            taken = Piece {
                bytes: std::mem::take(&mut piece.bytes),
                omitted: std::mem::take(&mut piece.omitted),
                total: piece.total,
            };
            false
        });
        taken
    }

    pub(crate) fn push(&self, chunk: &[u8]) {
        if !chunk.is_empty() {
            self.piece.send_modify(|piece| piece.push(chunk, self.room));
        }
    }
}

impl Piece {
    fn push(&mut self, chunk: &[u8], room: usize) {
        let newest = chunk.get(chunk.len().saturating_sub(room)..).unwrap_or_default();
        let excess = (self.bytes.len() + newest.len()).saturating_sub(room);
        self.bytes.drain(..excess);
        self.bytes.extend_from_slice(newest);
        self.omitted = self.omitted.saturating_add(count(excess + chunk.len() - newest.len()));
        self.total = self.total.saturating_add(count(chunk.len()));
    }
}

fn count(n_bytes: usize) -> u64 {
    u64::try_from(n_bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bytes_are_kept_and_the_others_counted() {
        let live = Live::default();
        assert_eq!(live.take(), Piece::default());
        live.push(b"one ");
        live.push(b"two");
        assert_eq!(live.take(), Piece { bytes: b"one two".into(), omitted: 0, total: 7 });
        assert_eq!(live.take(), Piece { total: 7, ..Piece::default() });

        let long = vec![b'x'; LIVE_BYTES];
        live.push(b"lost");
        live.push(&long);
        live.push(b"end");
        let piece = live.take();
        assert_eq!((piece.bytes.len(), piece.omitted, piece.total), (LIVE_BYTES, 7, 8206));
        assert!(piece.bytes.ends_with(b"xend"));
        live.push(&[long, b"tail".into()].concat());
        let piece = live.take();
        assert_eq!((piece.bytes.len(), piece.omitted, piece.total), (LIVE_BYTES, 4, 16_402));
    }

    #[tokio::test]
    async fn a_watcher_is_woken_by_the_first_byte() {
        let live = Live::default();
        let watcher = live.clone();
        let woken = tokio::spawn(async move {
            watcher.changed().await;
            watcher.take().bytes
        });
        tokio::task::yield_now().await;
        live.push(b"x");
        assert_eq!(woken.await.unwrap(), b"x");
    }
}
