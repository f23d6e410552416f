//! Newline-delimited input from a peer that may be hostile: bounded in size and in time.
//!
//! Used by the supervisor for requests and by the client for replies. A codec of `tokio-util` does not fit, because of
//! two rules of the wire. A line that is too long gets one error reply and does not close the stream. Invalid UTF-8 is
//! not an error.

use bytes::{Buf as _, Bytes, BytesMut};
use quackd_supervision::{Budget, FREE_BYTES, Share};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Smallest free space offered to a read.
const READ_BYTES: usize = 4096;

/// An empty buffer larger than this is freed after its line. Otherwise one long line would cost memory for the lifetime
/// of the connection.
const KEEP_BYTES: usize = 64 * 1024;

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// One line of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The line without its LF and without a CR before it; the first one also without a byte order mark.
    Text(Bytes),
    /// A line longer than the limit. Its bytes were skipped.
    TooLong,
}

/// Reason why the stream has no more lines.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The peer sent the start of a line and did not complete it in time.
    #[error("a line was not finished within {0:?}")]
    Unfinished(Duration),
    /// The peers together hold too much memory for incomplete lines, and this one most of it for longest.
    #[error("the unfinished lines of all clients need too much memory, and this one has {0} bytes")]
    Refused(usize),
    /// The connection failed.
    #[error("cannot read from the connection")]
    Read(#[from] io::Error),
}

/// Part of a peer in the memory for incomplete lines of all peers.
#[derive(Debug)]
struct Counted {
    share: Share<CancellationToken>,
    /// Bytes of the buffer that are counted.
    bytes: usize,
    refused: CancellationToken,
}

impl Counted {
    /// Counts the bytes of a buffer that has grown, and refuses peers.
    fn grow(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes += more;
        for refused in self.share.add(more, std::time::Instant::now()) {
            refused.cancel();
        }
    }

    /// Gives back the bytes of a line that was taken or skipped.
    fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.share.subtract(less, std::time::Instant::now());
    }
}

/// Reads lines of at most `max_bytes` from `reader`.
#[derive(Debug)]
pub struct LineReader<R> {
    reader: R,
    buffer: BytesMut,
    /// Bytes of `buffer` that are known to contain no LF.
    scanned: usize,
    /// True while the reader skips the rest of a line that was too long.
    skipping: bool,
    /// Time spent waiting for the rest of an incomplete line. Excludes the time in which the caller did not read.
    waited: Duration,
    max_bytes: usize,
    patience: Option<Duration>,
    counted: Option<Counted>,
    /// True once the first bytes were examined for a byte order mark.
    is_past_mark: bool,
    ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Creates a reader without a timeout for incomplete lines.
    pub fn new(reader: R, max_bytes: usize) -> Self {
        Self {
            reader,
            buffer: BytesMut::new(),
            scanned: 0,
            skipping: false,
            waited: Duration::ZERO,
            max_bytes,
            patience: None,
            counted: None,
            is_past_mark: false,
            ended: false,
        }
    }

    /// Ends the stream with [`LineError::Unfinished`] if a line is incomplete for longer than `patience`.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Counts incomplete lines in a budget of all peers. Ends the stream with [`LineError::Refused`] if they hold too much
    /// memory and this one most of it for longest.
    #[must_use]
    pub fn with_budget(mut self, budget: &Arc<Budget<CancellationToken>>) -> Self {
        let refused = CancellationToken::new();
        self.counted = Some(Counted { share: budget.join(refused.clone()), bytes: 0, refused });
        self
    }

    /// Returns the next line, or `None` at the end of the stream. A last line without LF counts.
    ///
    /// Cancel-safe: bytes that were read stay in the buffer.
    pub async fn next(&mut self) -> Result<Option<Line>, LineError> {
        loop {
            let line = self.take_line();
            if let Some(counted) = &mut self.counted {
                counted.shrink(self.buffer.len());
            }

            if line.is_some() {
                return Ok(line);
            }
            if self.ended {
                return Ok(self.take_rest());
            }
            if self.read().await? == 0 {
                self.ended = true;
            }
        }
    }

    /// Returns whether bytes of the next line were read.
    #[must_use]
    pub fn has_begun_next(&self) -> bool {
        !self.buffer.is_empty()
    }

    async fn read(&mut self) -> Result<usize, LineError> {
        // The timeout applies only to a line that has begun: a peer may be silent between lines for
        // as long as it likes.
        let is_begun = self.skipping || !self.buffer.is_empty();
        self.buffer.reserve(READ_BYTES);
        let size = self.buffer.len();
        let read = self.reader.read_buf(&mut self.buffer);

        let Some(patience) = self.patience.filter(|_| is_begun) else {
            let n = read.await?;
            self.counted.iter_mut().for_each(|counted| counted.grow(self.buffer.len()));
            return Ok(n);
        };

        let began = Instant::now();
        let read = timeout_at(began + patience.saturating_sub(self.waited), read);
        // A peer with few bytes cannot be refused, so it need not listen for that.
        let read = match self.counted.as_ref().filter(|counted| FREE_BYTES < counted.bytes) {
            Some(counted) => tokio::select! {
                () = counted.refused.cancelled() => return Err(LineError::Refused(size)),
                read = read => read,
            },
            None => read.await,
        };
        let n = read.map_err(|_elapsed| LineError::Unfinished(patience))??;

        self.waited += began.elapsed();
        self.counted.iter_mut().for_each(|counted| counted.grow(self.buffer.len()));
        Ok(n)
    }

    fn take_line(&mut self) -> Option<Line> {
        if !self.is_past_mark && !self.skip_mark() {
            return None;
        }
        loop {
            let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
            let Some(at) = memchr::memchr(b'\n', unseen) else {
                // No LF yet. A line above the limit is reported once, and its rest is dropped piece
                // by piece.
                self.scanned = self.buffer.len();
                if self.skipping || self.max_bytes < self.scanned {
                    self.forget_buffer();
                    if !self.skipping {
                        self.skipping = true;
                        return Some(Line::TooLong);
                    }
                }
                return None;
            };

            let mut line = self.buffer.split_to(self.scanned + at + 1);
            self.scanned = 0;
            self.waited = Duration::ZERO;
            if self.buffer.is_empty() && KEEP_BYTES < line.capacity() {
                self.buffer = BytesMut::new();
            }

            // The end of a line that was already reported as too long.
            if std::mem::take(&mut self.skipping) {
                continue;
            }

            line.truncate(line.len() - 1);
            // The end of the line may arrive in the same read as the part that exceeds the limit.
            if self.max_bytes < line.len() {
                return Some(Line::TooLong);
            }
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            return Some(Line::Text(line.freeze()));
        }
    }

    fn take_rest(&mut self) -> Option<Line> {
        // The rest of a line that is too long was reported at its beginning.
        if self.buffer.is_empty() || self.skipping {
            return None;
        }
        self.scanned = 0;
        Some(Line::Text(self.buffer.split().freeze()))
    }

    /// Removes the byte order mark that some programs write before their first line. Returns false while the bytes that
    /// were read can still become one.
    fn skip_mark(&mut self) -> bool {
        if self.buffer.len() < MARK.len() && MARK.starts_with(&self.buffer) && !self.ended {
            return false;
        }
        if self.buffer.starts_with(MARK) {
            self.buffer.advance(MARK.len());
        }
        self.is_past_mark = true;
        true
    }

    fn forget_buffer(&mut self) {
        self.buffer = BytesMut::new();
        self.scanned = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncWriteExt, ReadBuf};

    /// Returns its input in pieces of a fixed size.
    struct Pieces {
        bytes: Vec<u8>,
        at: usize,
        size: usize,
    }

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let end = (self.at + self.size.min(buf.remaining())).min(self.bytes.len());
            buf.put_slice(&self.bytes[self.at..end]);
            self.at = end;
            Poll::Ready(Ok(()))
        }
    }

    fn check(input: &[u8], max_bytes: usize, expected: &[Option<&[u8]>]) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for size in [1, 2, 3, 7, 1 << 20] {
            let pieces = Pieces { bytes: input.to_vec(), at: 0, size };
            let lines = runtime.block_on(async {
                let mut reader = LineReader::new(pieces, max_bytes);
                let mut lines = Vec::new();
                while let Some(line) = reader.next().await.unwrap() {
                    lines.push(line);
                }
                lines
            });
            let expected: Vec<Line> = expected
                .iter()
                .map(|line| line.map_or(Line::TooLong, |t| Line::Text(Bytes::copy_from_slice(t))))
                .collect();
            assert_eq!(lines, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn the_first_line_loses_one_byte_order_mark() {
        let mark = "\u{feff}".as_bytes();
        check(&[mark, b"a\n", mark, b"b"].concat(), 10, &[Some(b"a"), Some(b"\xef\xbb\xbfb")]);
        check(&[mark, mark].concat(), 10, &[Some(mark)]);
        check(mark, 10, &[]);
        check(b"\xef\xbb", 10, &[Some(b"\xef\xbb")]);
        check(b"\xef\xbb\na", 10, &[Some(b"\xef\xbb"), Some(b"a")]);
    }

    #[test]
    fn a_byte_order_mark_counts_neither_as_bytes_nor_as_a_line() {
        let mark = "\u{feff}".as_bytes();
        check(&[mark, b"abc\nab"].concat(), 3, &[Some(b"abc"), Some(b"ab")]);
        check(&[mark, b"abc"].concat(), 3, &[Some(b"abc")]);
        check(&[b"abcd\n", mark, b"\n"].concat(), 3, &[None, Some(mark)]);
        check(b"\xef\xbb", 1, &[None]);
    }

    #[test]
    fn lines_end_at_lf_and_lose_one_cr() {
        check(
            b"a\nb\r\n\r\r\n\nc",
            10,
            &[Some(b"a"), Some(b"b"), Some(b"\r"), Some(b""), Some(b"c")],
        );
    }

    #[test]
    fn a_line_that_is_too_long_costs_one_marker_and_nothing_else() {
        check(b"ok\n0123456789\nnext\n", 5, &[Some(b"ok"), None, Some(b"next")]);
        check(b"01234\n", 5, &[Some(b"01234")]);
        check(b"0123456789", 5, &[None]);
    }

    #[test]
    fn an_empty_stream_has_no_lines() {
        check(b"", 5, &[]);
    }

    #[test]
    fn of_too_many_unfinished_lines_the_one_that_has_most_for_longest_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            const MIB: usize = 1024 * 1024;
            let budget = Budget::new(4 * MIB);
            let reader = |size: usize| {
                let (mut ours, theirs) = tokio::io::duplex(8 * MIB);
                let reader = LineReader::new(theirs, 8 * MIB)
                    .with_patience(Duration::from_secs(60))
                    .with_budget(&budget);
                async move {
                    ours.write_all(&vec![b'x'; size]).await.unwrap();
                    (ours, reader)
                }
            };
            let (_slow, mut slow) = reader(3 * MIB).await;
            let (mut quick, mut quicker) = reader(2 * MIB).await;
            let refused = tokio::spawn(async move { slow.next().await });
            while budget.bytes() < 3 * MIB {
                tokio::task::yield_now().await;
            }
            quick.write_all(b"\n").await.unwrap();
            assert!(
                matches!(quicker.next().await, Ok(Some(Line::Text(line))) if line.len() == 2 * MIB)
            );
            let refused = refused.await.unwrap();
            assert!(
                matches!(refused, Err(LineError::Refused(bytes)) if bytes == 3 * MIB),
                "{refused:?}"
            );
            assert_eq!(budget.bytes(), 0);
        });
    }

    #[test]
    fn an_unfinished_line_ends_the_stream_and_an_idle_peer_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut ours, theirs) = tokio::io::duplex(64);
            let mut reader = LineReader::new(theirs, 100).with_patience(Duration::from_secs(60));
            let idle = tokio::time::timeout(Duration::from_secs(3600), reader.next()).await;
            assert!(idle.is_err(), "an idle peer may stay");
            ours.write_all(b"half").await.unwrap();
            let begun = Instant::now();
            let error = reader.next().await.unwrap_err();
            assert!(matches!(error, LineError::Unfinished(_)), "{error}");
            assert_eq!(begun.elapsed(), Duration::from_secs(60));
        });
    }
}
