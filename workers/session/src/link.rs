//! The worker's end of the control channel: one task reads frames into the executor's mailbox, and one writes the
//! frames that the executor queued.
//!
//! When the supervisor exits, the read ends and the executor stops, which ends the process.

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use quackd_ipc::frames::{self, Decoded};
use quackd_protocol::limits::MAX_CALLS_PER_SESSION;
use quackd_protocol::worker::{FromWorker, TO_WORKER_TAGS, ToWorker};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Maximum number of frames waiting to be written: one result per call, a pong and a few warnings. If the queue is
/// full, a result waits in its own task.
const OUTBOX_FRAMES: usize = MAX_CALLS_PER_SESSION + 8;

/// Sends frames to the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct FrameSender(mpsc::Sender<Bytes>);

impl FrameSender {
    /// Queues `frame`. Waits while the supervisor does not read. Drops the frame if the supervisor has exited,
    /// because this process exits soon.
    pub(crate) async fn send(&self, frame: &FromWorker) {
        match frames::encode(frame) {
            Ok(body) => {
                self.0.send(body).await.ok();
            }
            Err(error) => crate::complain(&format!("a frame was dropped: {error}")),
        }
    }

    /// Waits for room in the queue, then queues the frame that `frame` returns, if any. So the frame has the latest
    /// state.
    pub(crate) async fn send_latest(&self, frame: impl FnOnce() -> Option<FromWorker>) {
        // A queue without a reader means that the process is exiting.
        let Ok(room) = self.0.reserve().await else { return };
        match frame().map(|frame| frames::encode(&frame)) {
            Some(Ok(body)) => room.send(body),
            Some(Err(error)) => crate::complain(&format!("a frame was dropped: {error}")),
            None => (),
        }
    }

    /// Returns true if [`FrameSender::offer`] would queue a frame.
    pub(crate) fn has_room(&self) -> bool {
        0 < self.0.capacity()
    }

    /// Queues `frame` unless the queue is full.
    pub(crate) fn offer(&self, frame: &FromWorker) {
        if let Ok(body) = frames::encode(frame) {
            // A full queue means that the supervisor is stopped or busy. Its next ping repeats the request.
            self.0.try_send(body).ok();
        }
    }
}

/// The control channel was closed: the supervisor has exited or stops the worker.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ChannelClosed;

/// A frame from the supervisor.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct FrameReceived(pub(crate) ToWorker);

impl From<ToWorker> for FrameReceived {
    fn from(frame: ToWorker) -> Self {
        Self(frame)
    }
}

/// Starts the writing task.
pub(crate) fn start_writer(half: WriteHalf<UnixStream>) -> FrameSender {
    let (sender, queue) = mpsc::channel::<Bytes>(OUTBOX_FRAMES);
    actix::spawn(frames::write_queued(queue, half));
    FrameSender(sender)
}

/// Reads frames into `executor` until the channel ends, then closes it.
pub(crate) async fn read_into<A>(half: ReadHalf<UnixStream>, executor: Addr<A>)
where
    A: Actor + Handler<FrameReceived> + Handler<ChannelClosed>,
    A::Context: ToEnvelope<A, FrameReceived> + ToEnvelope<A, ChannelClosed>,
{
    let mut reader = frames::reader(half);
    while let Some(Ok(body)) = reader.next().await {
        match frames::decode::<ToWorker>(&body, TO_WORKER_TAGS) {
            // Waiting for the handler provides back-pressure: the supervisor's frames stay in the socket.
            Ok(Decoded::Known(frame)) => {
                executor.send(FrameReceived::from(frame)).await.ok();
            }
            Ok(Decoded::Unknown(tag)) => crate::complain(&format!("skipped a `{tag}` frame")),
            Err(error) => {
                crate::complain(&format!("{error}"));
                break;
            }
        }
    }
    executor.send(ChannelClosed).await.ok();
}
