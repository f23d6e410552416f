//! Reads the two output pipes of a command, or its terminal. The command only waits while its bytes are counted and while
//! a spill file or the reader of a flow is behind. Used by [`crate::run`].

use crate::capture::{Capture, Captured};
use crate::spill::{Spill, Spilled};
use crate::{Flow, Live, SpillTarget, StreamName, TerminalMaster};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep_until};

/// Size of one read in bytes. Equals the default capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// Maximum number of reads from one pipe without a wait. A pipe holds at most 1 MiB unless its owner is privileged
/// (pipe(7)).
const MAX_REST_READS: usize = 16;

/// The caller's ends of a command's output.
#[derive(Debug)]
pub(crate) enum OutputEnds {
    /// Two pipes.
    Pipes { stdout: OwnedFd, stderr: OwnedFd },
    /// A terminal, which counts as stdout.
    Terminal(TerminalMaster),
}

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

/// Whether the runtime has reported a pipe as readable.
#[derive(Debug, Clone, Copy)]
enum Readiness {
    Known,
    Unknown,
}

/// Descriptor from which a stream is read.
#[derive(Debug)]
enum Source {
    Pipe(Receiver),
    Terminal(TerminalMaster),
}

impl Source {
    async fn readable(&self) {
        match self {
            // An error means that the runtime is shutting down. The read fails then too.
            Self::Pipe(pipe) => {
                pipe.readable().await.ok();
            }
            Self::Terminal(master) => master.readable().await,
        }
    }

    fn read(&self, buffer: &mut [u8], readiness: Readiness) -> io::Result<usize> {
        match (self, readiness) {
            (Self::Pipe(pipe), Readiness::Known) => pipe.try_read(buffer),
            (Self::Pipe(pipe), Readiness::Unknown) => Ok(rustix::io::read(pipe, buffer)?),
            (Self::Terminal(master), Readiness::Known) => master.try_read(buffer),
            (Self::Terminal(master), Readiness::Unknown) => master.read_now(buffer),
        }
    }
}

#[derive(Debug, Default)]
struct Stream {
    /// `None` once the end was read.
    source: Option<Source>,
    capture: Capture,
}

impl Stream {
    fn of(source: Source) -> Self {
        Self { source: Some(source), capture: Capture::default() }
    }

    fn of_pipe(pipe: OwnedFd) -> io::Result<Self> {
        Ok(Self::of(Source::Pipe(Receiver::from_owned_fd(pipe)?)))
    }

    /// Resolves when data or the end can be read. Never resolves after the end.
    async fn readable(&self) {
        match &self.source {
            Some(source) => source.readable().await,
            None => std::future::pending().await,
        }
    }

    /// Reads once without waiting. Returns the number of bytes. `readiness` selects whether the runtime must know that
    /// the source is readable.
    fn read(&mut self, buffer: &mut [u8], readiness: Readiness) -> usize {
        let Some(source) = &self.source else { return 0 };
        match source.read(buffer, readiness) {
            Ok(n_bytes @ 1..) => {
                self.capture.push(buffer.get(..n_bytes).unwrap_or_default());
                n_bytes
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                0
            }
            // A terminal that no process has ends with an error.
            Ok(0) | Err(_) => {
                self.source = None;
                0
            }
        }
    }
}

impl OutputReader {
    /// # Errors
    /// The event queue cannot take more descriptors.
    pub(crate) fn new(
        ends: OutputEnds,
        spill: Option<SpillTarget>,
        live: Option<Live>,
        flow: Option<Flow>,
    ) -> io::Result<Self> {
        let (stdout, stderr) = match ends {
            OutputEnds::Pipes { stdout, stderr } => {
                (Stream::of_pipe(stdout)?, Stream::of_pipe(stderr)?)
            }
            OutputEnds::Terminal(master) => {
                (Stream::of(Source::Terminal(master)), Stream::default())
            }
        };
        Ok(Self {
            stdout,
            stderr,
            buffer: vec![0; READ_BYTES].into(),
            spill: Spill::new(spill),
            live,
            flow,
            has_patience: true,
            in_a_hurry: false,
            last_read: Instant::now(),
        })
    }

    /// Returns true if everything was read to its end: no process holds the other ends.
    pub(crate) fn is_at_end(&self) -> bool {
        self.stdout.source.is_none() && self.stderr.source.is_none()
    }

    /// Returns the inode numbers of the pipes that are not at their end.
    pub(crate) fn pipes(&self) -> Vec<u64> {
        let open = [&self.stdout.source, &self.stderr.source].into_iter().flatten();
        let open = open.filter_map(|source| match source {
            Source::Pipe(pipe) => rustix::fs::fstat(pipe).ok(),
            Source::Terminal(_) => None,
        });
        open.map(|stat| stat.st_ino).collect()
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
            let name = tokio::select! {
                () = self.stdout.readable() => StreamName::Stdout,
                () = self.stderr.readable() => StreamName::Stderr,
            };

            self.read(name, Readiness::Known);
            // A command that prints without pause must not starve the other tasks of this thread.
            tokio::task::yield_now().await;
        }
    }

    /// Reads once from a stream and passes the bytes on. Returns their number.
    fn read(&mut self, name: StreamName, readiness: Readiness) -> usize {
        let stream = match name {
            StreamName::Stderr => &mut self.stderr,
            // A command has no rows.
            StreamName::Stdout | StreamName::Rows => &mut self.stdout,
        };
        let n_bytes = stream.read(&mut self.buffer, readiness);
        let chunk = self.buffer.get(..n_bytes).unwrap_or_default();

        self.spill.push(chunk);
        if let Some(live) = &self.live {
            live.push(chunk);
        }
        if let Some(flow) = &self.flow {
            flow.push(name, chunk);
        }
        if 0 < n_bytes {
            self.last_read = Instant::now();
        }
        n_bytes
    }

    /// Reads what both pipes hold now, without waiting for the runtime or the disk. Returns true if there was any.
    fn read_rest(&mut self) -> bool {
        let mut has_read = false;
        for name in [StreamName::Stdout, StreamName::Stderr] {
            for _ in 0..MAX_REST_READS {
                self.spill.make_room_now();
                if self.read(name, Readiness::Unknown) == 0 {
                    break;
                }
                has_read = true;
            }
        }
        has_read
    }

    /// Reads until both streams are at their end, no output arrived for `quiet`, or `until` has passed.
    pub(crate) async fn drain(&mut self, quiet: Duration, until: Instant) {
        let begin = Instant::now();
        while !self.is_at_end() {
            let wake = until.min(self.last_read.max(begin) + quiet);
            if wake <= Instant::now() {
                // The time may have passed while this process waited for the disk or was stopped.
                if !self.read_rest() || until <= Instant::now() {
                    return;
                }
                continue;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_that_is_in_a_pipe_is_read_although_the_quiet_time_has_passed() {
        let (stdout, mut writer) = io::pipe().unwrap();
        // The write ends stay open, as if a process still held them.
        let (stderr, _writer) = io::pipe().unwrap();
        let ends = OutputEnds::Pipes { stdout: stdout.into(), stderr: stderr.into() };
        let mut output = OutputReader::new(ends, None, None, None).unwrap();
        io::Write::write_all(&mut writer, b"done").unwrap();
        output.drain(Duration::ZERO, Instant::now() + Duration::from_secs(60)).await;
        assert!(!output.is_at_end());
        let (stdout, _, _) = output.finish(Duration::ZERO).await;
        assert_eq!(stdout.head, b"done");
    }
}
