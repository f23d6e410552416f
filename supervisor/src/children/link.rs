//! The supervisor's end of one child's control channel. One task writes the frames that the child's actor queued. Another
//! task reads frames into the actor's mailbox.
//!
//! A child may be hostile. Its frames are bounded in size and decoded here, and each is handled before the next is
//! read. Some kinds of children have a frame rate limit: further frames stay in the socket and block the writer.
//! Invalid data closes the link and kills the child.

use super::kind::ChildKind;
use actix::{Actor, Addr, Context, Handler, Message};
use bytes::{Bytes, BytesMut};
use quackd_ipc::frames::{self, Decoded, FrameError};
use quackd_ipc::halves::{self, ReadingHalf};
use quackd_protocol::limits::WORKER_OUTBOX_FRAMES;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{self, error::TrySendError};

/// Maximum number of logged unknown frames per child.
const UNKNOWN_LOGGED: u32 = 10;

/// Reads a frame of a child; see [`super::Program`].
type Decode<A> = fn(&BytesMut) -> Result<Decoded<<A as ChildKind>::FromChild>, FrameError>;

/// Event on the control channel of one child process.
#[derive(Debug)]
pub(crate) struct ChannelEvent<F> {
    /// Distinguishes the process from its predecessors.
    pub(crate) generation: u64,
    pub(crate) input: ChannelInput<F>,
}

/// Content of a [`ChannelEvent`].
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

/// The reason why a frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The frame exceeds the maximum size.
    TooLong,
    /// The queue is full, because the child does not read.
    Full,
    /// The channel is closed.
    Closed,
}

/// Queues frames for one child. Dropping it closes the channel.
#[derive(Debug)]
pub(super) struct ChannelTasks {
    frames: mpsc::Sender<Bytes>,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl Drop for ChannelTasks {
    /// Closes the channel at once: the worker and its monitor see it immediately.
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl ChannelTasks {
    /// Starts both tasks. Writes `first`, the body of a frame whose length was written already. `generation`
    /// distinguishes this child's messages from its predecessors'.
    pub(super) fn start<A>(
        channel: UnixStream,
        generation: u64,
        first: Bytes,
        decode: Decode<A>,
        actor: Addr<A>,
    ) -> std::io::Result<Self>
    where
        A: ChildKind + Actor<Context = Context<A>> + Handler<ChannelEvent<A::FromChild>>,
    {
        let (reading, mut writing) = halves::split(channel)?;
        let (sender, queue) = mpsc::channel::<Bytes>(WORKER_OUTBOX_FRAMES);
        let writing = actix::spawn(async move {
            // The reading half reports that the channel is gone.
            if writing.write_all(&first).await.is_ok() {
                frames::write_queued(queue, writing).await;
            }
        });
        let reading = actix::spawn(read(reading, generation, decode, actor));
        Ok(Self { frames: sender, tasks: [writing, reading] })
    }

    /// Queues a frame's body.
    pub(super) fn try_send(&self, body: Bytes) -> Result<(), SendError> {
        self.frames.try_send(body).map_err(|error| match error {
            TrySendError::Full(_) => SendError::Full,
            TrySendError::Closed(_) => SendError::Closed,
        })
    }
}

async fn read<A>(half: ReadingHalf, generation: u64, decode: Decode<A>, actor: Addr<A>)
where
    A: ChildKind + Actor<Context = Context<A>> + Handler<ChannelEvent<A::FromChild>>,
{
    let mut reader = frames::reader(half);
    let limiter = |(burst, per_second)| FrameRateLimiter::new(burst, per_second, Instant::now());
    let mut pace = A::WIRE.pace.map(limiter);
    let event = |input| ChannelEvent { generation, input };
    let mut unknown = 0_u32;

    let violation = loop {
        let body = match frames::next(&mut reader).await {
            None => break None,
            Some(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                break Some(error.to_string());
            }
            Some(Err(_broken)) => break None,
            Some(Ok(body)) => body,
        };

        match decode(&body) {
            Ok(Decoded::Known(frame)) => {
                // Wait until the actor took the frame, so that further frames stay in the socket.
                if actor.send(event(ChannelInput::Frame(frame))).await.is_err() {
                    return;
                }
            }
            Ok(Decoded::Unknown(tag)) => {
                unknown = unknown.saturating_add(1);
                if A::WIRE.max_unknown < unknown {
                    break Some("too many unknown frames".to_owned());
                }
                if unknown <= UNKNOWN_LOGGED {
                    let tag: String = tag.chars().take(64).collect();
                    tracing::warn!(tag, "skipped an unknown frame");
                }
            }
            Err(error) => break Some(error.to_string()),
        }

        let wait = pace.as_mut().map(|pace| pace.take(Instant::now())).unwrap_or_default();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    };

    actor.send(event(ChannelInput::Closed { violation })).await.ok();
}

/// Token bucket for incoming frames. Does no I/O.
#[derive(Debug)]
struct FrameRateLimiter {
    /// Available frames, in thousandths.
    credit: u64,
    full: u64,
    per_second: u64,
    since: Instant,
}

impl FrameRateLimiter {
    fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        let full = u64::from(burst) * 1000;
        Self { credit: full, full, per_second: u64::from(per_second), since: now }
    }

    /// Takes one frame. Returns the delay before the next one.
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
        // Enough for several dozen frames, so that a flood causes few wakeups.
        Duration::from_millis(20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::limits::{AGENT_EVENTS_BURST, AGENT_EVENTS_PER_SECOND};

    #[test]
    fn a_burst_passes_and_a_flood_is_held_to_its_rate() {
        let start = Instant::now();
        let mut pace = FrameRateLimiter::new(AGENT_EVENTS_BURST, AGENT_EVENTS_PER_SECOND, start);
        for _ in 0..AGENT_EVENTS_BURST {
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
        let expected = 2 * AGENT_EVENTS_PER_SECOND;
        assert!((expected..expected + 400).contains(&taken), "{taken}");
    }
}
