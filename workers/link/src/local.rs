//! The channel on this machine: to the supervisor on one side of a link, to the worker on the other.

use crate::frame_guard::{FrameGuard, framed};
use crate::packet::Violation;
use crate::window::Window;
use bytes::{Buf, BytesMut};
use quackd_ipc::frames;
use quackd_protocol::far::LinkState;
use quackd_protocol::worker::FromWorker;
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Bytes for a supervisor that does not read, from which on repeated states of the link are left out.
const MAX_BEHIND: usize = 64 * 1024;

/// The channel, the bytes queued for it, and the stream that it is the end of.
#[derive(Debug)]
pub(crate) struct Local {
    stream: UnixStream,
    /// The resumable stream.
    pub(crate) window: Window,
    out: BytesMut,
    /// Lets whole frames pass only. `None`: every byte.
    guard: Option<FrameGuard>,
    /// The process at the other end writes nothing more, and reads nothing more.
    has_ended: bool,
    is_deaf: bool,
    chunk: Vec<u8>,
}

impl Local {
    /// The channel to the supervisor, which gets whole frames.
    pub(crate) fn to_supervisor(stream: UnixStream) -> Self {
        Self { guard: Some(FrameGuard::default()), ..Self::to_worker(stream) }
    }

    /// The channel to a worker.
    pub(crate) fn to_worker(stream: UnixStream) -> Self {
        Self {
            stream,
            window: Window::default(),
            out: BytesMut::new(),
            guard: None,
            has_ended: false,
            is_deaf: false,
            chunk: vec![0; CHUNK],
        }
    }

    /// Takes bytes from the other side of the link.
    pub(crate) fn take(&mut self, data: &[u8]) -> Result<(), Violation> {
        self.window.take(data.len())?;
        self.put(data)
    }

    /// Takes bytes that were counted before.
    pub(crate) fn put(&mut self, data: &[u8]) -> Result<(), Violation> {
        match &mut self.guard {
            Some(guard) => guard.pass(data, &mut self.out)?,
            None => self.out.extend_from_slice(data),
        }
        if self.is_deaf {
            self.out.clear();
        }
        self.window.deliver_all_but(self.out.len());
        Ok(())
    }

    /// Adds a frame for the supervisor, between two others.
    pub(crate) fn insert(&mut self, frame: &FromWorker) {
        let is_repeated = matches!(
            frame,
            FromWorker::Link(LinkState::Waiting { .. } | LinkState::Interrupted { .. })
        );
        if self.is_deaf || is_repeated && MAX_BEHIND < self.out.len() {
            return;
        }
        // Only a frame with an endless text cannot be encoded, and all texts here are short.
        if let Ok(body) = frames::encode(frame) {
            self.out.extend_from_slice(&framed(&body));
        }
    }

    /// Whether the process at the other end has closed the channel.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Reads or writes once, and waits until that is possible. Never resolves if there is nothing to do. Cancel-safe.
    pub(crate) async fn step(&mut self) {
        let room = if self.has_ended { 0 } else { self.window.room().min(CHUNK) };
        let interest = match (0 < room, !self.out.is_empty()) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            (false, false) => return std::future::pending().await,
        };
        let Ok(ready) = self.stream.ready(interest).await else {
            self.has_ended = true;
            return self.stop_writing();
        };

        if ready.is_readable() && 0 < room {
            match self.stream.try_read(self.chunk.get_mut(..room).unwrap_or_default()) {
                Ok(0) => self.has_ended = true,
                Ok(n) => self.window.push(self.chunk.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_reset) => self.has_ended = true,
            }
        }
        if ready.is_writable() && !self.out.is_empty() {
            match self.stream.try_write(&self.out) {
                Ok(n) => self.out.advance(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The process may have written its last bytes before.
                Err(_closed) => self.stop_writing(),
            }
        }
        self.window.deliver_all_but(self.out.len());
    }

    fn stop_writing(&mut self) {
        self.is_deaf = true;
        self.out.clear();
    }

    /// Reads and writes until the channel is closed.
    pub(crate) async fn until_ended(&mut self) {
        while !self.has_ended {
            self.step().await;
        }
    }

    /// Writes the queued bytes, for at most `limit`.
    pub(crate) async fn flush(&mut self, limit: Duration) {
        let flushed = async {
            while !self.out.is_empty() {
                self.step().await;
            }
        };
        // A process that does not read gets no more.
        timeout(limit, flushed).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn states_of_the_link_come_between_whole_frames() {
        let (stream, mut supervisor) = UnixStream::pair().unwrap();
        let mut local = Local::to_supervisor(stream);
        let pong = framed(br#"{"pong":{"seq":1}}"#);
        let (first, rest) = pong.split_at(7);
        local.take(first).unwrap();
        local.insert(&FromWorker::Link(LinkState::Resumed {}));
        local.take(rest).unwrap();
        local.flush(Duration::from_secs(10)).await;
        assert_eq!(local.window.unannounced(), u64::try_from(pong.len()).unwrap());

        let expected = [framed(br#"{"link":{"resumed":{}}}"#), pong].concat();
        let mut got = vec![0; expected.len()];
        supervisor.read_exact(&mut got).await.unwrap();
        assert_eq!(got, expected);

        supervisor.write_all(b"last").await.unwrap();
        drop(supervisor);
        local.until_ended().await;
        assert_eq!(local.window.next_data().unwrap(), "last");
    }

    #[tokio::test]
    async fn the_last_bytes_of_a_process_that_reads_nothing_are_kept() {
        let (stream, mut worker) = UnixStream::pair().unwrap();
        let mut local = Local::to_worker(stream);
        local.put(&vec![0; 100_000]).unwrap();
        worker.write_all(b"cannot start").await.unwrap();
        drop(worker);
        local.until_ended().await;
        local.flush(Duration::from_secs(10)).await;
        assert_eq!(local.window.next_data().unwrap(), "cannot start");
        // A child that another test has just forked may keep the far end open for a moment, so that all was written.
        local.put(b"more").unwrap();
        local.flush(Duration::from_secs(10)).await;
        local.put(b"more").unwrap();
        assert!(local.out.is_empty());
    }

    #[tokio::test]
    async fn a_supervisor_that_does_not_read_gets_no_repeated_states() {
        let (stream, _supervisor) = UnixStream::pair().unwrap();
        let mut local = Local::to_supervisor(stream);
        for _ in 0..10_000 {
            local.insert(&FromWorker::Link(LinkState::Waiting { reason: "x".repeat(50) }));
        }
        assert!(local.out.len() < 2 * MAX_BEHIND);
    }
}
