//! Reads the two output pipes of a command. The command only waits while its bytes are counted and while a spill file
//! or the reader of a flow is behind. Used by [`crate::run`].

use crate::capture::{Capture, Captured};
use crate::spill::{Spill, Spilled};
use crate::{Flow, Live, SpillTarget, StreamName};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep_until};

/// Size of one read in bytes. Equals the default capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// Both streams of one command.
#[derive(Debug)]
pub(crate) struct OutputReader {
    stdout: Stream,
    stderr: Stream,
    buffer: Box<[u8]>,
    spill: Spill,
    live: Option<Live>,
    flow: Option<Flow>,
    /// True while the command runs: reading then waits for the reader of the flow.
    has_patience: bool,
    /// True once the command is being stopped: reading no longer waits for the disk.
    in_a_hurry: bool,
    last_read: Instant,
}

#[derive(Debug)]
struct Stream {
    name: StreamName,
    /// `None` once the end was read.
    pipe: Option<Receiver>,
    capture: Capture,
}

impl Stream {
    fn new(name: StreamName, pipe: OwnedFd) -> io::Result<Self> {
        Ok(Self { name, pipe: Some(Receiver::from_owned_fd(pipe)?), capture: Capture::default() })
    }

    /// Resolves when data or the end can be read. Never resolves after the end.
    async fn readable(&self) {
        match &self.pipe {
            // An error means that the runtime is shutting down. The read fails then too.
            Some(pipe) => drop(pipe.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Reads once without waiting. Returns the number of bytes.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let Some(pipe) = &self.pipe else { return 0 };
        match pipe.try_read(buffer) {
            Ok(n_bytes @ 1..) => {
                self.capture.push(buffer.get(..n_bytes).unwrap_or_default());
                n_bytes
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Ok(0) | Err(_) => {
                self.pipe = None;
                0
            }
        }
    }
}

impl OutputReader {
    /// # Errors
    /// The event queue cannot take more descriptors.
    pub(crate) fn new(
        stdout: OwnedFd,
        stderr: OwnedFd,
        spill: Option<SpillTarget>,
        live: Option<Live>,
        flow: Option<Flow>,
    ) -> io::Result<Self> {
        Ok(Self {
            stdout: Stream::new(StreamName::Stdout, stdout)?,
            stderr: Stream::new(StreamName::Stderr, stderr)?,
            buffer: vec![0; READ_BYTES].into(),
            spill: Spill::new(spill),
            live,
            flow,
            has_patience: true,
            in_a_hurry: false,
            last_read: Instant::now(),
        })
    }

    /// Returns true if both pipes were read to their end: no process holds their write ends.
    pub(crate) fn is_at_end(&self) -> bool {
        self.stdout.pipe.is_none() && self.stderr.pipe.is_none()
    }

    /// Returns the inode numbers of the pipes that are not at their end.
    pub(crate) fn pipes(&self) -> Vec<u64> {
        let open = [&self.stdout.pipe, &self.stderr.pipe].into_iter().flatten();
        open.filter_map(|pipe| rustix::fs::fstat(pipe).ok()).map(|stat| stat.st_ino).collect()
    }

    /// Stops waiting for the disk: output that the spill file cannot take at once is left out of it.
    pub(crate) fn hurry(&mut self) {
        self.in_a_hurry = true;
    }

    /// Stops waiting for the reader of the flow, because the command has exited or must exit.
    pub(crate) fn lose_patience(&mut self) {
        self.has_patience = false;
    }

    /// Reads until both streams are at their end. May be dropped at any time without loss.
    pub(crate) async fn pump(&mut self) {
        while !self.is_at_end() {
            if let Some(flow) = self.flow.as_ref().filter(|_| self.has_patience) {
                flow.room().await;
            }
            if self.in_a_hurry {
                self.spill.make_room_now();
            } else {
                self.spill.make_room().await;
            }
            // `select!` picks randomly among ready streams, so neither can starve the other.
            let stream = tokio::select! {
                () = self.stdout.readable() => &mut self.stdout,
                () = self.stderr.readable() => &mut self.stderr,
            };
            let n_bytes = stream.read(&mut self.buffer);
            let chunk = self.buffer.get(..n_bytes).unwrap_or_default();
            self.spill.push(chunk);
            if let Some(live) = &self.live {
                live.push(chunk);
            }
            if let Some(flow) = &self.flow {
                flow.push(stream.name, chunk);
            }
            if 0 < n_bytes {
                self.last_read = Instant::now();
                // A command that prints without pause must not starve the other tasks of this thread.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads until both streams are at their end, no output arrived for `quiet`, or `until` has passed.
    pub(crate) async fn drain(&mut self, quiet: Duration, until: Instant) {
        let begin = Instant::now();
        while !self.is_at_end() {
            let wake = until.min(self.last_read.max(begin) + quiet);
            if wake <= Instant::now() {
                return;
            }
            tokio::select! {
                () = self.pump() => (),
                () = sleep_until(wake) => (),
            }
        }
    }

    /// Returns the kept output and the spill file, if one exists. Waits for the disk for at most `limit`.
    pub(crate) async fn finish(self, limit: Duration) -> (Captured, Captured, Option<Spilled>) {
        (self.stdout.capture.finish(), self.stderr.capture.finish(), self.spill.finish(limit).await)
    }
}
