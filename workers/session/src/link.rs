//! The worker's end of the control channel: one task that reads frames into the executor's mailbox and
//! one that writes what the executor queued.
//!
//! When the supervisor is gone the read ends, and with it the process: the executor is told to close.

use crate::executor::{Close, Command, ToolExecutor};
use actix::Addr;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use quackd_ipc::frames::{self, Decoded};
use quackd_protocol::limits::MAX_CALLS_PER_SESSION;
use quackd_protocol::worker::{FromWorker, TO_WORKER_TAGS, ToWorker};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, FramedWrite};

/// Frames waiting to be written: one result per call, a pong and a few warnings. A result that finds
/// the queue full waits in its own task.
const OUTBOX_FRAMES: usize = MAX_CALLS_PER_SESSION + 8;

/// Sends frames to the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct Outbox(mpsc::Sender<Bytes>);

impl Outbox {
    /// Queues `frame`, waiting while the supervisor does not read. A supervisor that is gone ends the
    /// process soon; its frames are dropped.
    pub(crate) async fn send(&self, frame: &FromWorker) {
        match frames::encode(frame) {
            Ok(body) => {
                self.0.send(body).await.ok();
            }
            Err(error) => crate::complain(&format!("a frame was dropped: {error}")),
        }
    }

    /// Queues what `frame` gives once there is room, if it is anything: it is made at the last moment.
    pub(crate) async fn send_latest(&self, frame: impl FnOnce() -> Option<FromWorker>) {
        // A queue without a reader is the end of the process.
        let Ok(room) = self.0.reserve().await else { return };
        match frame().map(|frame| frames::encode(&frame)) {
            Some(Ok(body)) => room.send(body),
            Some(Err(error)) => crate::complain(&format!("a frame was dropped: {error}")),
            None => (),
        }
    }

    /// Whether [`Outbox::offer`] would queue a frame.
    pub(crate) fn has_room(&self) -> bool {
        0 < self.0.capacity()
    }

    /// Queues `frame` unless the queue is full.
    pub(crate) fn offer(&self, frame: &FromWorker) {
        if let Ok(body) = frames::encode(frame) {
            // A full queue means that the supervisor is stopped or busy; its next ping asks again.
            self.0.try_send(body).ok();
        }
    }
}

/// Starts the writing task.
pub(crate) fn start_writer(half: WriteHalf<UnixStream>) -> Outbox {
    let (sender, mut frames) = mpsc::channel::<Bytes>(OUTBOX_FRAMES);
    let mut writer = FramedWrite::new(half, frames::codec());
    actix::spawn(async move {
        while let Some(body) = frames.recv().await {
            if writer.send(body).await.is_err() {
                break;
            }
        }
    });
    Outbox(sender)
}

/// Reads frames into `executor` until the channel ends, then closes it.
pub(crate) async fn read_into(half: ReadHalf<UnixStream>, executor: Addr<ToolExecutor>) {
    let mut reader = FramedRead::new(half, frames::codec());
    while let Some(Ok(body)) = reader.next().await {
        match frames::decode::<ToWorker>(&body, TO_WORKER_TAGS) {
            // Waiting for the handler is the back-pressure: the supervisor's frames stay in the socket.
            Ok(Decoded::Known(frame)) => {
                executor.send(Command::from(frame)).await.ok();
            }
            Ok(Decoded::Unknown(tag)) => crate::complain(&format!("skipped a `{tag}` frame")),
            Err(error) => {
                crate::complain(&format!("{error}"));
                break;
            }
        }
    }
    executor.send(Close).await.ok();
}
