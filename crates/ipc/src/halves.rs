//! The two halves of a stream socket. The reading half asks the system for input only, and the writing half asks for
//! room only while a write waits for it.
//!
//! The system reports room each time the peer reads. tokio's stream asks for these reports all the time, so that each
//! message wakes its sender once more for nothing. Used by the supervisor and by the workers, for every connection.

use crate::platform;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// Maximum size of one read, in bytes, because its buffer is cleared first.
const READ_BYTES: usize = 64 * 1024;

/// Flags of a write, which never waits. Room is awaited separately.
const SEND: SendFlags = SendFlags::DONTWAIT.union(platform::SEND);

/// Reads from the socket.
#[derive(Debug)]
pub struct ReadingHalf(Arc<AsyncFd<OwnedFd>>);

/// Writes to the socket.
#[derive(Debug)]
pub struct WritingHalf {
    socket: Arc<AsyncFd<OwnedFd>>,
    /// The same socket, registered for room, while a write waits.
    room: Option<AsyncFd<OwnedFd>>,
}

/// Writes without waiting. Does not keep the socket open.
#[derive(Debug, Clone)]
pub struct ImmediateWriter(Weak<AsyncFd<OwnedFd>>);

impl ReadingHalf {
    /// Waits for input or the end of the stream. Cancel-safe.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }
}

impl WritingHalf {
    /// Returns a writer that does not wait. Use it only while this half writes nothing.
    #[must_use]
    pub fn immediate(&self) -> ImmediateWriter {
        ImmediateWriter(Arc::downgrade(&self.socket))
    }
}

impl ImmediateWriter {
    /// Writes the first of these bytes, and returns how many the socket took. [`WritingHalf`] reports errors.
    #[must_use]
    pub fn write(&self, bytes: &[u8]) -> usize {
        let Some(socket) = self.0.upgrade() else { return 0 };
        send(&socket, bytes, SEND).unwrap_or(0)
    }

    /// Waits until the peer reads no more, or both halves are dropped. A peer that only stopped sending may still read.
    ///
    /// # Errors
    /// The runtime cannot register a second descriptor of the socket.
    pub async fn wait_for_peer_close(&self) -> io::Result<()> {
        let Some(socket) = self.0.upgrade() else { return Ok(()) };
        // The registration of the socket itself is for input, which is at its end.
        let room = register(fcntl_dupfd_cloexec(&socket, 0)?, Interest::WRITABLE)?;
        drop(socket);
        loop {
            let mut ready = room.writable().await?;
            if ready.ready().is_write_closed() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}

/// Splits a stream. The socket is closed when both halves are dropped.
///
/// # Errors
/// The runtime cannot register the socket.
pub fn split(stream: UnixStream) -> io::Result<(ReadingHalf, WritingHalf)> {
    let socket = Arc::new(register(stream.into_std()?.into(), Interest::READABLE)?);
    Ok((ReadingHalf(Arc::clone(&socket)), WritingHalf { socket, room: None }))
}

#[expect(
    deprecated,
    reason = "the other function is unsafe, for types that change their descriptor"
)]
fn register(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(socket, interest)
}

impl AsyncRead for ReadingHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let free = buf.remaining().min(READ_BYTES);
        loop {
            let mut input = ready!(self.0.poll_read_ready(cx))?;
            let free = buf.initialize_unfilled_to(free);
            match recv(&self.0, &mut *free, RecvFlags::DONTWAIT) {
                Ok((_, n)) => {
                    // Nothing is left now, so the next read waits without asking the system.
                    if 0 < n && n < free.len() {
                        input.clear_ready();
                    }
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => input.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

impl AsyncWrite for WritingHalf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match send(&self.socket, bytes, SEND) {
                Ok(n) => {
                    // The registration costs a descriptor, so it ends with the wait.
                    self.room = None;
                    return Poll::Ready(Ok(n));
                }
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }

            let room = match self.room.take() {
                Some(room) => room,
                // A second descriptor, because one descriptor can be registered once only.
                None => register(fcntl_dupfd_cloexec(&self.socket, 0)?, Interest::WRITABLE)?,
            };
            let room = self.room.insert(room);
            ready!(room.poll_write_ready(cx))?.clear_ready();
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(&self.socket, Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// More than the buffers of a socket.
    const MANY_BYTES: usize = 4 << 20;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap()
    }

    #[test]
    fn a_writer_waits_for_its_reader_and_nothing_is_lost() {
        runtime().block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let ((mut reading, _ours), (theirs, mut writing)) =
                (split(ours).unwrap(), split(theirs).unwrap());
            let sent: Vec<u8> = (0..250).cycle().take(MANY_BYTES).collect();
            let expected = sent.clone();
            let sending = tokio::spawn(async move {
                writing.write_all(&sent).await.unwrap();
                writing.shutdown().await.unwrap();
                assert!(writing.room.is_none());
            });
            let mut received = Vec::new();
            reading.read_to_end(&mut received).await.unwrap();
            assert!(received == expected);
            sending.await.unwrap();
            drop(theirs);
        });
    }

    #[test]
    fn a_message_after_a_short_read_wakes_the_reader() {
        runtime().block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let ((mut reading, _ours), (_theirs, mut writing)) =
                (split(ours).unwrap(), split(theirs).unwrap());
            let echoing = tokio::spawn(async move {
                let mut buffer = [0; 100];
                let mut total = 0;
                while let n @ 1.. = reading.read(&mut buffer).await.unwrap() {
                    total += n;
                }
                total
            });
            for _ in 0..100 {
                writing.write_all(b"seven..").await.unwrap();
                tokio::task::yield_now().await;
            }
            writing.shutdown().await.unwrap();
            assert_eq!(echoing.await.unwrap(), 700);
        });
    }

    #[test]
    fn a_peer_that_stops_sending_still_reads_until_it_closes() {
        runtime().block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (mut reading, mut writing) = split(ours).unwrap();
            let immediate = writing.immediate();
            let (mut their_reading, mut their_writing) = split(theirs).unwrap();
            let closed = tokio::spawn(async move { immediate.wait_for_peer_close().await });
            their_writing.shutdown().await.unwrap();
            assert_eq!(reading.read(&mut [0]).await.unwrap(), 0);
            for _ in 0..100 {
                writing.write_all(b"x").await.unwrap();
                their_reading.read_exact(&mut [0]).await.unwrap();
                assert!(!closed.is_finished());
            }
            drop((their_reading, their_writing));
            closed.await.unwrap().unwrap();
        });
    }

    #[test]
    fn a_writer_that_waits_sees_that_its_reader_is_gone() {
        runtime().block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (_reading, mut writing) = split(ours).unwrap();
            let sending =
                tokio::spawn(async move { writing.write_all(&vec![0; MANY_BYTES]).await });
            tokio::task::yield_now().await;
            drop(theirs);
            let error = sending.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
