//! Queue of messages to one client, bounded in messages and bytes.
//!
//! A reply waits for space, which stops reading from this client but from no other. Events of a session also wait, and
//! stay in the session's ring. Direct events ([`ClientOutbox::push`]) have a separate budget and do not wait: a client
//! that exceeds the budget is disconnected, because it would miss events. The writing task combines queued messages
//! into one write. A client that reads nothing for too long is disconnected, and so is the one that holds most without
//! reading if the messages to all clients need too much memory.

use crate::metrics::Metrics;
use bytes::Bytes;
use quackd_ipc::halves::ImmediateWriter;
use quackd_protocol::limits::{
    CLIENT_EVENT_BYTES, CLIENT_OUTBOX_BYTES, CLIENT_OUTBOX_MESSAGES, CLIENT_TOLD_BYTES,
    CLIENT_TOLD_MESSAGES, CLIENT_WRITE_TIMEOUT,
};
use quackd_supervision::{Budget, Share};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Maximum size of small messages that are combined into one write, in bytes.
const GATHER_BYTES: usize = 64 * 1024;

/// Sending side. The connection ends when the last clone is dropped and everything is written.
#[derive(Debug, Clone)]
pub(crate) struct ClientOutbox {
    /// The capacity covers all messages that the permits below allow, so the queue is never full.
    messages: mpsc::Sender<QueuedMessage>,
    /// Permits for messages, one each.
    message_permits: Arc<Semaphore>,
    room: Arc<Semaphore>,
    /// Budget for events in bytes, which is small: unread events stay in the session's ring, which all followers share.
    event_room: Arc<Semaphore>,
    /// Budget for direct events in bytes, separate from replies and events of a session.
    push_room: Arc<Semaphore>,
    immediate: Option<ImmediateWriter>,
    /// Part of the client in the memory for the messages to all clients.
    share: Arc<Share<CancellationToken>>,
    disconnected: CancellationToken,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct QueuedMessage {
    line: Bytes,
    /// Released when the line was written.
    _held: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>, ByteReservation),
}

/// Counts the bytes of a message until it is written or dropped, also while it waits for space.
#[derive(Debug)]
struct ByteReservation {
    metrics: Arc<Metrics>,
    share: Arc<Share<CancellationToken>>,
    bytes: usize,
}

impl ByteReservation {
    /// Counts the message. Disconnects the clients that hold too much.
    fn new(outbox: &ClientOutbox, line: &Bytes) -> Self {
        let (metrics, share) = (Arc::clone(&outbox.metrics), Arc::clone(&outbox.share));
        let bytes = line.len();

        metrics.queued_bytes.add(bytes);
        for disconnected in share.add(bytes, Instant::now()) {
            disconnected.cancel();
        }
        Self { metrics, share, bytes }
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.metrics.queued_bytes.subtract(self.bytes);
        self.share.subtract(self.bytes, Instant::now());
    }
}

/// Minimum budget of a direct event, in bytes. Bounds their number.
const MIN_PUSH_BYTES: usize = CLIENT_TOLD_BYTES / CLIENT_TOLD_MESSAGES;

/// The client is gone. The message was dropped.
#[derive(Debug)]
pub(crate) struct ClientGone;

/// Reason why writing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriterExit {
    /// Everything was written.
    Done,
    /// The client closed its side.
    Closed,
    /// The client did not read in time.
    Slow,
}

/// Creates an outbox, and the future that writes its messages to `writer`. With `immediate`, of the same socket, a
/// reply is written at once if no message waits.
pub(crate) fn outbox<W: AsyncWrite + Unpin>(
    writer: W,
    immediate: Option<ImmediateWriter>,
    metrics: Arc<Metrics>,
    budget: Arc<Budget<CancellationToken>>,
) -> (ClientOutbox, impl Future<Output = WriterExit>) {
    let (messages, waiting) = mpsc::channel(CLIENT_OUTBOX_MESSAGES + CLIENT_TOLD_MESSAGES);

    let room_for = |n| Arc::new(Semaphore::new(n));
    let disconnected = CancellationToken::new();

    let (counters, disconnecting) = (Arc::clone(&metrics), disconnected.clone());
    let writing = async move {
        let end = tokio::select! {
            end = write_all(writer, waiting) => end,
            // A client that was disconnected for its queue counts as slow too.
            () = disconnecting.cancelled() => WriterExit::Slow,
        };
        if end == WriterExit::Slow {
            counters.slow_clients.add(1);
        }
        end
    };

    let outbox = ClientOutbox {
        messages,
        message_permits: room_for(CLIENT_OUTBOX_MESSAGES),
        room: room_for(CLIENT_OUTBOX_BYTES),
        event_room: room_for(CLIENT_EVENT_BYTES),
        push_room: room_for(CLIENT_TOLD_BYTES),
        immediate,
        share: Arc::new(budget.join(disconnected.clone())),
        disconnected,
        metrics,
    };
    (outbox, writing)
}

impl ClientOutbox {
    /// Writes a reply at once, or queues it. Waits for space.
    pub(crate) async fn send(&self, line: Bytes) -> Result<(), ClientGone> {
        let n = self.write_immediately(&line);
        if n == line.len() {
            return Ok(());
        }

        self.send_later(line.slice(n..)).await
    }

    /// Queues a reply. Waits for space.
    pub(crate) async fn send_later(&self, line: Bytes) -> Result<(), ClientGone> {
        self.queue(line, &self.room, CLIENT_OUTBOX_BYTES).await
    }

    /// Writes the beginning of a line if no message waits. Returns how many bytes were written. There is space for the
    /// rest, so that nothing is queued before it.
    fn write_immediately(&self, line: &[u8]) -> usize {
        // All permits are free only if no message waits or is being written.
        let is_empty = self.message_permits.available_permits() == CLIENT_OUTBOX_MESSAGES
            && self.room.available_permits() == CLIENT_OUTBOX_BYTES
            && self.push_room.available_permits() == CLIENT_TOLD_BYTES;
        self.immediate.as_ref().filter(|_| is_empty).map_or(0, |socket| socket.write(line))
    }

    /// Queues an event. Waits for space in the budget for events.
    pub(crate) async fn send_event(&self, line: Bytes) -> Result<(), ClientGone> {
        self.queue(line, &self.event_room, CLIENT_EVENT_BYTES).await
    }

    async fn queue(
        &self,
        line: Bytes,
        room: &Arc<Semaphore>,
        all: usize,
    ) -> Result<(), ClientGone> {
        // A line above the whole budget waits until the budget is free, instead of forever.
        let n = u32::try_from(line.len().min(all)).unwrap_or(u32::MAX);

        // Counted before the wait: a waiting message uses memory too.
        let counted = ByteReservation::new(self, &line);

        let mut held = self.try_hold(room, n);
        if held.is_none() {
            let waited_for = async {
                let room = Arc::clone(room).acquire_many_owned(n).await.ok()?;
                Some((room, Arc::clone(&self.message_permits).acquire_owned().await.ok()?))
            };
            held = tokio::select! {
                held = waited_for => held,
                () = self.messages.closed() => None,
                () = self.disconnected.cancelled() => None,
            };
        }

        let (room, permit) = held.ok_or(ClientGone)?;
        let held = (room, Some(permit), counted);
        self.messages.try_send(QueuedMessage { line, _held: held }).map_err(|_closed| ClientGone)
    }

    /// Takes space for a message, if there is enough now.
    fn try_hold(
        &self,
        room: &Arc<Semaphore>,
        n: u32,
    ) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let room = Arc::clone(room).try_acquire_many_owned(n).ok()?;
        Some((room, Arc::clone(&self.message_permits).try_acquire_owned().ok()?))
    }

    /// Queues a direct event without waiting. If the budget is exhausted, disconnects the client and returns
    /// [`ClientGone`]. A message above the whole budget is accepted if no other one is queued.
    pub(crate) fn push(&self, line: Bytes) -> Result<(), ClientGone> {
        if self.messages.is_closed() || self.disconnected.is_cancelled() {
            return Err(ClientGone);
        }

        let n = line.len().clamp(MIN_PUSH_BYTES, CLIENT_TOLD_BYTES);
        let n = u32::try_from(n).unwrap_or(u32::MAX);

        let queued = Arc::clone(&self.push_room).try_acquire_many_owned(n).ok().and_then(|room| {
            let held = (room, None, ByteReservation::new(self, &line));
            self.messages.try_send(QueuedMessage { line, _held: held }).ok()
        });
        // A dropped event would be a gap that the client cannot notice.
        if queued.is_none() {
            self.disconnect_slow();
        }
        queued.ok_or(ClientGone)
    }

    /// Disconnects a client that reads too slowly. Does not wait for it.
    pub(crate) fn disconnect_slow(&self) {
        self.disconnected.cancel();
    }
}

async fn write_all<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut waiting: mpsc::Receiver<QueuedMessage>,
) -> WriterExit {
    let mut gathered = Vec::new();
    while let Some(first) = waiting.recv().await {
        // Long lines are written directly, because copying them costs more than a system call.
        let may_gather = first.line.len() < GATHER_BYTES;
        let mut next = may_gather.then(|| waiting.try_recv().ok()).flatten();

        let written = if next.is_none() {
            write(&mut writer, &first.line).await
        } else {
            // The permits are kept until the combined line is written.
            let mut held = vec![first._held];
            gathered.clear();
            gathered.extend_from_slice(&first.line);
            while let Some(QueuedMessage { line, _held }) = next {
                gathered.extend_from_slice(&line);
                held.push(_held);
                let has_room = gathered.len() < GATHER_BYTES;
                next = has_room.then(|| waiting.try_recv().ok()).flatten();
            }
            write(&mut writer, &gathered).await
        };

        if let Err(end) = written {
            return end;
        }
        // Release the memory of a long reply.
        gathered.shrink_to(GATHER_BYTES);
    }
    WriterExit::Done
}

/// Writes in steps, so that the timeout applies to progress and not to the size.
async fn write<W: AsyncWrite + Unpin>(writer: &mut W, mut bytes: &[u8]) -> Result<(), WriterExit> {
    while !bytes.is_empty() {
        match timeout(CLIENT_WRITE_TIMEOUT, writer.write(bytes)).await {
            Err(_elapsed) => return Err(WriterExit::Slow),
            Ok(Err(_) | Ok(0)) => return Err(WriterExit::Closed),
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

    fn new_outbox<W: AsyncWrite + Unpin>(
        writer: W,
        immediate: Option<ImmediateWriter>,
        metrics: Arc<Metrics>,
    ) -> (ClientOutbox, impl Future<Output = WriterExit>) {
        outbox(writer, immediate, metrics, Budget::new(usize::MAX))
    }

    #[test]
    fn of_clients_that_do_not_read_the_one_with_most_bytes_is_disconnected_when_all_hold_too_much()
    {
        paused().block_on(async {
            let budget = Budget::new(4 * CLIENT_OUTBOX_BYTES);
            let mut clients = Vec::new();
            for size in [4, 1, 1, 1] {
                let (peer, server) = tokio::io::duplex(16);
                let (outbox, writing) = outbox(server, None, Arc::default(), Arc::clone(&budget));
                let writing = tokio::spawn(writing);
                let line = Bytes::from(vec![b'x'; size * CLIENT_OUTBOX_BYTES / 2]);
                outbox.send(line.clone()).await.unwrap();
                clients.push((peer, outbox, writing, line));
            }
            assert_eq!(budget.bytes(), 7 * CLIENT_OUTBOX_BYTES / 2);
            // Waits for space, which counts too.
            let (_, first, _, line) = &clients[1];
            let (first, line) = (first.clone(), line.clone());
            let sent = [first.clone(), first.clone()].map(|outbox| {
                let line = line.clone();
                tokio::spawn(async move { outbox.send(line).await })
            });
            while !clients[0].2.is_finished() {
                tokio::task::yield_now().await;
            }
            let (_, _, writing, _) = clients.remove(0);
            assert_eq!(writing.await.unwrap(), WriterExit::Slow);
            assert!(clients.iter().all(|(_, _, writing, _)| !writing.is_finished()));
            drop((first, sent));
        });
    }

    #[test]
    fn lines_arrive_in_order_and_the_end_follows_the_last_sender() {
        paused().block_on(async {
            let (mut client, server) = tokio::io::duplex(7);
            let (outbox, writing) = new_outbox(server, None, Arc::default());
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
            assert_eq!(writing.await.unwrap(), WriterExit::Done);
        });
    }

    #[test]
    fn a_client_that_does_not_read_is_given_up_and_its_queue_stays_bounded() {
        paused().block_on(async {
            let (_client, server) = tokio::io::duplex(16);
            let metrics = Arc::<Metrics>::default();
            let (outbox, writing) = new_outbox(server, None, Arc::clone(&metrics));
            let writing = tokio::spawn(writing);
            let big = Bytes::from(vec![b'x'; CLIENT_OUTBOX_BYTES]);
            outbox.send(big.clone()).await.unwrap();
            assert_eq!(metrics.queued_bytes.get(), CLIENT_OUTBOX_BYTES);
            // The second message has no space. It waits until the client is disconnected.
            assert!(outbox.send(big).await.is_err());
            assert_eq!(writing.await.unwrap(), WriterExit::Slow);
            assert_eq!((metrics.slow_clients.get(), metrics.queued_bytes.get()), (1, 0));
        });
    }

    #[test]
    fn a_reply_is_written_at_once_and_never_before_what_was_queued_earlier() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut client, server) = tokio::net::UnixStream::pair().unwrap();
            let (reading, server) = quackd_ipc::halves::split(server).unwrap();
            drop(reading);
            let immediate = Some(server.immediate());
            let (outbox, writing) = new_outbox(server, immediate, Arc::default());
            let mut line = [0; 2];
            outbox.send("1\n".into()).await.unwrap();
            client.read_exact(&mut line).await.unwrap();
            assert_eq!(&line, b"1\n");
            outbox.push("2\n".into()).unwrap();
            outbox.send("3\n".into()).await.unwrap();
            outbox.send_event("4\n".into()).await.unwrap();
            // More than the socket takes at once.
            let long = Bytes::from(vec![b'5'; 1 << 20]);
            let writing = tokio::spawn(writing);
            tokio::task::yield_now().await;
            outbox.send(long.clone()).await.unwrap();
            outbox.send("6\n".into()).await.unwrap();
            drop(outbox);
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            let expected = [b"2\n3\n4\n", long.as_ref(), b"6\n"].concat();
            assert!(rest == expected);
            assert_eq!(writing.await.unwrap(), WriterExit::Done);
        });
    }
}
