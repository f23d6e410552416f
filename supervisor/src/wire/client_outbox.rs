//! What waits to be written to one client, bounded in messages and in bytes.
//!
//! Replies wait for room, which stops the reading of that client and of nobody else. So do the events of
//! a session, which stay in its ring. What is told to one client alone ([`Outbox::tell`]) has room of its
//! own and waits for nothing: a client that lets it fill up is given up, for it would not know how things
//! stand. The writing task gathers what is there into one write. A client that takes no byte for too long
//! is given up.

use crate::metrics::Metrics;
use bytes::Bytes;
use quackd_protocol::limits::{
    CLIENT_EVENT_BYTES, CLIENT_OUTBOX_BYTES, CLIENT_OUTBOX_MESSAGES, CLIENT_TOLD_BYTES,
    CLIENT_TOLD_MESSAGES, CLIENT_WRITE_TIMEOUT,
};
use std::sync::Arc;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Small messages are gathered up to this many bytes per write.
const GATHER_BYTES: usize = 64 * 1024;

/// The sending side. When the last clone is gone and everything is written, the connection ends.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    /// As long as all that the places and rooms below allow: it is never full.
    messages: mpsc::Sender<Waiting>,
    /// Places for messages that wait for room.
    places: Arc<Semaphore>,
    room: Arc<Semaphore>,
    /// Events have little room of their own: what a client has not read of them stays in the session's
    /// ring, which all its followers share.
    event_room: Arc<Semaphore>,
    /// Room for what is told to this client alone: neither replies nor a session's events take of it.
    told_room: Arc<Semaphore>,
    given_up: CancellationToken,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Waiting {
    line: Bytes,
    /// Given back when the line was written.
    _held: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>, Counted),
}

/// The bytes of a message among those of all clients, until it was written or dropped.
#[derive(Debug)]
struct Counted(Arc<Metrics>, usize);

impl Counted {
    fn new(metrics: &Arc<Metrics>, line: &Bytes) -> Self {
        metrics.queued_bytes.add(line.len());
        Self(Arc::clone(metrics), line.len())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.queued_bytes.subtract(self.1);
    }
}

/// The least that a message takes of the room for what is told: it bounds their number.
const LEAST_TOLD_BYTES: usize = CLIENT_TOLD_BYTES / CLIENT_TOLD_MESSAGES;

/// The client is gone; the message is dropped.
#[derive(Debug)]
pub(crate) struct Gone;

/// Why writing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    /// Everything was written.
    Done,
    /// The client closed its side.
    Closed,
    /// The client did not read.
    Slow,
}

/// An outbox and the future that writes it to `writer`.
pub(crate) fn outbox<W: AsyncWrite + Unpin>(
    writer: W,
    metrics: Arc<Metrics>,
) -> (Outbox, impl Future<Output = WriteEnd>) {
    let (messages, waiting) = mpsc::channel(CLIENT_OUTBOX_MESSAGES + CLIENT_TOLD_MESSAGES);
    let room_for = |n| Arc::new(Semaphore::new(n));
    let given_up = CancellationToken::new();
    let writing = write_until_given_up(writer, waiting, Arc::clone(&metrics), given_up.clone());
    let outbox = Outbox {
        messages,
        places: room_for(CLIENT_OUTBOX_MESSAGES),
        room: room_for(CLIENT_OUTBOX_BYTES),
        event_room: room_for(CLIENT_EVENT_BYTES),
        told_room: room_for(CLIENT_TOLD_BYTES),
        given_up,
        metrics,
    };
    (outbox, writing)
}

impl Outbox {
    /// Queues a reply, waiting for room.
    pub(crate) async fn send(&self, line: Bytes) -> Result<(), Gone> {
        self.queue(line, &self.room, CLIENT_OUTBOX_BYTES).await
    }

    /// Queues an event, waiting for the little room that events have.
    pub(crate) async fn send_event(&self, line: Bytes) -> Result<(), Gone> {
        self.queue(line, &self.event_room, CLIENT_EVENT_BYTES).await
    }

    async fn queue(&self, line: Bytes, room: &Arc<Semaphore>, all: usize) -> Result<(), Gone> {
        let n = u32::try_from(line.len().min(all)).unwrap_or(u32::MAX);
        let waited_for = async {
            let room = Arc::clone(room).acquire_many_owned(n).await.ok()?;
            Some((room, Arc::clone(&self.places).acquire_owned().await.ok()))
        };
        let (room, place) = tokio::select! {
            held = waited_for => held.ok_or(Gone)?,
            () = self.messages.closed() => return Err(Gone),
        };
        let held = (room, place, Counted::new(&self.metrics, &line));
        self.messages.try_send(Waiting { line, _held: held }).map_err(|_closed| Gone)
    }

    /// Queues what this client alone is told, without waiting. One that has not read what it was told
    /// before is given up: [`Gone`] then too. What does not fit at all is taken if nothing else waits.
    pub(crate) fn tell(&self, line: Bytes) -> Result<(), Gone> {
        if self.messages.is_closed() || self.given_up.is_cancelled() {
            return Err(Gone);
        }
        let n = line.len().clamp(LEAST_TOLD_BYTES, CLIENT_TOLD_BYTES);
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let told = Arc::clone(&self.told_room).try_acquire_many_owned(n).ok().and_then(|room| {
            let held = (room, None, Counted::new(&self.metrics, &line));
            self.messages.try_send(Waiting { line, _held: held }).ok()
        });
        if told.is_none() {
            self.give_up();
        }
        told.ok_or(Gone)
    }

    /// Disconnects a client that is too slow for what it asked for, without waiting for it.
    pub(crate) fn give_up(&self) {
        self.given_up.cancel();
    }
}

async fn write_until_given_up<W: AsyncWrite + Unpin>(
    writer: W,
    waiting: mpsc::Receiver<Waiting>,
    metrics: Arc<Metrics>,
    given_up: CancellationToken,
) -> WriteEnd {
    let end = tokio::select! {
        end = write_all(writer, waiting) => end,
        () = given_up.cancelled() => WriteEnd::Slow,
    };
    if end == WriteEnd::Slow {
        metrics.slow_clients.add(1);
    }
    end
}

async fn write_all<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut waiting: mpsc::Receiver<Waiting>,
) -> WriteEnd {
    let mut gathered = Vec::new();
    while let Some(first) = waiting.recv().await {
        let written = if GATHER_BYTES <= first.line.len() {
            write(&mut writer, &first.line).await
        } else {
            let mut held = vec![first._held];
            gathered.clear();
            gathered.extend_from_slice(&first.line);
            while gathered.len() < GATHER_BYTES {
                let Ok(next) = waiting.try_recv() else { break };
                gathered.extend_from_slice(&next.line);
                held.push(next._held);
            }
            write(&mut writer, &gathered).await
        };
        if let Err(end) = written {
            return end;
        }
        // One long reply must not cost memory for the rest of the connection.
        gathered.shrink_to(GATHER_BYTES);
    }
    WriteEnd::Done
}

/// Writes in steps, so that the time limit is about progress and not about size.
async fn write<W: AsyncWrite + Unpin>(writer: &mut W, mut bytes: &[u8]) -> Result<(), WriteEnd> {
    while !bytes.is_empty() {
        match timeout(CLIENT_WRITE_TIMEOUT, writer.write(bytes)).await {
            Err(_elapsed) => return Err(WriteEnd::Slow),
            Ok(Err(_) | Ok(0)) => return Err(WriteEnd::Closed),
            Ok(Ok(n)) => bytes = bytes.get(n..).unwrap_or_default(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn paused() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    }

    #[test]
    fn lines_arrive_in_order_and_the_end_follows_the_last_sender() {
        paused().block_on(async {
            let (mut client, server) = tokio::io::duplex(7);
            let (outbox, writing) = outbox(server, Arc::default());
            let writing = tokio::spawn(writing);
            for n in 0..500 {
                let reading = async {
                    let mut line = vec![0; format!("{n}\n").len()];
                    client.read_exact(&mut line).await.unwrap();
                    line
                };
                let (sent, line) = tokio::join!(outbox.send(format!("{n}\n").into()), reading);
                sent.unwrap();
                assert_eq!(line, format!("{n}\n").into_bytes());
            }
            drop(outbox);
            assert_eq!(writing.await.unwrap(), WriteEnd::Done);
        });
    }

    #[test]
    fn a_client_that_does_not_read_is_given_up_and_its_queue_stays_bounded() {
        paused().block_on(async {
            let (_client, server) = tokio::io::duplex(16);
            let metrics = Arc::<Metrics>::default();
            let (outbox, writing) = outbox(server, Arc::clone(&metrics));
            let writing = tokio::spawn(writing);
            let big = Bytes::from(vec![b'x'; CLIENT_OUTBOX_BYTES]);
            outbox.send(big.clone()).await.unwrap();
            assert_eq!(metrics.queued_bytes.get(), CLIENT_OUTBOX_BYTES);
            // No room for the second one: it waits until the first is given up.
            assert!(outbox.send(big).await.is_err());
            assert_eq!(writing.await.unwrap(), WriteEnd::Slow);
            assert_eq!((metrics.slow_clients.get(), metrics.queued_bytes.get()), (1, 0));
        });
    }
}
