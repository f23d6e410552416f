//! The supervisor's end of one child's control channel: a task that writes what its handle queued and one that
//! reads frames into the handle's mailbox.
//!
//! A child may be hostile: its frames are bounded in size, decoded here, and one is handled before the next is
//! read. Of a kind with a pace no more than so many are taken in a second: what comes faster stays in the
//! socket, and whoever writes it waits. Anything that is no frame ends the link, and with it the child.

use super::Supervised;
use actix::{Addr, Message};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use quackd_ipc::frames::{self, Decoded};
use quackd_protocol::limits::{WORKER_OUTBOX_FRAMES, WORKER_STDERR_BYTES};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, FramedWrite};

/// Frames that this version does not know of one child that are logged.
const UNKNOWN_LOGGED: u32 = 10;

/// What a child may write to stderr at full speed, and the pause after each kilobyte beyond it.
const STDERR_FREE_BYTES: usize = 64 * 1024;
const STDERR_PAUSE: Duration = Duration::from_millis(10);

/// What happened on the control channel of one child process.
#[derive(Debug)]
pub(crate) struct ChannelEvent<F> {
    /// Tells the process from its predecessors.
    pub(crate) generation: u64,
    pub(crate) input: ChannelInput<F>,
}

/// See [`ChannelEvent`].
#[derive(Debug)]
pub(crate) enum ChannelInput<F> {
    Frame(F),
    /// The process has exited, or violated the protocol.
    Closed {
        violation: Option<String>,
    },
}

impl<F: 'static> Message for ChannelEvent<F> {
    type Result = ();
}

/// Queues frames for one child. Dropping it closes the channel.
#[derive(Debug)]
pub(super) struct Link {
    frames: mpsc::Sender<Bytes>,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl Drop for Link {
    /// Closes the channel, whatever the tasks wait for: the worker and its monitor see it at once.
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Link {
    /// Starts both tasks. `generation` tells this child's messages from its predecessors'.
    pub(super) fn start<H: Supervised>(
        channel: UnixStream,
        generation: u64,
        handle: Addr<H>,
    ) -> Self {
        let (reading, writing) = tokio::io::split(channel);
        let (sender, mut queue) = mpsc::channel::<Bytes>(WORKER_OUTBOX_FRAMES);
        let mut writer = FramedWrite::new(writing, frames::codec());
        let writing = actix::spawn(async move {
            while let Some(body) = queue.recv().await {
                // A child that is gone is noticed by the reading task and by its exit.
                if writer.send(body).await.is_err() {
                    break;
                }
            }
        });
        let reading = actix::spawn(read(reading, generation, handle));
        Self { frames: sender, tasks: [writing, reading] }
    }

    /// Queues a frame's body. `false` if the child does not take its frames fast enough.
    #[must_use]
    pub(super) fn offer(&self, body: Bytes) -> bool {
        self.frames.try_send(body).is_ok()
    }
}

async fn read<H: Supervised>(half: ReadHalf<UnixStream>, generation: u64, handle: Addr<H>) {
    let mut reader = FramedRead::new(half, frames::codec());
    let mut pace = H::WIRE.pace.map(|pace| Pace::new(pace, Instant::now()));
    let event = |input| ChannelEvent { generation, input };
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
        match frames::decode::<H::Says>(&body, H::WIRE.tags) {
            Ok(Decoded::Known(frame)) => {
                // One frame at a time: what the handle has not taken stays in the socket.
                if handle.send(event(ChannelInput::Frame(frame))).await.is_err() {
                    return;
                }
            }
            Ok(Decoded::Unknown(tag)) => {
                unknown = unknown.saturating_add(1);
                if H::WIRE.max_unknown < unknown {
                    break Some("too many unknown frames".to_owned());
                }
                if unknown <= UNKNOWN_LOGGED {
                    let tag: String = tag.chars().take(64).collect();
                    tracing::warn!(tag, "skipped a frame of another version");
                }
            }
            Err(error) => break Some(error.to_string()),
        }
        let wait = pace.as_mut().map(|pace| pace.take(Instant::now())).unwrap_or_default();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    };
    handle.send(event(ChannelInput::Closed { violation })).await.ok();
}

/// How many frames may be taken now: a bucket that fills with time. Pure.
#[derive(Debug)]
struct Pace {
    /// Frames that may be taken at once, in thousandths.
    credit: u64,
    full: u64,
    per_second: u64,
    since: Instant,
}

impl Pace {
    fn new((burst, per_second): (u32, u32), now: Instant) -> Self {
        let full = u64::from(burst) * 1000;
        Self { credit: full, full, per_second: u64::from(per_second), since: now }
    }

    /// A frame was taken. Gives how long to wait before the next one.
    fn take(&mut self, now: Instant) -> Duration {
        let ms = u64::try_from(now.saturating_duration_since(self.since).as_millis());
        let ms = ms.unwrap_or(u64::MAX);
        if ms != 0 {
            self.since = now;
            let more = ms.saturating_mul(self.per_second);
            self.credit = self.credit.saturating_add(more).min(self.full);
        }
        if let Some(left) = self.credit.checked_sub(1000) {
            self.credit = left;
            return Duration::ZERO;
        }
        // Enough for some dozens at a time, so that a flood costs few wakeups.
        Duration::from_millis(20)
    }
}

/// Reads a child's stderr until it ends and gives its last bytes, for the death report.
pub(crate) async fn stderr_tail(stderr: OwnedFd) -> String {
    let Ok(mut pipe) = tokio::net::unix::pipe::Receiver::from_owned_fd(stderr) else {
        return String::new();
    };
    let mut tail: Vec<u8> = Vec::new();
    let mut chunk = [0_u8; 1024];
    let mut total = 0_usize;
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        total = total.saturating_add(n);
        if STDERR_FREE_BYTES < total {
            // A flood waits in its own pipe, and whoever writes it waits with it.
            tokio::time::sleep(STDERR_PAUSE).await;
        }
        tail.extend_from_slice(chunk.get(..n).unwrap_or_default());
        let excess = tail.len().saturating_sub(WORKER_STDERR_BYTES);
        tail.drain(..excess);
    }
    String::from_utf8_lossy(&tail).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::limits::{PI_EVENTS_BURST, PI_EVENTS_PER_SECOND};

    #[test]
    fn a_burst_passes_and_a_flood_is_held_to_its_rate() {
        let start = Instant::now();
        let mut pace = Pace::new((PI_EVENTS_BURST, PI_EVENTS_PER_SECOND), start);
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
