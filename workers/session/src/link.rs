//! The worker's end of the control channel: one task reads frames and hands them to the executor, and one writes the
//! frames that the executor queued.
//!
//! When the supervisor exits, the read ends, which ends the process.

use bytes::Bytes;
use quackd_ipc::frames::{self, Decoded};
use quackd_ipc::halves::{ReadingHalf, WritingHalf};
use quackd_process::complain;
use quackd_protocol::limits::MAX_CALLS_PER_SESSION;
use quackd_protocol::worker::{FromWorker, TO_WORKER_TAGS, ToWorker};
use tokio::sync::mpsc;

/// Maximum number of frames waiting to be written: one result per call, a pong and a few warnings. If the queue is
/// full, a result waits in its own task.
const OUTBOX_FRAMES: usize = MAX_CALLS_PER_SESSION + 8;

/// Sends frames to the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct FrameSender(mpsc::Sender<Bytes>);

impl FrameSender {
    /// Queues `frame`. Waits while the supervisor does not read. Drops the frame if the supervisor has exited.
    pub(crate) async fn send(&self, frame: &FromWorker) {
        match frames::encode(frame) {
            Ok(body) => {
                // A queue without a reader means that the process is exiting.
                self.0.send(body).await.ok();
            }
            Err(error) => complain(&format!("a frame was dropped: {error}")),
        }
    }

    /// Waits for room in the queue, then queues the frame that `frame` returns, if any. So the frame has the latest
    /// state.
    pub(crate) async fn send_latest(&self, frame: impl FnOnce() -> Option<FromWorker>) {
        // A queue without a reader means that the process is exiting.
        let Ok(room) = self.0.reserve().await else { return };
        match frame().map(|frame| frames::encode(&frame)) {
            Some(Ok(body)) => room.send(body),
            Some(Err(error)) => complain(&format!("a frame was dropped: {error}")),
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

/// Starts the writing task.
pub(crate) fn start_writer(half: WritingHalf) -> FrameSender {
    let (sender, queue) = mpsc::channel::<Bytes>(OUTBOX_FRAMES);
    actix::spawn(frames::write_queued(queue, half));
    FrameSender(sender)
}

/// Passes each frame to `handle` until the channel ends.
pub(crate) async fn read(half: ReadingHalf, mut handle: impl FnMut(ToWorker)) {
    let mut reader = frames::reader(half);
    while let Some(Ok(body)) = frames::next(&mut reader).await {
        match frames::decode::<ToWorker>(&body, TO_WORKER_TAGS) {
            Ok(Decoded::Known(frame)) => handle(frame),
            Ok(Decoded::Unknown(tag)) => complain(&format!("skipped a `{tag}` frame")),
            Err(error) => {
                complain(&format!("{error}"));
                break;
            }
        }
    }
}
