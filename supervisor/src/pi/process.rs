//! One Pi worker process: its control channel, its identity, and how it is ended. As [`crate::worker_process`]
//! is for the processes that run tools.
//!
//! The channel's reading task takes no more than so many frames in a second: what comes faster stays in the
//! socket, the worker's queue and Pi's own pipe, and Pi waits.

use super::frames::{FrameArrived, LinkClosed};
use super::handle::PiHandle;
use crate::link::stderr_tail;
use crate::services::now_text;
use actix::Addr;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use nix::sys::signal::Signal;
use quackd_ipc::frames::{self, Decoded};
use quackd_process::{ProcessHandle, SpawnedWorker};
use quackd_protocol::limits::{PI_EVENTS_BURST, PI_EVENTS_PER_SECOND, WORKER_OUTBOX_FRAMES};
use quackd_protocol::pi::{FROM_PI_WORKER_TAGS, FromPiWorker, ToPiWorker};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::ReadHalf;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::codec::{FramedRead, FramedWrite};

/// How long the last words of a dead worker may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Frames of another version that are skipped; one more ends the worker.
const MAX_UNKNOWN: u32 = 1_000;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct PiProcess {
    /// Tells this process from its predecessors.
    pub(super) generation: u64,
    /// Process ids of the worker and of Pi, said by the worker; for people.
    pub(super) pids: Option<(u32, u32)>,
    /// When it was started, for display.
    pub(super) started_at: String,
    channel: Option<Channel>,
    /// The channel has ended by itself.
    is_silent: bool,
    spawned: Option<Spawned>,
}

#[derive(Debug)]
struct Spawned {
    process: ProcessHandle,
    stderr: JoinHandle<String>,
}

/// Both tasks of the control channel. Dropping it closes the channel.
#[derive(Debug)]
struct Channel {
    frames: mpsc::Sender<Bytes>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Channel {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Why a frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It does not fit into a frame.
    TooLong,
    /// The worker does not take its frames.
    NotTaken,
}

impl PiProcess {
    /// Makes the control channel and writes the first frame into it; the process comes later.
    pub(super) fn prepare(
        generation: u64,
        start: &ToPiWorker,
        handle: Addr<PiHandle>,
    ) -> std::io::Result<(Self, OwnedFd)> {
        let (channel, far_end) = quackd_ipc::link::pair()?;
        let first = frames::encode(start).map_err(std::io::Error::other)?;
        let (reading, writing) = tokio::io::split(channel);
        let (frames, queue) = mpsc::channel::<Bytes>(WORKER_OUTBOX_FRAMES);
        frames.try_send(first).map_err(std::io::Error::other)?;
        let tasks = [
            actix::spawn(write(FramedWrite::new(writing, frames::codec()), queue)),
            actix::spawn(read(reading, generation, handle)),
        ];
        let process = Self {
            generation,
            pids: None,
            started_at: now_text(),
            channel: Some(Channel { frames, tasks }),
            is_silent: false,
            spawned: None,
        };
        Ok((process, far_end))
    }

    /// The process exists.
    pub(super) fn spawned(&mut self, worker: SpawnedWorker) {
        let stderr = actix::spawn(stderr_tail(worker.stderr));
        self.spawned = Some(Spawned { process: worker.process, stderr });
    }

    /// Whether frames of it may still come.
    pub(super) fn may_speak(&self) -> bool {
        self.channel.is_some() && !self.is_silent
    }

    /// The channel has ended: all that it said was taken.
    pub(super) fn fell_silent(&mut self) {
        self.is_silent = true;
    }

    /// Process id of the monitor.
    pub(super) fn monitor_pid(&self) -> Option<u32> {
        self.spawned.as_ref().map(|spawned| spawned.process.pid())
    }

    /// Queues a frame.
    pub(super) fn offer(&self, frame: &ToPiWorker) -> Result<(), Refused> {
        let body = frames::encode(frame).map_err(|_too_long| Refused::TooLong)?;
        match &self.channel {
            Some(channel) => channel.frames.try_send(body).map_err(|_full| Refused::NotTaken),
            None => Err(Refused::NotTaken),
        }
    }

    /// Ends the worker and everything below it. Repeated, it kills the monitor too.
    pub(super) fn kill(&mut self) {
        let again = self.channel.take().is_none();
        let signal = if again { Signal::SIGKILL } else { Signal::SIGTERM };
        let Some(spawned) = &self.spawned else { return };
        // CONT, because a stopped monitor does not act on TERM.
        for signal in [signal, Signal::SIGCONT] {
            if let Err(error) = spawned.process.signal(signal) {
                tracing::error!(pid = spawned.process.pid(), %error, "cannot signal a monitor");
            }
        }
    }

    /// The last lines of the worker's own stderr, once it has ended.
    pub(super) async fn last_words(self) -> String {
        let Some(Spawned { mut stderr, .. }) = self.spawned else { return String::new() };
        match tokio::time::timeout(LAST_WORDS, &mut stderr).await {
            Ok(Ok(tail)) => tail,
            Ok(Err(_)) => String::new(),
            Err(_elapsed) => {
                stderr.abort();
                String::new()
            }
        }
    }
}

type Writer =
    FramedWrite<tokio::io::WriteHalf<UnixStream>, tokio_util::codec::LengthDelimitedCodec>;

async fn write(mut writer: Writer, mut queue: mpsc::Receiver<Bytes>) {
    while let Some(body) = queue.recv().await {
        // A worker that is gone is noticed by the reading task and by its exit.
        if writer.send(body).await.is_err() {
            break;
        }
    }
}

async fn read(half: ReadHalf<UnixStream>, generation: u64, handle: Addr<PiHandle>) {
    let mut reader = FramedRead::new(half, frames::codec());
    let mut pace = Pace::new(Instant::now());
    let mut unknown = 0_u32;
    let violation = loop {
        let body = match reader.next().await {
            None => break None,
            Some(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                break Some(error.to_string());
            }
            Some(Err(_broken)) => break None,
            Some(Ok(body)) => body,
        };
        match frames::decode::<FromPiWorker>(&body, FROM_PI_WORKER_TAGS) {
            Ok(Decoded::Known(frame)) => {
                // One frame at a time: what the handle has not taken stays in the socket.
                if handle.send(FrameArrived { generation, frame }).await.is_err() {
                    return;
                }
            }
            Ok(Decoded::Unknown(tag)) => {
                unknown = unknown.saturating_add(1);
                if MAX_UNKNOWN < unknown {
                    break Some("too many unknown frames".to_owned());
                }
                if unknown == 1 {
                    let tag: String = tag.chars().take(64).collect();
                    tracing::warn!(tag, "skipped a frame of another version");
                }
            }
            Err(error) => break Some(error.to_string()),
        }
        let wait = pace.take(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    };
    handle.send(LinkClosed { generation, violation }).await.ok();
}

/// How many frames may be taken now: a bucket that fills with time. Pure.
#[derive(Debug)]
struct Pace {
    /// Frames that may be taken at once, in thousandths.
    credit: u64,
    since: Instant,
}

impl Pace {
    const FULL: u64 = PI_EVENTS_BURST as u64 * 1000;

    fn new(now: Instant) -> Self {
        Self { credit: Self::FULL, since: now }
    }

    /// A frame was taken. Gives how long to wait before the next one.
    fn take(&mut self, now: Instant) -> Duration {
        let rate = u64::from(PI_EVENTS_PER_SECOND);
        let ms = u64::try_from(now.saturating_duration_since(self.since).as_millis());
        let ms = ms.unwrap_or(u64::MAX);
        if ms != 0 {
            self.since = now;
            self.credit = self.credit.saturating_add(ms.saturating_mul(rate)).min(Self::FULL);
        }
        if let Some(left) = self.credit.checked_sub(1000) {
            self.credit = left;
            return Duration::ZERO;
        }
        // Enough for some dozens at a time, so that a flood costs few wakeups.
        Duration::from_millis(20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_a_flood_is_held_to_its_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..PI_EVENTS_BURST {
            assert_eq!(pace.take(start), Duration::ZERO);
        }
        let (mut now, mut taken) = (start, 0_u32);
        while now < start + Duration::from_secs(2) {
            match pace.take(now) {
                Duration::ZERO => taken += 1,
                wait => {
                    taken += 1;
                    now += wait;
                }
            }
        }
        let expected = 2 * PI_EVENTS_PER_SECOND;
        assert!((expected..expected + 400).contains(&taken), "{taken}");
    }
}
