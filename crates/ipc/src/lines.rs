//! Newline-delimited input from a peer that may be hostile: bounded in size and in time.
//!
//! Used by the supervisor for requests and by the client for replies. A codec of `tokio-util` does not fit, because of
//! two rules of the wire. A line that is too long gets one error reply and does not close the stream. Invalid UTF-8 is
//! not an error.

use bytes::{Bytes, BytesMut};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

/// Smallest free space offered to a read.
const READ_BYTES: usize = 4096;

/// An empty buffer larger than this is freed after its line. Otherwise one long line would cost memory for the lifetime
/// of the connection.
const KEEP_BYTES: usize = 64 * 1024;

/// One line of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The line without its LF and without a CR before it.
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
    /// The connection failed.
    #[error("cannot read from the connection")]
    Read(#[from] io::Error),
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
            ended: false,
        }
    }

    /// Ends the stream with [`LineError::Unfinished`] if a line is incomplete for longer than `patience`.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Returns the next line, or `None` at the end of the stream. A last line without LF counts.
    ///
    /// Cancel-safe: bytes that were read stay in the buffer.
    pub async fn next(&mut self) -> Result<Option<Line>, LineError> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(self.take_rest());
            }
            if self.read().await? == 0 {
                self.ended = true;
            }
        }
    }

    /// Whether bytes of the next line were read.
    #[must_use]
    pub fn has_begun_next(&self) -> bool {
        !self.buffer.is_empty()
    }

    async fn read(&mut self) -> Result<usize, LineError> {
        let is_begun = self.skipping || !self.buffer.is_empty();
        self.buffer.reserve(READ_BYTES);
        let read = self.reader.read_buf(&mut self.buffer);
        let Some(patience) = self.patience.filter(|_| is_begun) else { return Ok(read.await?) };
        let began = Instant::now();
        let n = timeout_at(began + patience.saturating_sub(self.waited), read)
            .await
            .map_err(|_elapsed| LineError::Unfinished(patience))??;
        self.waited += began.elapsed();
        Ok(n)
    }

    fn take_line(&mut self) -> Option<Line> {
        loop {
            let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
            let Some(at) = memchr::memchr(b'\n', unseen) else {
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
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            line.truncate(line.len() - 1);
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
        if self.buffer.is_empty() || self.skipping {
            return None;
        }
        self.scanned = 0;
        Some(Line::Text(self.buffer.split().freeze()))
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
    use tokio::io::ReadBuf;

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
            tokio::io::AsyncWriteExt::write_all(&mut ours, b"half").await.unwrap();
            let begun = Instant::now();
            let error = reader.next().await.unwrap_err();
            assert!(matches!(error, LineError::Unfinished(_)), "{error}");
            assert_eq!(begun.elapsed(), Duration::from_secs(60));
        });
    }
}
